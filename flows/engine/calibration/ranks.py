"""Whether a metric and people put samples in the same order."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from claimflow.flows.engine.calibration.figures import Figure, Z


class Ranks(NamedTuple):
    """Spearman's rho and Kendall's tau-b of scores and ratings of `n` samples."""

    n: int
    spearman: Figure
    kendall: Figure


def ranks(ratings: Sequence[float], scores: Sequence[float]) -> Ranks:
    """The two correlations; None where either side is all alike, or below three samples.

    Intervals by Fisher's transformation, with the standard errors of Bonett and Wright (2000)
    for rho and of Fieller, Hartley and Pearson (1957) for tau; none below five samples. Where
    the order is the same, or the opposite, as if two neighbours in it had changed places.
    """
    from scipy import stats

    n = len(ratings)
    if n < 3 or not np.ptp(ratings) or not np.ptp(scores):
        nothing = Figure(None, None, None)
        return Ranks(n, nothing, nothing)
    rho = float(stats.spearmanr(ratings, scores).statistic)
    tau = float(stats.kendalltau(ratings, scores).statistic)
    if n < 5:
        return Ranks(n, Figure(rho, None, None), Figure(tau, None, None))
    return Ranks(
        n,
        _between(rho, ((1 + rho**2 / 2) / (n - 3)) ** 0.5, 1 - 12 / (n * (n**2 - 1))),
        _between(tau, (0.437 / (n - 4)) ** 0.5, 1 - 4 / (n * (n - 1))),
    )


def _between(value: float, error: float, nearest: float) -> Figure:
    """`value` with its interval, which is that of no more than `nearest` to 1 or -1."""
    middle, reach = math.atanh(min(nearest, max(-nearest, value))), Z * error
    low, high = math.tanh(middle - reach), math.tanh(middle + reach)
    return Figure(value, min(low, value), max(high, value))
