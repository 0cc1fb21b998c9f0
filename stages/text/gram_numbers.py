"""Numbers for n-grams, such that equal ones of a text and of its source have the same.

An n-gram is known by the number of its first n-1 units and its last one, together its
code, which is its place in a table. The table is never cleared: what stands at a place
counts only when the n-gram that put it there is the one that is looked up (Briggs and
Torczon, "An efficient representation for sparse sets", 1993). So nothing is hashed or
sorted, unless there are so many codes that the table would be large.
"""

from typing import Final

import numpy as np

from stages.text.sequences import Ints

_LARGEST: Final = 1 << 22


class GramNumbers:
    """Lends one table to all that is numbered, so that it is made once."""

    def __init__(self) -> None:
        self._table: Ints = np.zeros(1 << 16, np.intp)

    def of(self, codes: Ints, sought: Ints, *, below: int) -> tuple[Ints, Ints]:
        """Numbers of `codes`, and of those among `sought`; all codes are less than `below`.

        Numbers are less than len(codes), which stands for a sought code that is not there.
        """
        if below > _LARGEST:
            distinct, numbers = np.unique(codes, return_inverse=True)
            return numbers, _known(distinct, np.searchsorted(distinct, sought), sought, len(codes))
        if below > len(self._table):
            self._table = np.zeros(below, np.intp)
        self._table[codes] = np.arange(len(codes))
        numbers = self._table.take(codes)
        return numbers, _known(codes, self._table.take(sought), sought, len(codes))


def _known(codes: Ints, numbers: Ints, sought: Ints, unknown: int) -> Ints:
    """`numbers` where they are those of the codes `sought`, elsewhere `unknown`."""
    return np.where(codes.take(numbers, mode="clip") == sought, numbers, unknown)
