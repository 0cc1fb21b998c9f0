"""Statistics of paired differences: bootstrap interval, permutation test, Holm correction."""

from collections.abc import Sequence
from itertools import product
from statistics import NormalDist
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from claimflow.flows.quality.distributions import normal_tail, t_quantile_975

Values = NDArray[np.float64]

RESAMPLES: Final = 5_000

MAX_RESAMPLED_UNITS: Final = 1_000
"""The most units that are resampled; for more, the normal approximation agrees."""

_BATCH: Final = 500
"""Resamples that are drawn at once, to bound the memory."""

_FLIPPED_IN_ALL_WAYS: Final = 13
"""The most units whose signs are flipped in all ways, 8,192 of them."""

_FLIPS: Final = 9_999

ROUNDING: Final = 1e-12
"""How far equal scores can differ by rounding."""


class PairedDifference(NamedTuple):
    """The mean of paired differences with its 95 % interval and p-value.

    `p` tests that the mean is 0. `low`, `high` and `p` are None below two units.
    """

    samples: int
    units: int
    mean: float
    low: float | None
    high: float | None
    p: float | None

    @property
    def unchanged(self) -> bool:
        """Whether every difference is 0."""
        return self.p is not None and self.low == self.high == 0


def paired_difference(
    differences: Values, units: Sequence[str] | NDArray[np.str_] | None = None
) -> PairedDifference:
    """The mean of `differences`, one for each sample, at least one.

    `units` names the unit (cluster) of each sample; None makes every sample its own.
    """
    flat = np.where(np.abs(differences) < ROUNDING, 0.0, differences)
    if units is None:
        totals, sizes = flat, np.ones(len(flat))
    else:
        _, places = np.unique(np.asarray(units), return_inverse=True)
        totals, sizes = np.bincount(places, flat), np.bincount(places).astype(np.float64)
    low, high = ratio_interval(totals, sizes)
    p = sign_flip_p(totals) if len(totals) > 1 else None
    return PairedDifference(len(flat), len(totals), float(flat.mean()), low, high, p)


def ratio_interval(totals: Values, sizes: Values) -> tuple[float, float] | tuple[None, None]:
    """Bounds of the 95 % interval of sum(totals) / sum(sizes) over units drawn at random.

    At each end the wider of two: Student's t with the linearised standard error of a ratio
    (Cochran 1977, 6.4), which is right for symmetric differences that are mostly 0 but too
    narrow for skewed ones, and the paired bootstrap (BCa, Efron 1987), expanded for few units
    (Hesterberg 2015), which is the other way round. Above 1,000 units only the former. Where all
    units have the same ratio, the interval is that one number: they do not tell how far others
    would lie. None below two units. The same input always gives the same bounds.
    """
    n = len(totals)
    if n < 2:
        return None, None
    ratio = float(totals.sum() / sizes.sum())
    errors = totals - ratio * sizes
    if np.abs(errors).max() < ROUNDING:
        return ratio, ratio
    t = t_quantile_975(n)
    reach = t * float((n / (n - 1) * (errors**2).sum()) ** 0.5 / sizes.sum())
    low, high = ratio - reach, ratio + reach
    if n <= MAX_RESAMPLED_UNITS:
        bounds = _bootstrap(totals, sizes, normal_tail(t * (n / (n - 1)) ** 0.5))
        low, high = min([low, *bounds]), max([high, *bounds])
    return low, high


def _bootstrap(totals: Values, sizes: Values, tail: float) -> list[float]:
    """The BCa bounds of the ratio (Efron 1987) with the share `tail` outside at each end.

    Empty where they are undefined: all resamples are on one side, or all units weigh the same.
    """
    n, ratio = len(totals), totals.sum() / sizes.sum()
    random = np.random.default_rng(0)
    drawn = (random.integers(0, n, (_BATCH, n)) for _ in range(RESAMPLES // _BATCH))
    ratios = np.concatenate([totals[of].sum(axis=1) / sizes[of].sum(axis=1) for of in drawn])
    below = float((np.mean(ratios < ratio) + np.mean(ratios <= ratio)) / 2)
    # The jackknife: the ratio without each unit.
    without = (totals.sum() - totals) / (sizes.sum() - sizes)
    moved = without.mean() - without
    spread = float((moved**2).sum()) ** 1.5
    if not 0 < below < 1 or spread == 0:
        return []
    normal = NormalDist()
    bias, acceleration = normal.inv_cdf(below), float((moved**3).sum()) / (6 * spread)
    shares = []
    for z in (normal.inv_cdf(tail), -normal.inv_cdf(tail)):
        shifted = bias + z
        shares.append(normal.cdf(bias + shifted / (1 - acceleration * shifted)))
    return [float(bound) for bound in np.quantile(ratios, shares)]


def sign_flip_p(totals: Values) -> float:
    """The two-sided p-value of the sign-flip permutation test of a mean of 0 (Fisher 1935).

    The signs of whole units are flipped: in all ways up to 13 units that differ from 0, else
    in 9,999 random ones; above 1,000 units the normal approximation is used. Units of 0 are left
    out, since flipping them does not change the sum.
    """
    moved = totals[np.abs(totals) >= ROUNDING]
    if len(moved) < 2:
        return 1.0
    total = float(moved.sum())
    if len(moved) > MAX_RESAMPLED_UNITS:
        return 2 * normal_tail(abs(total) / float((moved**2).sum()) ** 0.5)
    if len(moved) <= _FLIPPED_IN_ALL_WAYS:
        signs, extra = np.array(list(product((1.0, -1.0), repeat=len(moved)))), 0
    else:
        random = np.random.default_rng(0)
        # The observed signs are one more of the flips (Phipson and Smyth 2010).
        signs, extra = random.choice((1.0, -1.0), (_FLIPS, len(moved))), 1
    sums, same = signs @ moved, ROUNDING * float(np.abs(moved).sum())
    rarer = min(int((sums <= total + same).sum()), int((sums >= total - same).sum()))
    return min(1.0, 2 * (rarer + extra) / (len(sums) + extra))


def holm_correction(p_values: Sequence[float | None]) -> list[float | None]:
    """p-values corrected for multiple tests (Holm 1979); None stays and is not counted.

    Controls the family-wise error rate under any dependence of the tests, such as that of metrics
    of the same claims. The procedure of Benjamini and Hochberg would bound only the share of
    false discoveries, and only for independent or positively dependent tests.
    """
    known = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, place) in enumerate(known):
        highest = max(highest, min(1.0, p * (len(known) - rank)))
        corrected[place] = highest
    return corrected
