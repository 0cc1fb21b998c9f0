"""Predicate nominals, "X is a ...": coordinated nouns, relative clauses and participles."""

from itertools import pairwise
from typing import Final, NamedTuple

from claimflow.stages.claim_rules.clauses import ClauseStructure, clause_structure, is_negated
from claimflow.stages.claim_rules.lexicon import (
    ARTICLES,
    EVENT_PARTICIPLES,
    FIXED_PAIRS,
    STATE_PARTICIPLES,
    indefinite_article,
    is_person_noun,
    possessive,
)
from claimflow.stages.claim_rules.tags import FINITE
from claimflow.stages.claim_rules.tokens import (
    Clause,
    Token,
    inserted_token,
    repeated_subject,
    trim_punctuation,
    without_positions,
)

_COPULAS: Final = frozenset("is was are were am 's ’s be been became become becomes".split())
_PAST: Final = frozenset("was were became".split())
_EXPLETIVES: Final = frozenset({"there", "what"})
_PLACES: Final = frozenset({"in", "from", "at", "on"})
_MODIFIERS: Final = frozenset({"adjective", "adverb", "number"})
_INSIDE: Final = frozenset({"adjective", "adverb", "noun", "name", "number", "determiner"})


class PredicateNominal(NamedTuple):
    """A clause "subject copula article ...": `start` is the index of the article."""

    structure: ClauseStructure
    start: int
    past: bool


def predicate_nominal(clause: Clause) -> PredicateNominal | None:
    """The parts of a clause that states what its subject is; None for any other clause."""
    found = clause_structure(clause)
    if found is None or clause[found.main].low not in _COPULAS:
        return None
    if clause[found.subject].low in _EXPLETIVES:
        return None
    group = clause[found.verb : found.main + 1]
    start = found.main + 1
    while start < len(clause) and clause[start].tag == "adverb":
        start += 1
    if start >= len(clause) or clause[start].low not in ("a", "an", "the"):
        return None
    if is_negated(clause[found.verb : start]) or any(token.tag == "modal" for token in group):
        return None
    past = any(token.low in _PAST for token in group)
    return PredicateNominal(found, start, past)


def split_relative_clause(clause: Clause) -> list[Clause]:
    """ "X was a physicist who did this": X was a physicist. X did this."""
    found = predicate_nominal(clause)
    if found is None or clause[found.start].low not in ARTICLES:
        return []
    for index in range(found.start + 1, len(clause) - 1):
        token = clause[index]
        if token.tag == "relative":
            break
        if token.tag in FINITE or token.tag in ("semicolon", "subordinator", "gerund"):
            return []
    else:
        return []
    nominal = clause[found.start + 1 : index]
    verb = index + 1
    while verb < len(clause) - 1 and clause[verb].tag == "adverb":
        verb += 1
    if token.low != "whose" and (token.low == "whom" or clause[verb].tag not in FINITE):
        return []
    if not _has_one_head(trim_punctuation(nominal)):
        return []
    subject = repeated_subject(clause[found.structure.subject : found.structure.verb])
    if token.low == "whose":
        if subject[-1].tag != "name":
            return []
        subject = (*subject[:-1], subject[-1]._replace(text=possessive(subject[-1].text)))
    return [trim_punctuation(clause[:index]), (*subject, *clause[index + 1 :])]


def split_participial_clause(clause: Clause) -> list[Clause]:
    """ "X is a novel written by Y": X is a novel. X was written by Y."""
    found = predicate_nominal(clause)
    if found is None or clause[found.start].low not in ARTICLES:
        return []
    for index in range(found.start + 2, len(clause) - 1):
        if (
            clause[index].tag == "participle"
            or clause[index].low in EVENT_PARTICIPLES | STATE_PARTICIPLES
        ):
            break
        if clause[index].tag not in _INSIDE | {"comma", "coordinator"}:
            return []
    else:
        return []
    if any(token.tag == "relative" for token in clause[index:]):
        return []
    word, following = clause[index].low, clause[index + 1].tag
    if word not in EVENT_PARTICIPLES | STATE_PARTICIPLES or following not in (
        "preposition",
        "adverb",
        "name",
    ):
        return []
    if clause[index - 1].tag in ("adverb", "coordinator", "determiner", "adjective"):
        return []
    subject = clause[found.structure.subject : found.structure.verb]
    plural = clause[found.structure.finite].low in ("are", "were")
    past, present = ("were", "are") if plural else ("was", "is")
    be = inserted_token(past if found.past or word in EVENT_PARTICIPLES else present, "be")
    return [
        trim_punctuation(clause[:index]),
        (*repeated_subject(subject), be, *_as_participle(clause, index)),
    ]


