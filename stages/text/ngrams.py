"""Clipped n-gram counts of many texts against their sources."""

from collections.abc import Sequence
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from claimflow.stages.text.batches import Comparison, Ints, Sequences, batches, owners, ranked

# Numbers for n-grams, such that equal ones of a text and of its source have the same.
#
# An n-gram is known by the number of its first n-1 units and its last one, together its
# code, which is its place in a table. Texts write numbers there, sources read them, and the
# places are cleared behind them, so that nothing is hashed or sorted, unless there are so
# many codes that the table would be large.


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


# How many n-grams texts share with their sources, for many texts at once.
#
# An n-gram that the other side lacks begins no longer one that both have, so it is let go of:
# each order looks only at what the one before left on either side.


class _Grams(NamedTuple):
    """n-grams of strings: the number of each, and the place of its last unit."""

    numbers: Ints | Numbers
    ends: Ints

    @classmethod
    def units(cls, units: Ints, origins: Ints) -> Self:
        """All of one unit but the last, behind which there is nothing; numbered from origins on."""
        return cls((origins + units)[:-1], np.arange(len(units) - 1))

    def longer(self, units: Ints, kinds: int) -> Self:
        """With the unit behind each; numbered by its code, below `kinds` times the numbers."""
        ends = self.ends + 1
        return self._replace(numbers=self.numbers * np.intp(kinds) + units.take(ends), ends=ends)

    def only(self, kept: NDArray[np.bool]) -> Self:
        """Those that are kept."""
        places = np.flatnonzero(kept)
        return self._replace(numbers=self.numbers.take(places), ends=self.ends.take(places))


def shared_grams(comparisons: Sequence[Comparison], *, orders: int) -> Ints:
    """n-grams in common, each as often as it stands in both, for n from 1 to `orders`.

    One row per text, in the order of the comparisons and of their texts; one column per n.
    Memory is proportional to the longest comparison.
    """
    numbers = GramNumbers()
    counts = [_shared(batch, orders, numbers) for batch in batches(comparisons)]
    return np.concatenate([np.empty((0, orders), np.intp), *counts])


def _shared(batch: list[Comparison], orders: int, numbers: GramNumbers) -> Ints:
    texts = Sequences.of([text for comparison in batch for text in comparison.texts])
    sources = Sequences.of([comparison.source for comparison in batch])
    in_texts, in_sources, kinds = ranked(texts, sources)
    # What no text holds, as the end of a source, is not what stands behind a text either.
    in_sources[in_sources == 0] = kinds
    kinds += 1
    origins = np.arange(len(batch)) * kinds
    wanted = _Grams.units(in_texts, np.repeat(origins.take(owners(batch)), texts.extents))
    found = _Grams.units(in_sources, np.repeat(origins, sources.extents))
    text = np.repeat(np.arange(len(texts.ends)), texts.extents)
    below = len(batch) * kinds
    counts = np.zeros((len(texts.ends), orders), np.intp)
    for n in range(orders):
        if n:
            if not len(wanted.numbers):
                break
            wanted, found = wanted.longer(in_texts, kinds), found.longer(in_sources, kinds)
            wanted, found = _numbered(wanted, found, numbers, below * kinds)
            below = len(wanted.numbers) + 1
        held = np.bincount(found.numbers, minlength=below)
        wanted = wanted.only(held.take(wanted.numbers) > 0)
        counts[:, n] = _clipped(wanted.numbers, held, text.take(wanted.ends), len(counts))
    return counts


def _numbered(
    wanted: _Grams, found: _Grams, numbers: GramNumbers, below: int
) -> tuple[_Grams, _Grams]:
    """Both with numbers for codes; of the second only what the first holds."""
    own, others = numbers.of(wanted.numbers, found.numbers, below=below)
    return wanted._replace(numbers=own), found._replace(numbers=others).only(others > 0)


def _clipped(numbered: Ints | Numbers, in_source: Ints, text: Ints, texts: int) -> Ints:
    """How many n-grams each of `texts` shares, none more often than it is `in_source`.

    Each n-gram is in the source, and belongs to a `text`.
    """
    counts = np.bincount(text, minlength=texts)
    # Only what stands more often in all texts than in the source can do so in one of them.
    often = np.bincount(numbered, minlength=len(in_source)) > in_source
    rare = np.flatnonzero(often.take(numbered))
    if len(rare):
        pairs = text.take(rare) * len(in_source) + numbered.take(rare)
        pairs, times = np.unique(pairs, return_counts=True)
        excess = np.maximum(times - in_source[pairs % len(in_source)], 0)
        counts -= np.bincount(pairs // len(in_source), excess, texts).astype(np.intp)
    return counts
