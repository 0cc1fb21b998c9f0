"""Whether a judge has moved by more than chance."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

LEVEL: Final = 0.01
"""The chance of calling a judge moved that has not, of each of the two tests."""


class Moved(NamedTuple):
    """Verdicts of one judge on the same canaries, before and now.

    Of `both` that have a verdict twice `were_right` and `are_right` had their label; `lost` were
    right and are not, `gained` are right and were not, `flipped` are other ones at all. `p` is
    the chance of so uneven a `lost` and `gained` if the judge had not moved.
    """

    both: int
    were_right: int
    are_right: int
    lost: int
    gained: int
    flipped: int
    p: float

    @property
    def beyond_chance(self) -> bool:
        """Whether agreement with the labels is another one than before."""
        return self.p < LEVEL


class Restless(NamedTuple):
    """How often a judge that was asked anew did not say of a canary what it usually says.

    Of canaries asked anew in this run, `of` had been asked twice before or more often, and of
    those `unusual` got another verdict than their most frequent one; `expected` would have by
    what was said before. `p` is the chance of so many if this run were like any before it.
    """

    unusual: int
    of: int
    expected: float
    p: float

    @property
    def beyond_chance(self) -> bool:
        """Whether it says otherwise of more canaries than it used to."""
        return self.p < LEVEL


def moved(pairs: list[tuple[str, str, str]]) -> Moved:
    """Of (label, verdict before, verdict now) of each canary; the exact test of McNemar 1947.

    Two-sided, on the canaries that were right in one of the two alone.
    """
    were = sum(before == label for label, before, _ in pairs)
    are = sum(now == label for label, _, now in pairs)
    lost = sum(before == label != now for label, before, now in pairs)
    gained = sum(now == label != before for label, before, now in pairs)
    flipped = sum(before != now for _, before, now in pairs)
    return Moved(len(pairs), were, are, lost, gained, flipped, _mcnemar(lost, gained))


def restless(asked: Iterable[tuple[str, Sequence[str]]]) -> Restless:
    """Of (verdict now, verdicts before) of each canary that was asked anew.

    An exact permutation test, one-sided, with each canary a stratum of its own: had the judge
    not changed, any of the verdicts on a canary might have been the one given now. So a canary
    that is always in doubt counts for no more than its doubt, however often it was asked.
    """
    chances, unusual = [], 0
    for now, before in asked:
        if len(before) < 2:
            continue
        counts = Counter([now, *before])
        most = max(counts.values())
        chances.append(sum(n for n in counts.values() if n < most) / counts.total())
        unusual += counts[now] < most
    return Restless(unusual, len(chances), sum(chances), _at_least(unusual, chances))


def _at_least(least: int, chances: Sequence[float]) -> float:
    """The chance that so many of independent events happen, each with a chance of its own."""
    happen = np.ones(1)
    for chance in chances:
        happen = np.convolve(happen, [1 - chance, chance])
    return min(1.0, float(happen[least:].sum()))


def _mcnemar(lost: int, gained: int) -> float:
    if lost == gained:
        return 1.0
    # Takes a while to import, and most judges stay as they are.
    from scipy.stats import binomtest

    return float(binomtest(lost, lost + gained).pvalue)