def _as_participle(clause: Clause, index: int) -> Clause:
    return (clause[index]._replace(tag="participle"), *clause[index + 1 :])


def split_coordinated_nominals(clause: Clause) -> list[Clause]:
    """ "X was an English mathematician and inventor": one clause for each."""
    found = predicate_nominal(clause)
    members = coordinated_nominals(clause, found.start) if found else []
    if found is None or len(members) < 2:
        return []
    opening = repeated_subject(clause[found.structure.subject : found.start])
    first = (*clause[: found.start], *members[0])
    return [first, *((*opening, *member) for member in members[1:])]


def coordinated_nominals(clause: Clause, start: int) -> list[Clause]:
    """The members of a coordination of nouns at `start`, each with its article; none if no list.

    The article is repeated, an adjective coordinated with another gets the noun of both,
    and "the founder and head of Y" shares what follows.
    """
    items, rest = _list_members(clause, start)
    if len(items) < 2 or clause[start - 1].low == "both":
        return []
    shared = items[0][0]
    modifier = items[0][-1].tag == "adjective" and len(items[1]) > 1
    if modifier and is_person_noun(items[1][-1].low):
        items[0] = (*items[0], *without_positions(items[1][-1:]))
    if not _are_separable(items):
        return []
    common: Clause = ()
    if shared.low == "the":
        if (
            not rest
            or rest[0].low != "of"
            or not all(is_person_noun(item[-1].low) for item in items)
        ):
            return []
        common = without_positions(rest)
    articled = [items[0], *(_with_article(item, shared) for item in items[1:])]
    return [*((*item, *common) for item in articled[:-1]), (*articled[-1], *rest)]


def _list_members(clause: Clause, start: int) -> tuple[list[Clause], Clause]:
    """Members of a list of nouns and what follows the last; one member if it is no list."""
    items: list[Clause] = []
    begin = index = start
    closed = False
    while index < len(clause):
        token = clause[index]
        if token.tag == "comma" or token.low == "and":
            if closed or begin == index:
                break
            items.append(clause[begin:index])
            if token.tag == "comma" and index + 1 < len(clause) and clause[index + 1].low == "and":
                index += 1
            closed = clause[index].low == "and"
            begin = index + 1
        elif token.tag not in _INSIDE:
            break
        index += 1
    if not closed or begin >= index:
        return [clause[start:index]], clause[index:]
    last = clause[begin:index]
    return [*items, last], clause[index:]


def _are_separable(items: list[Clause]) -> bool:
    """Whether X can be each of the items alone."""
    heads = [item[-1].low for item in items]
    if any((a, b) in FIXED_PAIRS for a, b in pairwise(heads)):
        return False
    if any(item[-1].tag not in ("noun", "name") for item in items[1:]):
        return False
    if all(is_person_noun(head) for head in heads):
        return True
    plain = all(
        token.tag in _MODIFIERS or token.tag == "determiner"
        for item in items
        for token in item[:-1]
    )
    return plain and all(
        item[-1].tag == "noun" and not item[-1].low.endswith("s") for item in items
    )


def _with_article(item: Clause, shared: Token) -> Clause:
    if item[0].tag == "determiner":
        return item
    word = "the" if shared.low == "the" else indefinite_article(item[0].text)
    return (inserted_token(word, "determiner"), *item)


def _has_one_head(nominal: Clause) -> bool:
    """Whether a relative clause after `nominal` can only modify its head."""
    for token in nominal:
        if token.tag == "preposition" and token.low not in _PLACES:
            return False
        if token.tag not in _INSIDE | {"preposition", "coordinator", "comma"}:
            return False
    return bool(nominal)
