"""95 % intervals of a mean."""

from functools import cache
from random import Random
from statistics import NormalDist, fmean, stdev
from typing import Final

import polars as pl

RESAMPLES: Final = 1_000
TAIL: Final = 25
"""Resampled means that lie outside the interval at either end: 2.5 %."""

BOOTSTRAP_UP_TO: Final = 1_000
"""Values up to which the bootstrap is run: above it agrees with the normal interval, and
it costs `RESAMPLES` draws per value, 10 ms CPU for 1,000 values."""

Z: Final = NormalDist().inv_cdf(0.975)


def mean_interval(values: pl.Series) -> tuple[float, float] | tuple[None, None]:
    """Bounds of the 95 % interval of the mean of `values`, which must be sorted.

    The percentile bootstrap (Efron 1979) with 1,000 resamples, for more than 1,000 values
    the normal interval with the standard error of the mean. The same values always give
    the same bounds. NULL below two values.
    """
    n = len(values)
    if n < 2:
        return None, None
    if n <= BOOTSTRAP_UP_TO:
        means = sorted(_resampled_means(values))
        return means[TAIL], means[-1 - TAIL]
    mean = fmean(values)
    reach = Z * stdev(values, mean) / n**0.5
    return mean - reach, mean + reach


def _resampled_means(values: pl.Series) -> pl.Series:
    n = len(values)
    drawn = n * RESAMPLES
    # Powers of 2, so that few lengths are drawn and kept; each begins like the next.
    picks = (_uniform(1 << (drawn - 1).bit_length()).head(drawn) * n).cast(pl.UInt32)
    return values.gather(picks).reshape((RESAMPLES, n)).arr.mean()


@cache
def _uniform(count: int) -> pl.Series:
    """Numbers in [0, 1), the same on every machine: Python keeps this generator's sequence."""
    random = Random(0).random
    return pl.Series([random() for _ in range(count)], dtype=pl.Float64)
