"""Many strings as one array."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

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
