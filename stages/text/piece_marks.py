"""What a piece of text says of the sentences around it, whatever the text."""

import re
from typing import Final, NamedTuple

import numpy as np

from claimflow.stages.text.pieces import LINE_BREAK, Flags, Pieces
from claimflow.stages.text.sentence_ends import (
    EMOJI,
    FULL_STOPS,
    LONGEST_WORD,
    OPENING,
    ends_sentence,
)
from claimflow.stages.text.sentences import BREAK, BULLETS, followers

_QUIET, _BEFORE_CAPITAL, _BEFORE_ANY, _OPEN = range(4)
"""What ends with a piece: no sentence; one before a capital letter; one before whatever begins
a sentence; perhaps one, for more has to be looked at."""

_ITEM: Final = 1 << 2
_WITHIN: Final = 1 << 3
_FULL_STOP: Final = 1 << 4
_OPENS: Final = 1 << 5
_BEGINS: Final = 1 << 6
_BEGINS_WITH_CAPITAL: Final = 2 << 6
_MOST: Final = 200_000

# What may stand behind a stop and a blank and still belong to it, or to the sentence.
_GOES_ON: Final = re.compile(rf"[.!?…»\[:;=—–{EMOJI}\s]|$")
_SPACE: Final = re.compile(r"\s")
_FULL_STOPS: Final = frozenset(FULL_STOPS)
_OPENING: Final = frozenset(OPENING)
_BEGINS_ITEM: Final = re.compile(rf"[{BULLETS}]|\d{{1,3}}[.)]{{1,2}}$")


class Marks(NamedTuple):
    """Of each piece, whether a sentence surely ends with it, and whether one may; where a line
    ends with it both may be false. Whether an item of a list may begin with it. And whether
    sentences may begin or end within it.
    """

    last: Flags
    open: Flags
    item: Flags
    within: Flags


def look_at(pieces: Pieces) -> Marks:
    """What each piece says, of which most are looked at once in a process."""
    marks = np.frombuffer(bytes(map(_KNOWN.__getitem__, pieces.distinct)), np.uint8)[pieces.codes]
    ends, begins = marks & _OPEN, marks // _BEGINS
    if not (marks & _OPENS).any():
        # Nothing but such a bracket keeps a full stop of another script from ending a sentence.
        ends[marks & _FULL_STOP > 0] = _BEFORE_ANY
    stops = (ends == _BEFORE_CAPITAL) | (ends == _BEFORE_ANY)
    last = stops & (ends + np.append(begins[1:], np.uint8(0)) > _BEFORE_ANY)
    at_line_end = np.append(pieces.breaks[1:], True)
    is_open = (ends == _OPEN) | (stops & ~last & ~at_line_end)
    return Marks(last, is_open, marks & _ITEM > 0, marks & _WITHIN > 0)


class _Known(dict[str, int]):
    """The marks of pieces as numbers."""

    def __missing__(self, piece: str) -> int:
        marks = _beginning(piece) + _ending(piece)
        # Where no blanks are written a piece may be a whole text, and is not met again.
        if len(piece) <= LONGEST_WORD:
            if len(self) > _MOST:
                self.clear()
            self[piece] = marks
        return marks


_KNOWN: Final = _Known()


def _beginning(piece: str) -> int:
    marks = _ITEM if _BEGINS_ITEM.match(piece) else 0
    if not _OPENING.isdisjoint(piece):
        marks += _OPENS
    if _GOES_ON.match(piece):
        return marks
    return marks + (_BEGINS_WITH_CAPITAL if piece[0].isupper() else _BEGINS)


def _ending(piece: str) -> int:
    if piece == LINE_BREAK:
        return _QUIET
    if _SPACE.search(piece):
        return _WITHIN
    # The mark stands for any piece that cannot belong to the stop before it.
    text = f"{piece} ~"
    for stop in BREAK.finditer(text):
        if stop.end() == len(piece):
            if stop[0] in _FULL_STOPS:
                return _OPEN + _FULL_STOP
            return (_OPEN, _BEFORE_CAPITAL, _BEFORE_ANY)[followers(piece[: stop.start()], stop[0])]
        if not _FULL_STOPS.isdisjoint(stop[0]):
            return _WITHIN
        # What is before another stop within a piece is all that is looked at.
        if stop.start() == 0 or ends_sentence(text, 0, stop):
            return _OPEN
    return _QUIET
