"""Statistics of paired differences: bootstrap interval, permutation test, Holm correction."""

import warnings
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

RESAMPLES: Final = 5_000

MAX_RESAMPLED_UNITS: Final = 1_000
"""The most units that are resampled; for more, the normal approximation agrees."""

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
    from scipy import stats

    t = float(stats.t.ppf(0.975, n - 1))
    reach = t * float((n / (n - 1) * (errors**2).sum()) ** 0.5 / sizes.sum())
    low, high = ratio - reach, ratio + reach
    if n <= MAX_RESAMPLED_UNITS:
        tail = float(stats.norm.cdf(-t * (n / (n - 1)) ** 0.5))
        bounds = _bootstrap(totals, sizes, 1 - 2 * tail)
        low, high = min([low, *bounds]), max([high, *bounds])
    return low, high


def _bootstrap(totals: Values, sizes: Values, confidence: float) -> list[float]:
    """The BCa bounds of the ratio; empty where they are not finite."""
    from scipy import stats

    with warnings.catch_warnings():
        # SciPy warns and gives NaN where its acceleration is 0 / 0, for few units.
        warnings.simplefilter("ignore", (RuntimeWarning, stats.DegenerateDataWarning))
        found = stats.bootstrap(
            (totals, sizes),
            lambda total, size, axis: total.sum(axis) / size.sum(axis),
            paired=True,
            vectorized=True,
            n_resamples=RESAMPLES,
            batch=500,
            confidence_level=confidence,
            method="BCa",
            rng=np.random.default_rng(0),
        ).confidence_interval
    return [float(bound) for bound in found if np.isfinite(bound)]


def sign_flip_p(totals: Values) -> float:
    """The two-sided p-value of the sign-flip permutation test of a mean of 0 (Fisher 1935).

    The signs of whole units are flipped: in all ways up to 13 units that differ from 0, else
    in 9,999 random ones; above 1,000 units the normal approximation is used. Units of 0 are left
    out, since flipping them does not change the sum.
    """
    moved = totals[np.abs(totals) >= ROUNDING]
    if len(moved) < 2:
        return 1.0
    from scipy import stats

    if len(moved) > MAX_RESAMPLED_UNITS:
        z = abs(float(moved.sum())) / float((moved**2).sum()) ** 0.5
        return float(2 * stats.norm.sf(z))
    tested = stats.permutation_test(
        (moved,),
        lambda sample, axis: sample.sum(axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=9_999,
        batch=1_000,
        rng=np.random.default_rng(0),
    )
    return float(tested.pvalue)


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
