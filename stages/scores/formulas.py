"""Formulas of scores as Polars expressions, and confidence intervals of means.

NULL means undefined: there is nothing to divide by.
"""

from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import Annotated, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

Beta = Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)]
"""Weight of recall against precision in F-beta: 1 is even, 0 is precision alone."""


def share(part: pl.Expr, whole: pl.Expr) -> pl.Expr:
    """`part / whole`; undefined when the whole is 0."""
    return pl.when(whole > 0).then(part / whole)


def fbeta(precision: pl.Expr, recall: pl.Expr, beta: float) -> pl.Expr:
    """F-beta of precision and recall, van Rijsbergen 1979.

    Undefined when both are; an undefined one counts as 0 beside a defined one. The order
    of the operations is fixed, since other orders round otherwise in the last digit.
    """
    p, r = precision.fill_null(0.0), recall.fill_null(0.0)
    divisor = (beta**2 * p) + r
    f = pl.when(divisor > 0).then(((1 + beta**2) * (p * r)) / divisor).otherwise(0.0)
    return pl.when(precision.is_not_null() | recall.is_not_null()).then(f)


def passes(score: pl.Expr, threshold: float | None) -> pl.Expr:
    """1.0 where the score reaches the threshold and 0.0 below it; without one the score."""
    return score if threshold is None else (score >= threshold).cast(pl.Float64)


def weighted_mean(one: pl.Expr, other: pl.Expr, weights: tuple[float, float]) -> pl.Expr:
    """Mean of two by weights that need not sum to 1; one of weight 0 may be undefined."""
    w_one, w_other = weights
    first = one if w_one else pl.lit(0.0)
    second = other if w_other else pl.lit(0.0)
    return (w_one * first + w_other * second) / (w_one + w_other)


RESAMPLES: Final = 1_000

BOOTSTRAP_UP_TO: Final = 1_000
"""The most values for which the bootstrap is run: with more it agrees with the normal interval,
and it costs `RESAMPLES` draws per value, 1 ms CPU for 1,000 values."""

Z: Final = NormalDist().inv_cdf(0.975)


def mean_interval(values: NDArray[np.float64]) -> tuple[float, float] | tuple[None, None]:
    """Bounds of the 95 % interval of the mean of `values`, which must be sorted.

    When every value is 0 or 1, the score interval of a proportion (Wilson 1927): of 20 ones in
    20 it says that the share is above 0.83, while every resample of ones is all ones. For
    other values the percentile bootstrap (Efron 1979) with 1,000 resamples, its interval widened
    for few values (Hesterberg 2015), and above 1,000 values the normal interval with the standard
    error of the mean. In simulations of shares and of skewed values the intervals contain the
    true mean at least 92 times in 100 from 10 values on, with 5 values 87 times. The same
    values always give the same bounds. (None, None) below two values.
    """
    n = len(values)
    if n < 2:
        return None, None
    if bool(np.all((values == 0) | (values == 1))):
        return wilson(int(values.sum()), n)
    if n <= BOOTSTRAP_UP_TO:
        means = np.sort(values.take(_picks(n), mode="clip").mean(axis=1))
        tail = _tail(n)
        return float(means[tail]), float(means[-1 - tail])
    mean, reach = float(values.mean()), Z * float(values.std(ddof=1)) / n**0.5
    return mean - reach, mean + reach


