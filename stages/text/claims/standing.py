"""Whether an English claim can be understood alone: no pronoun that nothing stands for."""

import re
from typing import Final

from claimflow.stages.text.claims.closed import FINITE
from claimflow.stages.text.claims.tags import tag
from claimflow.stages.text.claims.tokens import Clause, tokenize

_PERSONAL: Final = frozenset(
    "he she it they him her them his its their hers theirs "
    "himself herself itself themselves".split()
)
_LONGEST: Final = 1_500
"""So much of a claim is looked at."""

_POINTING: Final = frozenset({"this", "that", "these", "those"})
_PRONOUN: Final = re.compile(rf"\b(?:{'|'.join(sorted(_PERSONAL | _POINTING))})\b", re.IGNORECASE)
_NAMING: Final = frozenset({"name", "noun", "parenthesis", "gerund"})
_OPENING: Final = frozenset({"subordinator", "preposition", "adverb", "gerund", "participle"})
_ASKING: Final = frozenset({"whether", "if", "how", "why", "when", "where"})
_INTRODUCING: Final = frozenset({"that", "to", "who"}) | _ASKING
_SEEMING: Final = frozenset(
    "seems seemed appears appeared follows followed happens happened".split()
)
_STATING: Final = frozenset({"be", "modal", "base", "verb", "adverb", "adjective", "participle"})
_WEATHER: Final = frozenset(
    "rain rains rained raining snow snows snowed snowing hail hailed hailing".split()
)


def open_pronoun(claim: str) -> str | None:
    """The first pronoun of an English claim that stands for nothing named in it; None if none.

    Before a pronoun anything named may be what it stands for, so "Einstein said that he left"
    has none and "He left" has one. In "After he left, Einstein wrote" the name follows. "It is
    known that" and "it rains" stand for nothing.
    """
    end = min(len(claim), _LONGEST)
    if not _PRONOUN.search(claim, 0, end):
        return None
    clause = tag(tokenize(claim, 0, end))
    named = False
    for index, token in enumerate(clause):
        if not named and _stands_for_something(clause, index):
            return token.text
        named = named or token.tag in _NAMING
    return None


def _stands_for_something(clause: Clause, index: int) -> bool:
    low = clause[index].low
    if low in _POINTING:
        following = clause[index + 1] if index + 1 < len(clause) else None
        return index == 0 and following is not None and following.tag in FINITE
    if low not in _PERSONAL or _named_behind(clause, index):
        return False
    return low != "it" or not _empty(clause, index)


def _named_behind(clause: Clause, index: int) -> bool:
    """Whether a name follows the clause that opens the sentence: "After he left, Einstein"."""
    if clause[0].tag not in _OPENING:
        return False
    behind = clause[index:]
    comma = next((place for place, token in enumerate(behind) if token.tag == "comma"), None)
    return comma is not None and any(token.tag in ("name", "noun") for token in behind[comma:][:4])


def _empty(clause: Clause, index: int) -> bool:
    """Whether "it" only fills the place of a subject that follows, or of none."""
    behind = clause[index + 1 :]
    if _WEATHER.intersection(token.low for token in behind[:3]):
        return True
    lows = [token.low for token in behind]
    place = next((place for place, low in enumerate(lows) if low in _INTRODUCING), None)
    if not place:
        return False
    between, tags = behind[:place], {token.tag for token in behind[:place]}
    if between[0].low not in _SEEMING and between[0].tag not in ("be", "modal"):
        return False
    if lows[place] == "to":
        infinitive = place + 1 < len(behind) and behind[place + 1].tag == "base"
        noted = "that" in lows[place : place + 4]
        return (infinitive or noted) and tags <= _STATING | {"noun"} and "participle" not in tags
    if lows[place] in _ASKING and "participle" in tags and "known" not in lows[:place]:
        return False
    return tags <= _STATING or _cleft(between)


def _cleft(between: Clause) -> bool:
    """ "It was Einstein who", "it was in 1990 that"; not "it is a city that"."""
    second = between[1] if len(between) > 1 else None
    if second is None or any(token.tag in ("participle", "comma") for token in between):
        return False
    return second.tag in ("name", "number", "preposition") or second.low == "the"
