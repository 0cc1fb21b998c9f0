"""Paired differences: interval, test, correction for many tests."""

import warnings
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

RESAMPLES: Final = 5_000

BOOTSTRAP_UP_TO: Final = 1_000
"""Units up to which the bootstrap is run and signs are drawn: above, the normal agrees."""

ROUNDING: Final = 1e-12
"""What rounding can make of equal scores."""


class Difference(NamedTuple):
    """The mean of paired differences, and what is known of it.

    `low` and `high` bound its 95 % interval, `p` is that of the test that it is 0; all three
    are None below two units.
    """

    samples: int
    units: int
    mean: float
    low: float | None
    high: float | None
    p: float | None

    @property
    def still(self) -> bool:
        """Whether no unit moved at all."""
        return self.p is not None and self.low == self.high == 0


def paired_difference(
    differences: Values, units: Sequence[str] | NDArray[np.str_] | None = None
) -> Difference:
    """The mean of `differences`, one for each sample, of which there must be one.

    `units` names the unit that each sample is of; every sample is its own where it is None.
    """
    flat = np.where(np.abs(differences) < ROUNDING, 0.0, differences)
    if units is None:
        totals, sizes = flat, np.ones(len(flat))
    else:
        _, places = np.unique(np.asarray(units), return_inverse=True)
        totals, sizes = np.bincount(places, flat), np.bincount(places).astype(np.float64)
    low, high = ratio_interval(totals, sizes)
    p = sign_flip_p(totals) if len(totals) > 1 else None
    return Difference(len(flat), len(totals), float(flat.mean()), low, high, p)


def ratio_interval(totals: Values, sizes: Values) -> tuple[float, float] | tuple[None, None]:
    """Bounds of the 95 % interval of sum(totals) / sum(sizes) over units drawn at random.

    At each end the wider of two: Student's t with the linearised standard error of a ratio
    (Cochran 1977, 6.4), which holds where differences are symmetric and mostly 0 but errs on
    skewed ones, and the bootstrap (BCa, Efron 1987) with tails as light as few units need
    (Hesterberg 2015), which is the other way round. Above 1,000 units the former alone.
    Where all units agree the interval is that one number: nothing in them says how far
    others would lie. None below two units. The same numbers always give the same bounds.
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
    if n <= BOOTSTRAP_UP_TO:
        tail = float(stats.norm.cdf(-t * (n / (n - 1)) ** 0.5))
        bounds = _bootstrap(totals, sizes, 1 - 2 * tail)
        low, high = min([low, *bounds]), max([high, *bounds])
    return low, high


def _bootstrap(totals: Values, sizes: Values, confidence: float) -> list[float]:
    """The bounds that the bootstrap gives; none where its resamples are all alike."""
    from scipy import stats

    with warnings.catch_warnings():
        # Of so few units that its acceleration is 0 / 0 it says so, and gives NaN.
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
    """p of the two-sided test that units are as likely to lie below 0 as above (Fisher 1935).

    The signs of whole units are flipped: in all ways up to 13 units that differ from 0, else
    in 9,999 random ones. Units of 0 have no sign and leave the sum as it is. Above 1,000
    units the normal distribution takes the place of the drawing.
    """
    moved = totals[np.abs(totals) >= ROUNDING]
    if len(moved) < 2:
        return 1.0
    from scipy import stats

    if len(moved) > BOOTSTRAP_UP_TO:
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


def holm(values: Sequence[float | None]) -> list[float | None]:
    """`values` of p corrected for how many they are (Holm 1979); None stays and is not counted.

    With them the chance that any difference is taken for one where all are chance is at most
    5 %, however the tests depend on each other, as those of metrics of the same claims do.
    Benjamini and Hochberg's bounds only the share of such mistakes, of tests that go together.
    """
    known = sorted((p, place) for place, p in enumerate(values) if p is not None)
    corrected: list[float | None] = [None] * len(values)
    highest = 0.0
    for rank, (p, place) in enumerate(known):
        highest = max(highest, min(1.0, p * (len(known) - rank)))
        corrected[place] = highest
    return corrected
