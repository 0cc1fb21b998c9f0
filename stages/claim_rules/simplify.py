"""Low coverage: reduce a clause to its main statement."""

from typing import Final

from claimflow.stages.claim_rules.clauses import is_negated
from claimflow.stages.claim_rules.lexicon import (
    ARTICLES,
    CONNECTIVES,
    EVALUATIVE_WORDS,
    indefinite_article,
    is_person_noun,
)
from claimflow.stages.claim_rules.parentheticals import find_parenthetical
from claimflow.stages.claim_rules.predicate_nominals import coordinated_nominals, predicate_nominal
from claimflow.stages.claim_rules.tags import FINITE
from claimflow.stages.claim_rules.tokens import (
    Clause,
    Token,
    inserted_token,
    trim_punctuation,
    without_parentheses,
)

_MOST_PARENTHETICALS: Final = 8
_EXAMPLES: Final = frozenset({"including", "such", "especially", "particularly", "notably"})
_MODIFIED: Final = frozenset({"noun", "name", "adjective"})
_OF_ALL: Final = frozenset({"in", "from", "at"})


def drop_details(clause: Clause) -> Clause:
    """The clause without parentheticals, examples and evaluations; unchanged if it has none."""
    shorter = clause
    for _ in range(_MOST_PARENTHETICALS):
        found = find_parenthetical(shorter)
        if found is None:
            break
        shorter = found.main
    shorter = _without_examples(without_parentheses(shorter) or shorter)
    shorter = _without_every_second_member(_without_evaluations(_without_modifier_pair(shorter)))
    return shorter if len(shorter) < len(clause) else clause


def without_connective(clause: Clause) -> Clause:
    """The clause without "However,", "But" or another connective."""
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


def _without_evaluations(clause: Clause) -> Clause:
    if is_negated(clause):
        return clause  # "no significant effect" is not "no effect"
    kept: list[Token] = []
    for index, token in enumerate(clause):
        following = clause[index + 1] if index + 1 < len(clause) else None
        if (
            kept
            and following
            and token.low in EVALUATIVE_WORDS
            and _can_be_dropped(kept[-1], token, following)
        ):
            if kept[-1].low in ARTICLES:
                kept[-1] = kept[-1]._replace(text=indefinite_article(following.text))
            continue
        kept.append(token)
    return tuple(kept)


def _can_be_dropped(previous: Token, token: Token, following: Token) -> bool:
    if previous.low in ("most", "more", "less", "least", "not", "as", "so", "and", "or", "comma"):
        return False
    if token.tag == "adverb":
        return following.tag in ("adjective", "participle", "verb")
    return token.tag == "adjective" and following.tag in _MODIFIED


def _without_modifier_pair(clause: Clause) -> Clause:
    """ "a Polish and naturalized-French physicist": a physicist."""
    found = predicate_nominal(clause)
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
    if (
        index >= len(clause)
        or clause[index - 1].low == "and"
        or not is_person_noun(clause[index].low)
    ):
        return clause
    determiner = clause[found.start]._replace(text=indefinite_article(clause[index].text))
    return (*clause[: found.start], determiner, *clause[index:])


def _without_every_second_member(clause: Clause) -> Clause:
    """ "a poet, painter, critic and editor": a poet and a critic."""
    found = predicate_nominal(clause)
    members = coordinated_nominals(clause, found.start) if found else []
    if found is None or len(members) < 2:
        return clause
    kept: list[Token] = list(clause[: found.start])
    for position, member in enumerate(members[::2]):
        if position:
            kept.append(inserted_token("and", "coordinator"))
        kept += member
    if len(members) % 2 == 0:
        kept += _shared_modifier(members[-1])
    return trim_punctuation(kept)


def _shared_modifier(last: Clause) -> Clause:
    """What follows a coordination and modifies all its members: "who ...", "in Paris"."""
    for index, token in enumerate(last):
        if token.tag in ("relative", "comma", "participle") or token.low in _OF_ALL:
            return last[index:]
        if token.tag == "preposition":
            return ()
    return ()
