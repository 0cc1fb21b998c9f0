"""How many units texts share with their sources, each once or as often as it occurs."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from claimflow.stages.text.comparison import Comparison, batches, owners
from claimflow.stages.text.sequences import Ints, Sequences, ranked


class SharedUnits(NamedTuple):
    """Counts for every text: units that its source holds, and those as often as in both."""

    distinct: Ints
    clipped: Ints


def shared_units(comparisons: Sequence[Comparison]) -> SharedUnits:
    """Of every text of every comparison, in order. Memory is that of the longest comparison."""
    none = np.empty(0, np.intp)
    counts = [SharedUnits(none, none), *map(_shared, batches(comparisons))]
    distinct, clipped = map(np.concatenate, zip(*counts, strict=True))
    return SharedUnits(distinct, clipped)


def _shared(batch: list[Comparison]) -> SharedUnits:
    texts = Sequences.of([text for comparison in batch for text in comparison.texts])
    sources = Sequences.of([comparison.source for comparison in batch])
    of_texts, of_sources, kinds = ranked(texts, sources)
    number = np.repeat(np.arange(len(texts.ends)), texts.extents)
    found, times = np.unique(number * kinds + of_texts, return_counts=True)
    text, kind = np.divmod(found, kinds)
    owner = np.repeat(np.arange(len(batch)), sources.extents)
    in_source = np.bincount(owner * kinds + of_sources, minlength=len(batch) * kinds)
    held = np.where(kind > 0, in_source.take(owners(batch).take(text) * kinds + kind), 0)
    return SharedUnits(
        np.bincount(text, held > 0, len(texts.ends)).astype(np.intp),
        np.bincount(text, np.minimum(held, times), len(texts.ends)).astype(np.intp),
    )
