"""Whether a model that says 0.8 is right 8 times in 10."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from claimflow.flows.engine.calibration.figures import Figure, share

BINS: Final = 10


class Bin(NamedTuple):
    """The rows whose probability is in `low` to `high`: how many, its mean, what people said."""

    low: float
    high: float
    n: int
    mean: float
    entailed: Figure


class Reliability(NamedTuple):
    """Probabilities of entailed beside what people said; `brier` is their mean squared error
    (Brier 1950).

    `off` is the mean distance of the bins' means from the shares that are entailed, each bin
    counted by its rows (expected calibration error).
    """

    n: int
    brier: float
    off: float
    bins: list[Bin]


def reliability(
    probabilities: NDArray[np.float64], entailed: NDArray[np.bool_]
) -> Reliability | None:
    """Ten bins of equal width, those without rows left out; None where there are no rows."""
    if not len(probabilities):
        return None
    place = np.minimum((probabilities * BINS).astype(np.intp), BINS - 1)
    bins = [
        Bin(
            number / BINS,
            (number + 1) / BINS,
            int(inside.sum()),
            float(probabilities[inside].mean()),
            share(int(entailed[inside].sum()), int(inside.sum())),
        )
        for number in range(BINS)
        if (inside := place == number).any()
    ]
    n = len(probabilities)
    off = sum(one.n * abs(one.mean - (one.entailed.value or 0.0)) for one in bins) / n
    brier = float(((probabilities - entailed) ** 2).mean())
    return Reliability(n, brier, off, bins)
