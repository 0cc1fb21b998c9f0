"""Words as letters: a text of words becomes a string in which every word is one character.

What texts have in common can then be counted on strings, whose units are compared
without looking at the words again.
"""

from collections.abc import Iterable
from typing import Final

END: Final = "\0"
"""The letter that stands for no word."""

_MOST: Final = 500_000
_SURROGATES: Final = range(0xD800, 0xE000)


class Letters(dict[str, str]):
    """A letter for each word, the same as long as this object is not cleared.

    There are letters for 1,112,063 distinct words.
    """

    def __missing__(self, word: str) -> str:
        number = len(self) + 1
        # Half characters cannot be written in UTF-8.
        skipped = len(_SURROGATES) if number >= _SURROGATES.start else 0
        letter = self[word] = chr(number + skipped)
        return letter

    def spell(self, words: Iterable[str]) -> str:
        """The letters of `words`, in order."""
        return "".join(map(self.__getitem__, words))

    @property
    def is_full(self) -> bool:
        """Whether there are so many that it is time to begin anew."""
        return len(self) > _MOST
