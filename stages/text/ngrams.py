"""Units and n-grams that many texts share with their sources, for token overlap, BLEU and chrF.

All texts of a batch are counted at once, in NumPy arrays, which is faster than a
`collections.Counter` for each text.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from claimflow.stages.text.comparison import Comparison, Ints

Numbers = NDArray[np.int32]

_BATCH: Final = 65_536
_LARGEST_TABLE: Final = 1 << 22


def shared_ngrams(comparisons: Sequence[Comparison], *, orders: int) -> Ints:
    """n-grams in common, each as often as it stands in both, for n from 1 to `orders`.

    One row per text, in the order of the comparisons and of their texts; one column per n.
    Memory is proportional to the longest comparison.
    """
    numbering = _Numbering()
    counts = [_shared(batch, orders, numbering) for batch in _batches(comparisons)]
    return np.concatenate([np.empty((0, orders), np.intp), *counts])


class SharedUnits(NamedTuple):
    """Counts for every text: its distinct units that its source holds, and its clipped units."""

    distinct: Ints
    clipped: Ints


def shared_units(comparisons: Sequence[Comparison]) -> SharedUnits:
    """Units that texts share with their sources: each once, or as often as it stands in both.

    One number per text, in the order of the comparisons and of their texts. Memory is
    proportional to the longest comparison.
    """
    none = np.empty(0, np.intp)
    counts = [(none, none), *map(_shared_units, _batches(comparisons))]
    return SharedUnits(*map(np.concatenate, zip(*counts, strict=True)))


def _shared_units(batch: list[Comparison]) -> tuple[Ints, Ints]:
    """`shared_units` of one batch."""
    texts = _Strings.of([text for comparison in batch for text in comparison.texts])
    sources = _Strings.of([comparison.source for comparison in batch])
    in_texts, in_sources, kinds = _ranked(texts.units, sources.units)
    count = len(texts.extents)
    pairs = np.repeat(np.arange(count), texts.extents) * kinds + in_texts
    pairs, times = np.unique(pairs, return_counts=True)
    text, kind = np.divmod(pairs, kinds)
    owners = np.repeat(np.arange(len(batch)), [len(comparison.texts) for comparison in batch])
    source = np.repeat(np.arange(len(batch)), sources.extents)
    in_source = np.bincount(source * kinds + in_sources, minlength=len(batch) * kinds)
    # Kind 0 is the end of a string.
    held = np.where(kind > 0, in_source.take(owners.take(text) * kinds + kind), 0)
    return (
        np.bincount(text, held > 0, count).astype(np.intp),
        np.bincount(text, np.minimum(held, times), count).astype(np.intp),
    )


def _batches(comparisons: Sequence[Comparison]) -> Iterator[list[Comparison]]:
    """Comparisons of at most 65,536 characters together, or a longer one alone."""
    batch: list[Comparison] = []
    room = _BATCH
    for comparison in comparisons:
        if not comparison.texts:
            continue
        size = len(comparison.source) + sum(map(len, comparison.texts))
        if batch and size > room:
            yield batch
            batch, room = [], _BATCH
        batch.append(comparison)
        room -= size
    if batch:
        yield batch


class _Strings(NamedTuple):
    """The characters of strings in order, each as 1 or more, and a 0 behind every string.

    `extents` are the lengths of the strings, each with its zero.
    """

    units: Ints
    extents: Ints

    @classmethod
    def of(cls, texts: Sequence[str]) -> Self:
        """From strings, which may hold any character."""
        extents = np.array([len(text) + 1 for text in texts], np.intp)
        joined = "\n".join([*texts, ""]).encode("utf-32-le", "surrogatepass")
        units = np.frombuffer(joined, np.int32) + np.intp(1)
        units[np.cumsum(extents) - 1] = 0
        return cls(units, extents)


class _Ngrams(NamedTuple):
    """n-grams of strings: the number of each, and the place of its last unit."""

    numbers: Ints | Numbers
    ends: Ints

    @classmethod
    def unigrams(cls, units: Ints, origins: Ints) -> Self:
        """All units but the last, which ends the last string; numbered from `origins` on."""
        return cls((origins + units)[:-1], np.arange(len(units) - 1))

    def longer(self, units: Ints, kinds: int) -> Self:
        """With the unit behind each; numbered by its code, below `kinds` times the numbers."""
        ends = self.ends + 1
        return self._replace(numbers=self.numbers * np.intp(kinds) + units.take(ends), ends=ends)

    def only(self, kept: NDArray[np.bool]) -> Self:
        """Those that are kept."""
        places = np.flatnonzero(kept)
        return self._replace(numbers=self.numbers.take(places), ends=self.ends.take(places))


def _shared(batch: list[Comparison], orders: int, numbering: "_Numbering") -> Ints:
    """`shared_ngrams` of one batch.

    An n-gram that the other side lacks begins no longer one that both have, so it is dropped:
    each order looks only at what the order before kept on either side.
    """
    texts = _Strings.of([text for comparison in batch for text in comparison.texts])
    sources = _Strings.of([comparison.source for comparison in batch])
    in_texts, in_sources, kinds = _ranked(texts.units, sources.units)
    # In a source 0 is its end or a unit that no text holds. It must not equal the end of a text,
    # so it gets a number that no unit of a text has.
    in_sources[in_sources == 0] = kinds
    kinds += 1
    origins = np.arange(len(batch)) * kinds
    owners = np.repeat(origins, [len(comparison.texts) for comparison in batch])
    wanted = _Ngrams.unigrams(in_texts, np.repeat(owners, texts.extents))
    found = _Ngrams.unigrams(in_sources, np.repeat(origins, sources.extents))
    text = np.repeat(np.arange(len(owners)), texts.extents)
    below = len(batch) * kinds
    counts = np.zeros((len(owners), orders), np.intp)
    for n in range(orders):
        if n:
            if not len(wanted.numbers):
                break
            wanted, found = wanted.longer(in_texts, kinds), found.longer(in_sources, kinds)
            own, others = numbering.of(wanted.numbers, found.numbers, below=below * kinds)
            wanted = wanted._replace(numbers=own)
            found = found._replace(numbers=others).only(others > 0)
            below = len(wanted.numbers) + 1
        in_source = np.bincount(found.numbers, minlength=below)
        wanted = wanted.only(in_source.take(wanted.numbers) > 0)
        counts[:, n] = _clipped(wanted.numbers, in_source, text.take(wanted.ends), len(counts))
    return counts


def _ranked(texts: Ints, sources: Ints) -> tuple[Ints, Ints, int]:
    """The units of the texts numbered from 1 on, those of the sources alike; and how many.

    A unit that no text holds is 0, as is the end of every string.
    """
    used = np.flatnonzero(np.bincount(texts))
    ranks = np.zeros(max(texts.max(), sources.max()) + 1, np.intp)
    ranks[used] = np.arange(len(used))
    return ranks.take(texts), ranks.take(sources), len(used)


def _clipped(numbers: Ints | Numbers, in_source: Ints, text: Ints, texts: int) -> Ints:
    """For each of `texts` the n-grams shared, each counted at most as often as it is `in_source`.

    `numbers` are n-grams that are in the source; `text` has the text of each.
    """
    counts = np.bincount(text, minlength=texts)
    # Only an n-gram that all texts together have more often than the source can be in excess.
    often = np.bincount(numbers, minlength=len(in_source)) > in_source
    excess_of = np.flatnonzero(often.take(numbers))
    if len(excess_of):
        pairs = text.take(excess_of) * len(in_source) + numbers.take(excess_of)
        pairs, times = np.unique(pairs, return_counts=True)
        excess = np.maximum(times - in_source[pairs % len(in_source)], 0)
        counts -= np.bincount(pairs // len(in_source), excess, texts).astype(np.intp)
    return counts


class _Numbering:
    """Numbers for n-grams: equal n-grams of a text and of its source have the same number.

    The code of an n-gram is the number of its first n-1 units together with its last unit. It is
    a place in a table: the texts write numbers there, the sources read them, and the places are
    cleared afterwards. So nothing is hashed or sorted, unless the table would be large. The table
    is made once for all batches.
    """

    def __init__(self) -> None:
        self._table: Numbers = np.zeros(1 << 16, np.int32)

    def of(
        self, codes: Ints | Numbers, sought: Ints | Numbers, *, below: int
    ) -> tuple[Numbers, Numbers]:
        """Numbers of `codes`, one or more, and of those among `sought`; all are less than `below`.

        Numbers are from 1 to len(codes), and 0 for a sought code that is not there.
        """
        numbers = np.arange(1, len(codes) + 1, dtype=np.int32)
        if below > _LARGEST_TABLE:
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
