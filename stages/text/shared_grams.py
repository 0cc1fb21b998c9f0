"""How many n-grams texts share with their sources, for many texts at once."""

from collections.abc import Sequence

import numpy as np

from stages.text.comparison import Comparison, batches, owners
from stages.text.gram_numbers import GramNumbers
from stages.text.sequences import Ints, Sequences, ranked


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
    rank, in_source, kinds = ranked(texts, sources)
    origins = np.arange(len(batch)) * kinds
    numbered = np.repeat(origins.take(owners(batch)), texts.extents) + rank
    found = np.repeat(origins, sources.extents) + in_source
    bound = len(batch) * kinds
    inside = rank > 0
    within = inside.copy()
    counts = np.empty((len(texts.ends), orders), np.intp)
    for n in range(orders):
        if n:
            # What begins behind the last n-gram is not within, whatever its code.
            numbered *= kinds
            numbered[:-n] += rank[n:]
            found *= kinds
            found[:-n] += in_source[n:]
            within[:-n] &= inside[n:]
            within[-n:] = False
            numbered, found = numbers.of(numbered, within, found, below=bound * kinds)
            bound = len(numbered) + 1
        held = np.bincount(found, minlength=bound)
        held[0 if n else origins] = 0
        counts[:, n] = _clipped(numbered, held, texts)
    return counts


def _clipped(numbered: Ints, in_source: Ints, texts: Sequences) -> Ints:
    """Per text, how many of its n-grams the source holds, none more often than there."""
    held = in_source.take(numbered)
    hit = held > 0
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
