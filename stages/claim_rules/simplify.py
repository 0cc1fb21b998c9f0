"""Low coverage: a clause reduced to its main point."""

from typing import Final

from claimflow.stages.claim_rules.asides import find_aside
from claimflow.stages.claim_rules.clauses import negated
from claimflow.stages.claim_rules.complements import nominals, predicate
from claimflow.stages.claim_rules.tags import FINITE
from claimflow.stages.claim_rules.tokens import Clause, Token, added, trimmed, without_parentheses
from claimflow.stages.claim_rules.words import ARTICLES, CONNECTIVES, EVALUATIONS, article, is_role

_MOST_ASIDES: Final = 8
_EXAMPLES: Final = frozenset({"including", "such", "especially", "particularly", "notably"})
_MODIFIED: Final = frozenset({"noun", "name", "adjective"})
_OF_ALL: Final = frozenset({"in", "from", "at"})


def plain(clause: Clause) -> Clause:
    """The clause without details; the same object when it has none."""
    shorter = clause
    for _ in range(_MOST_ASIDES):
        found = find_aside(shorter)
        if found is None:
            break
        shorter = found.main
    shorter = _without_examples(without_parentheses(shorter) or shorter)
    shorter = _thinned(_without_praise(_without_modifier_pair(shorter)))
    return shorter if len(shorter) < len(clause) else clause


def without_connective(clause: Clause) -> Clause:
    """The clause without "However,", "But" or another opening that claims nothing."""
    if len(clause) > 1 and clause[0].tag == "coordinator":
        clause = clause[1:]
    for index in range(1, min(6, len(clause) - 1)):
        if clause[index].tag == "comma":
            opening = " ".join(token.low for token in clause[:index])
            return clause[index + 1 :] if opening in CONNECTIVES else clause
    return clause


def _without_examples(clause: Clause) -> Clause:
    for index in range(2, len(clause) - 1):
        if clause[index].tag == "comma" and clause[index + 1].low in _EXAMPLES:
            if any(token.tag in FINITE for token in clause[index + 1 :]):
                return clause
            return clause[:index]
    return clause


def _without_praise(clause: Clause) -> Clause:
    if negated(clause):
        return clause  # "no significant effect" is not "no effect"
    kept: list[Token] = []
    for index, token in enumerate(clause):
        following = clause[index + 1] if index + 1 < len(clause) else None
        if kept and following and token.low in EVALUATIONS and _spare(kept[-1], token, following):
            if kept[-1].low in ARTICLES:
                kept[-1] = kept[-1]._replace(text=article(following.text))
            continue
        kept.append(token)
    return tuple(kept)


def _spare(previous: Token, token: Token, following: Token) -> bool:
    if previous.low in ("most", "more", "less", "least", "not", "as", "so", "and", "or", "comma"):
        return False
    if token.tag == "adverb":
        return following.tag in ("adjective", "participle", "verb")
    return token.tag == "adjective" and following.tag in _MODIFIED


def _without_modifier_pair(clause: Clause) -> Clause:
    """ "a Polish and naturalized-French physicist": a physicist."""
    found = predicate(clause)
    if found is None or clause[found.start].low not in ARTICLES:
        return clause
    index = found.start + 1
    while index < len(clause) and clause[index].tag == "adjective":
        index += 1
    if index == found.start + 1 or index >= len(clause) or clause[index].low != "and":
        return clause
    index += 1
    while index < len(clause) and clause[index].tag == "adjective":
        index += 1
    if index >= len(clause) or clause[index - 1].low == "and" or not is_role(clause[index].low):
        return clause
    determiner = clause[found.start]._replace(text=article(clause[index].text))
    return (*clause[: found.start], determiner, *clause[index:])


def _thinned(clause: Clause) -> Clause:
    """ "a poet, painter, critic and editor": a poet and a critic."""
    found = predicate(clause)
    members = nominals(clause, found.start) if found else []
    if found is None or len(members) < 2:
        return clause
    kept: list[Token] = list(clause[: found.start])
    for position, member in enumerate(members[::2]):
        if position:
            kept.append(added("and", "coordinator"))
        kept += member
    if len(members) % 2 == 0:
        kept += _common(members[-1])
    return trimmed(kept)


def _common(last: Clause) -> Clause:
    """What follows a list and belongs to all its members: "who ...", "in Paris"."""
    for index, token in enumerate(last):
        if token.tag in ("relative", "comma", "participle") or token.low in _OF_ALL:
            return last[index:]
        if token.tag == "preposition":
            return ()
    return ()
