"""Token overlap of texts with their sources: distinct and clipped."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from claimflow.stages.text.batches import (
    Comparison,
    Ints,
    Letters,
    Sequences,
    batches,
    lengths,
    owners,
    ranked,
)

# Precision, recall and F1 of texts against their sources, from counts of units.


Floats = NDArray[np.float64]


class Agreement(NamedTuple):
    """Precision is the share of a text found in its source, recall the reverse; in [0, 1]."""

    precision: Floats
    recall: Floats
    f1: Floats


def agreement(shared: ArrayLike, of_text: ArrayLike, of_source: ArrayLike) -> Agreement:
    """Of one text or of many: `shared` units of those in the text and in the source; 0/0 is 0."""
    precision, recall = _ratio(shared, of_text), _ratio(shared, of_source)
    return Agreement(precision, recall, 2 * _ratio(precision * recall, precision + recall))


def _ratio(part: ArrayLike, whole: ArrayLike) -> Floats:
    nothing = np.zeros(np.broadcast_shapes(np.shape(part), np.shape(whole)))
    return np.divide(part, whole, out=nothing, where=np.asarray(whole) != 0)


# How many units texts share with their sources, each once or as often as it occurs.


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


# Token overlap: how many tokens two texts share, each once or each as often as it occurs.


class Overlap(NamedTuple):
    """Tokens in common over the tokens of each side with repeats.

    `distinct` counts a common token once, so that a text that repeats itself scores below 1
    against itself; `clipped` counts it as often as it stands in both.
    """

    distinct: Agreement
    clipped: Agreement


def token_overlap(tokens: Sequence[str], source: Sequence[str]) -> Overlap:
    """Overlap of `tokens` with the tokens of a source."""
    letters = Letters()
    both = token_overlaps([Comparison([letters.spell(tokens)], letters.spell(source))])
    distinct, clipped = (Agreement(*(part[0] for part in parts)) for parts in both)
    return Overlap(distinct, clipped)


def token_overlaps(comparisons: Sequence[Comparison]) -> Overlap:
    """Overlap of every text of every comparison, in order; a letter is a token."""
    distinct, clipped = shared_units(comparisons)
    sizes = lengths(comparisons)
    return Overlap(agreement(distinct, *sizes), agreement(clipped, *sizes))
