"""Whether a metric and people put samples in the same order."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from flows.engine.calibration.figures import Figure


class Ranks(NamedTuple):
    """Spearman's rho and Kendall's tau-b of scores and ratings of `n` samples."""

    n: int
    spearman: Figure
    kendall: Figure


def ranks(ratings: Sequence[float], scores: Sequence[float]) -> Ranks:
    """The two correlations; None where either side is all alike, or below three samples.

    Intervals by Fisher's transformation, with the standard errors of Bonett and Wright (2000)
    for rho and of Fieller, Hartley and Pearson (1957) for tau; none below five samples.
    """
    from scipy import stats

    n = len(ratings)
    if n < 3 or not np.ptp(ratings) or not np.ptp(scores):
        nothing = Figure(None, None, None)
        return Ranks(n, nothing, nothing)
    rho = float(stats.spearmanr(ratings, scores).statistic)
    tau = float(stats.kendalltau(ratings, scores).statistic)
    wide = n >= 5
    return Ranks(
        n,
        _between(rho, ((1 + rho**2 / 2) / (n - 3)) ** 0.5 if wide else None),
        _between(tau, (0.437 / (n - 4)) ** 0.5 if wide else None),
    )


def _between(value: float, error: float | None) -> Figure:
    if error is None:
        return Figure(value, None, None)
    inside = min(1 - 1e-12, max(-1 + 1e-12, value))
    middle, reach = math.atanh(inside), 1.959963984540054 * error
    return Figure(value, math.tanh(middle - reach), math.tanh(middle + reach))
