"""How many n-grams texts share with their sources, for many texts at once."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stages.text.comparison import Comparison, batches, owners
from stages.text.gram_numbers import GramNumbers
from stages.text.sequences import Ints, Sequences


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
    rank, in_source, alphabet = _ranks(texts, sources, orders)
    extents = texts.extents
    extents[-1] += orders
    numbered = np.repeat(owners(batch) * alphabet, extents) + rank
    origins = np.arange(len(sources.ends)) * alphabet
    found = np.repeat(origins, sources.extents) + in_source
    bound = len(origins) * alphabet
    within = inside = rank > 0
    counts = np.empty((len(texts.ends), orders), np.intp)
    for n in range(orders):
        if n:
            codes = numbered[:-1] * alphabet + rank[n:]
            sought = found[:-1] * alphabet + in_source[n:]
            numbered, found = numbers.of(codes, sought, below=bound * alphabet)
            bound = len(codes) + 1
            within = within[:-1] & inside[n:]
        counts[:, n] = _clipped(numbered, np.bincount(found, minlength=bound), within, texts)
    return counts


def _ranks(texts: Sequences, sources: Sequences, padding: int) -> tuple[Ints, Ints, int]:
    """The units of the texts numbered from 1 on, 0 for those that no text holds; how many."""
    used = np.flatnonzero(np.bincount(texts.units))
    ranks = np.zeros(max(texts.units.max(), sources.units.max()) + 1, np.intp)
    ranks[used] = np.arange(len(used))
    padded = np.concatenate([ranks.take(texts.units), np.zeros(padding, np.intp)])
    return padded, ranks.take(sources.units), len(used)


def _clipped(numbered: Ints, in_source: Ints, within: NDArray[np.bool], texts: Sequences) -> Ints:
    """Per text, how many of its n-grams the source holds, none more often than there."""
    held = in_source.take(numbered)
    hit = (held > 0) & within
    counts = np.add.reduceat(hit, texts.starts, dtype=np.intp)
    in_text = np.bincount(numbered, minlength=len(in_source)).take(numbered)
    # Only what stands more often in all texts than in the source can do so in one of them.
    rare = np.flatnonzero(hit & (held < in_text))
    if len(rare):
        text = np.searchsorted(texts.ends, rare)
        pairs, times = np.unique(text * len(in_source) + numbered[rare], return_counts=True)
        excess = np.maximum(times - in_source[pairs % len(in_source)], 0)
        counts -= np.bincount(pairs // len(in_source), excess, len(counts)).astype(np.intp)
    return counts
