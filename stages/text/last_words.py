"""Words behind which a full stop ends a sentence whatever else is there, or nearly so."""

import re
from typing import Final

from claimflow.stages.text.abbreviations import ABBREVIATIONS
from claimflow.stages.text.composed import composed
from claimflow.stages.text.stops import DOTTED, LIST_NUMBER, LONGEST_WORD, NO_VOWEL, OPENERS, ROMAN

_MOST: Final = 100_000

# Of abbreviations that may be written with a blank: "f. eks.".
_ENDINGS: Final = frozenset(word[2:] for word in ABBREVIATIONS if word[1:2] == ".")
_LIST_NUMBER: Final = re.compile(LIST_NUMBER)


class _Followers(dict[str, int]):
    """What may stand behind a word, a full stop and a blank for a sentence to end there.

    0: nothing, since more has to be looked at; 1: a capital letter; 2: anything but a dash
    or white space. Each word is looked at once.
    """

    def __missing__(self, word: str) -> int:
        clear = _clear(word)
        # Where no blanks are written a word may be a whole text, and is not met again.
        if len(word) < LONGEST_WORD:
            if len(self) > _MOST:
                self.clear()
            self[word] = clear
        return clear


def _clear(piece: str) -> int:
    word = composed(piece.lstrip(OPENERS))
    if not word or len(piece) >= LONGEST_WORD or piece.split() != [piece]:
        return 0
    if DOTTED.fullmatch(word) or _LIST_NUMBER.fullmatch(word):
        return 0
    lower = word.lower()
    if lower in ABBREVIATIONS or lower in _ENDINGS:
        return 0
    return 1 if NO_VOWEL.fullmatch(word) or ROMAN.fullmatch(word) else 2


FOLLOWERS: Final = _Followers()


def followers(word: str, stop: str) -> int:
    """What may stand behind a word, its stop and a blank for a sentence to end there."""
    if len(stop) > 1:
        return int(FOLLOWERS[word] > 0 and stop.isascii())
    if stop == ".":
        return FOLLOWERS[word]
    return 1 + word.islower() if stop in "?!" else 0
