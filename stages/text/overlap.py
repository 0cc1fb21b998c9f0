"""Token overlap: how many tokens two texts share, each once or each as often as it occurs."""

from collections.abc import Sequence
from typing import NamedTuple

from claimflow.stages.text.comparison import Agreement, Comparison, Letters, agreement, lengths
from claimflow.stages.text.ngrams import shared_units


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
