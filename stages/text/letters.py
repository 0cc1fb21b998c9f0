"""Words as letters: a text of words becomes a string in which every word is one character.

What texts have in common can then be counted on strings, whose units are compared
without looking at the words again.
"""

from collections.abc import Callable, Iterable
from typing import Final

END: Final = "\0"
"""The letter that stands for no word."""

_MOST: Final = 500_000
_LONGEST: Final = 50


class Letters(dict[str, str]):
    """A letter for each word, the same as long as this object is not cleared.

    There are letters for 1,114,111 distinct words.
    """

    def __missing__(self, word: str) -> str:
        letter = self[word] = chr(len(self) + 1)
        return letter

    def spell(self, words: Iterable[str]) -> str:
        """The letters of `words`, in order."""
        return "".join(map(self.__getitem__, words))

    @property
    def is_full(self) -> bool:
        """Whether there are so many that it is time to begin anew."""
        return len(self) > _MOST


class Spelling(dict[str, str]):
    """The letters of pieces of texts, each piece looked at once."""

    def __init__(self, spell: Callable[[str], str]) -> None:
        self._spell = spell

    def __missing__(self, piece: str) -> str:
        spelled = self._spell(piece)
        if len(piece) <= _LONGEST:
            self[piece] = spelled
        return spelled

    def of(self, pieces: Iterable[str]) -> str:
        """The letters of `pieces`, in order."""
        return "".join(map(self.__getitem__, pieces))
