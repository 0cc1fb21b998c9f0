"""Predicate nominals, "X is a ...", and the nouns coordinated in them."""

from itertools import pairwise
from typing import Final, NamedTuple

from claimflow.stages.claim_rules.clauses import ClauseStructure, clause_structure, is_negated
from claimflow.stages.claim_rules.lexicon import (
    FIXED_PAIRS,
    indefinite_article,
    is_person_noun,
)
from claimflow.stages.claim_rules.tokens import (
    Clause,
    Token,
    inserted_token,
    without_positions,
)

_COPULAS: Final = frozenset("is was are were am 's ’s be been became become becomes".split())
_PAST: Final = frozenset("was were became".split())
_EXPLETIVES: Final = frozenset({"there", "what"})
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
