"""Numbers for n-grams, such that equal ones of a text and of its source have the same.

An n-gram is known by the number of its first n-1 units and its last one, together its
code, which is its place in a table. Texts write numbers there, sources read them, and the
places are cleared behind them, so that nothing is hashed or sorted, unless there are so
many codes that the table would be large.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from claimflow.stages.text.sequences import Ints

Numbers = NDArray[np.int32]

_LARGEST: Final = 1 << 22


class GramNumbers:
    """Lends one table to all that is numbered, so that it is made once."""

    def __init__(self) -> None:
        self._table: Numbers = np.zeros(1 << 16, np.int32)

    def of(
        self, codes: Ints | Numbers, sought: Ints | Numbers, *, below: int
    ) -> tuple[Numbers, Numbers]:
        """Numbers of `codes`, one or more, and of those among `sought`; all are less than `below`.

        Numbers are from 1 to len(codes), and 0 for a sought code that is not there.
        """
        numbers = np.arange(1, len(codes) + 1, dtype=np.int32)
        if below > _LARGEST:
            distinct, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
            places = np.searchsorted(distinct[:-1], sought)
            there = distinct.take(places) == sought
            return numbers[first[inverse]], numbers[first[places]] * there
        if below > len(self._table):
            self._table = np.zeros(1 << (below - 1).bit_length(), np.int32)
        self._table[codes] = numbers
        found = self._table.take(codes), self._table.take(sought)
        self._table[codes] = 0
        return found
