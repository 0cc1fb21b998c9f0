"""Predicate nominals, "X is a ...", and the nouns coordinated in them."""

from itertools import pairwise
from typing import Final, NamedTuple

from claimflow.stages.claim_rules.clauses import ClauseStructure, clause_structure, is_negated
from claimflow.stages.claim_rules.lexicon import (
    FIXED_PAIRS,
    indefinite_article,
    is_person_noun,
    singular,
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


_DEFINITE: Final = frozenset("the its his her their our my your these those".split())
_PLURALS: Final = frozenset("people women men children".split())
_UNIQUE: Final = frozenset("most least best worst first last only main top other".split())
_NUMBERS: Final = frozenset("two three four five six seven eight nine ten many several".split())
_LONGEST_NAME: Final = 10
"""Tokens of a name in a list."""


def listed_names(clause: Clause) -> list[Clause]:
    """ "The albums are: A, B, and C": A is one of the albums, and so on.

    Empty for another clause.
    """
    at = next((n for n, token in enumerate(clause) if token.low in ("are", "were")), 0)
    group, names = clause[:at], clause[at + 2 :]
    if not is_definite_group(group) or clause[at + 1 : at + 2] == () or clause[at + 1].text != ":":
        return []
    items: list[Clause] = [()]
    for token in names:
        if token.tag == "comma":
            items.append(())
        else:
            items[-1] = (*items[-1], token)
    last = items.pop()
    if len(last) < 2 or last[0].low != "and":
        return []
    items.append(last[1:])
    if len(items) < 3 or not all(_is_name(item) for item in items):
        return []
    be = inserted_token("is" if clause[at].low == "are" else "was", "be")
    return [(*item, be, *one_of(group)) for item in items]


def one_of(group: Clause) -> Clause:
    """What each of a definite group is: "an album of Ann" for "Ann's albums".

    "one of the largest towns" where the group has a superlative or the like.
    """
    first, *rest = without_positions(group)
    opening = first._replace(text=first.low) if first.low in _DEFINITE else first
    whole = (
        *(inserted_token(text, "noun") for text in ("one", "of")),
        opening._replace(spaced=True),
        *rest,
    )
    at = next((n for n, token in enumerate(group) if token.tag == "preposition"), len(group))
    kind = singular(group[at - 1].low) if at else None
    unique = any(token.low in _UNIQUE or token.low.endswith("est") for token in group)
    if kind is None or unique or group[at - 1].tag != "noun":
        return whole
    owner = next((n for n in range(at - 1) if group[n].low.endswith(("'s", "’s"))), None)
    described = without_positions(group[(0 if owner is None else owner) + 1 : at - 1])
    while described and (described[0].tag == "number" or described[0].low in _NUMBERS):
        described = described[1:]
    if owner is None and (first.low not in ("the", "these", "those") or not described):
        return whole
    noun = (*described, inserted_token(kind, "noun"))
    article = inserted_token(indefinite_article(noun[0].text), "determiner")
    behind = without_positions(group[at:])
    if owner is not None:
        name = [*without_positions(group[:owner]), group[owner]._replace(start=-1, end=-1)]
        name[-1] = name[-1]._replace(text=name[-1].text[:-2])
        name = [token for token in name if token.text]
        if name[0].low in _DEFINITE:
            name[0] = name[0]._replace(text=name[0].low)
        name[0] = name[0]._replace(spaced=True)
        behind = (inserted_token("of", "preposition"), *name, *behind)
    return (article, *noun, *behind)


def is_definite_group(group: Clause) -> bool:
    """Whether words name a known group of several: "the albums", "Ann's albums"."""
    if not group or any(token.tag in ("comma", "relative", "punctuation") for token in group):
        return False
    owned = any(token.low.endswith(("'s", "’s", "s'")) for token in group[:-1])
    definite = owned or group[0].low in _DEFINITE
    several = any(token.low.endswith("s") or token.low in _PLURALS for token in group)
    return definite and several


def may_be_plural(word: str) -> bool:
    """Whether a word ends as a plural does, so that "is" may not fit: "Blood Clots"."""
    return word.endswith("s") and not word.endswith(("ss", "us", "is", "'s"))


def _is_name(item: Clause) -> bool:
    """Whether words begin with a capital and have no verb: "Songs of Faith and Devotion"."""
    if not 0 < len(item) <= _LONGEST_NAME or not item[0].text.lstrip('"“«')[:1].isupper():
        return False
    apart = ("semicolon", "punctuation", "relative")
    named = not may_be_plural(item[-1].text) or any(token.tag == "preposition" for token in item)
    return named and all(token.tag not in apart or token.text == "&" for token in item)