def clustered_mean_interval(
    values: NDArray[np.float64], clusters: Sequence[str] | NDArray[np.str_]
) -> tuple[float, float] | tuple[None, None]:
    """Bounds of the 95 % interval of the mean of `values`, which come in clusters.

    `clusters` names the cluster of each value, such as its conversation: what is said in one is
    alike, and ten turns of one tell less than ten of ten. Where no cluster has two values the
    bounds are those of `mean_interval`. Otherwise whole clusters are resampled (pairs cluster
    bootstrap, Cameron, Gelbach and Miller 2008), 1,000 times and widened for few clusters as there,
    and above 1,000 clusters it is the normal interval with the cluster-robust standard error
    (Liang and Zeger 1986). When every value is 0 or 1, it is the score interval of as many values
    as would be as precise without clusters, fewer for few clusters (Korn and Graubard 1998), and
    neither end says more than as many ones, or zeros, as there are clusters would.
    The same values always give the same bounds, in any order and whatever the clusters are called.
    (None, None) below two clusters.
    """
    # As objects: an array of texts is as wide as the longest for each of them.
    _, places = np.unique(np.asarray(clusters, dtype=object), return_inverse=True)
    sizes = np.bincount(places).astype(np.float64)
    order = np.argsort(values, kind="stable")
    if sizes.max(initial=0) <= 1:
        return mean_interval(values[order])
    groups, n = len(sizes), len(values)
    if groups < 2:
        return None, None
    totals = np.bincount(places[order], values[order])
    rank = np.lexsort((sizes, totals))
    totals, sizes = totals[rank], sizes[rank]
    mean = float(totals.sum()) / n
    variance = groups / (groups - 1) * float(((totals - mean * sizes) ** 2).sum()) / n**2
    if bool(np.all((values == 0) | (values == 1))):
        alone = mean * (1 - mean) / n
        effective = n * alone / max(alone, variance) if alone else groups
        effective *= (Z / _t(groups)) ** 2 if alone else 1.0
        low, high = wilson(mean * effective, effective)
        return min(low, wilson(groups, groups)[0]), max(high, wilson(0, groups)[1])
    if groups <= BOOTSTRAP_UP_TO:
        picks = _picks(groups)
        sums = (part.take(picks, mode="clip").sum(axis=1) for part in (totals, sizes))
        means, tail = np.sort(next(sums) / next(sums)), _tail(groups)
        return float(means[tail]), float(means[-1 - tail])
    reach = Z * variance**0.5
    return mean - reach, mean + reach


def wilson(ones: float, n: float) -> tuple[float, float]:
    """Bounds of the 95 % score interval of a proportion, `ones` of `n` (Wilson 1927)."""
    share, square = ones / n, Z**2 / n
    middle = (share + square / 2) / (1 + square)
    reach = (square * (share * (1 - share) + square / 4)) ** 0.5 / (1 + square)
    # When all values are equal one bound is that value exactly, in spite of rounding.
    return (middle - reach if ones else 0.0), (middle + reach if ones < n else 1.0)


def _tail(n: int) -> int:
    """The number of resampled means outside the interval at either end: 2.5 % for many values.

    With few values it is less, because resamples then vary too little: by (n - 1) / n, and as the
    normal distribution does compared with Student's t.
    """
    return round(RESAMPLES * NormalDist().cdf(-_t(n) * (n / (n - 1)) ** 0.5))


def _t(n: int) -> float:
    """The 97.5 % quantile of Student's t for `n` values (Abramowitz and Stegun 1964, 26.7.5)."""
    powers = Z ** np.arange(8)
    terms = (
        powers[3] + powers[1],
        5 * powers[5] + 16 * powers[3] + 3 * powers[1],
        3 * powers[7] + 19 * powers[5] + 17 * powers[3] - 15 * powers[1],
    )
    divisors = (4 * (n - 1), 96 * (n - 1) ** 2, 384 * (n - 1) ** 3)
    return float(Z + sum(term / divisor for term, divisor in zip(terms, divisors, strict=True)))


@lru_cache(maxsize=1)
def _picks(n: int) -> NDArray[np.intp]:
    """The indices of the `n` values in each resample, one resample a row."""
    drawn = (_draws()[: n * RESAMPLES] * np.uint64(n)) >> np.uint64(32)
    return drawn.astype(np.intp).reshape(RESAMPLES, n)


@lru_cache(maxsize=1)
def _draws() -> NDArray[np.uint64]:
    """32-bit numbers, the same on every machine.

    numpy guarantees the raw stream of a bit generator, but not the numbers that its
    distributions draw from it (NEP 19).
    """
    raw = np.random.PCG64(0).random_raw(BOOTSTRAP_UP_TO * RESAMPLES // 2)
    return raw.astype("<u8").view("<u4").astype(np.uint64)
