"""When and where: two adjuncts of one verb, told apart."""

from typing import Final

from claimflow.stages.text.claims.closed import FINITE
from claimflow.stages.text.claims.frame import frame, negated
from claimflow.stages.text.claims.tokens import Clause, borrowed, repeated, trimmed
from claimflow.stages.text.claims.verbs import INTRANSITIVE

_MONTHS: Final = frozenset(
    "january february march april may june july august september october november december "
    "jan feb mar apr jun jul aug sep sept oct nov dec".split()
)
_TIME_OPENINGS: Final = frozenset({"in", "on"})
_PLACE_OPENINGS: Final = frozenset({"in", "at"})
_DATE_WORDS: Final = frozenset({"early", "late", "mid", "the", "c", "circa", "ad", "bc"}) | _MONTHS


def time_and_place(clause: Clause) -> list[Clause]:
    """ "X was born in 1879 in Germany": X was born in 1879. X was born in Germany.

    Only of verbs without an object, so that each part still says what happened.
    """
    found = frame(clause)
    if found is None or negated(clause[found.verb : found.main + 1]):
        return []
    if clause[found.main].tag != "participle" and clause[found.main].low not in INTRANSITIVE:
        return []
    rest = clause[found.main + 1 :]
    if any(token.tag in FINITE or token.tag in ("relative", "subordinator") for token in rest):
        return []
    divided = _time_first(rest) or _place_first(rest)
    if not divided:
        return []
    before, after = divided
    head = clause[: found.main + 1]
    again = repeated(clause[found.subject : found.verb])
    group = borrowed(clause[found.verb : found.main + 1])
    return [(*head, *before), (*again, *group, *after)]


def _time_first(rest: Clause) -> tuple[Clause, Clause] | None:
    end = _date_end(rest, 0)
    place = end + 1 if end < len(rest) and rest[end].tag == "comma" else end
    if not end or not _opens_place(rest, place):
        return None
    return trimmed(rest[:end]), rest[place:]


def _place_first(rest: Clause) -> tuple[Clause, Clause] | None:
    if not _opens_place(rest, 0):
        return None
    for index in range(2, len(rest)):
        if rest[index].low in _TIME_OPENINGS and _date_end(rest, index) == len(rest):
            return trimmed(rest[:index]), rest[index:]
        if rest[index].tag not in ("name", "noun", "comma", "determiner", "adjective"):
            return None
    return None


def _date_end(rest: Clause, start: int) -> int:
    """Index after the date that begins at `start`; `start` itself when none does."""
    index = start
    if index < len(rest) and rest[index].low in _TIME_OPENINGS:
        index += 1
    numbers = 0
    while index < len(rest):
        token = rest[index]
        dated = token.tag == "number" or token.low in _DATE_WORDS
        between = token.tag == "comma" and index + 1 < len(rest) and rest[index + 1].tag == "number"
        if not dated and not between:
            break
        numbers += token.tag == "number"
        index += 1
    return index if numbers else start


def _opens_place(rest: Clause, index: int) -> bool:
    if index + 1 >= len(rest) or rest[index].low not in _PLACE_OPENINGS:
        return False
    return rest[index + 1].tag in ("name", "determiner") and _date_end(rest, index) == index
