"""Batches of texts and sources as arrays, for metrics that compare many at once."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

# Many strings as one array.


Ints = NDArray[np.intp]


class Sequences(NamedTuple):
    """The characters of strings in order, each as 1 or more, and a 0 behind every string.

    `ends` are the places of the zeros.
    """

    units: Ints
    ends: Ints

    @classmethod
    def of(cls, texts: Sequence[str]) -> Self:
        """From strings, which may hold any character."""
        ends = np.cumsum([len(text) + 1 for text in texts], dtype=np.intp) - 1
        joined = "\n".join([*texts, ""]).encode("utf-32-le", "surrogatepass")
        units = np.frombuffer(joined, np.int32) + np.intp(1)
        units[ends] = 0
        return cls(units, ends)

    @property
    def starts(self) -> Ints:
        """Where the strings begin."""
        return np.concatenate([np.zeros(1, np.intp), self.ends[:-1] + 1])

    @property
    def extents(self) -> Ints:
        """The lengths of the strings, each with its zero."""
        return np.diff(self.ends, prepend=-1)


def ranked(texts: Sequences, sources: Sequences) -> tuple[Ints, Ints, int]:
    """The units of the texts numbered from 1 on, those of the sources alike; and how many.

    A unit that no text holds is 0, as is what stands behind every string.
    """
    used = np.flatnonzero(np.bincount(texts.units))
    ranks = np.zeros(max(texts.units.max(), sources.units.max()) + 1, np.intp)
    ranks[used] = np.arange(len(used))
    return ranks.take(texts.units), ranks.take(sources.units), len(used)


# What is compared with what: texts with a source, a batch of both at a time.


_BATCH: Final = 65_536


class Comparison(NamedTuple):
    """Texts, and the one source that each of them is compared with.

    They are strings of characters, or of letters that stand for words.
    """

    texts: Sequence[str]
    source: str

    @property
    def size(self) -> int:
        """The number of characters on both sides."""
        return len(self.source) + sum(map(len, self.texts))


def batches(comparisons: Sequence[Comparison]) -> Iterator[list[Comparison]]:
    """Comparisons of at most 65,536 characters together, or a longer one alone."""
    batch: list[Comparison] = []
    room = _BATCH
    for comparison in comparisons:
        if not comparison.texts:
            continue
        if batch and comparison.size > room:
            yield batch
            batch, room = [], _BATCH
        batch.append(comparison)
        room -= comparison.size
    if batch:
        yield batch


def owners(batch: Sequence[Comparison]) -> Ints:
    """For each text of the comparisons the number of its own one."""
    return np.repeat(np.arange(len(batch)), [len(comparison.texts) for comparison in batch])


def lengths(comparisons: Sequence[Comparison]) -> tuple[Ints, Ints]:
    """For each text of the comparisons its length and that of its source."""
    of_texts = [len(text) for comparison in comparisons for text in comparison.texts]
    of_sources = [len(comparison.source) for comparison in comparisons]
    return np.array(of_texts, np.intp), np.array(of_sources, np.intp)[owners(comparisons)]


# Words as letters: a text of words becomes a string in which every word is one character.
#
# What texts have in common can then be counted on strings, whose units are compared
# without looking at the words again.


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
