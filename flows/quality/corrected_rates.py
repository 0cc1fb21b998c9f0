"""Rates and means corrected for the errors of a judge."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from claimflow.flows.quality.agreement import Figure, Z, clipped, share, student

# A judge's rate or mean with the judge's errors taken into account, by labels on a part.


Values = NDArray[np.float64]


class Judged(NamedTuple):
    """Rows that a judge gave a value from 0 to 1, of which some were drawn and labelled.

    `said` is the judge's value, `sample` the number of the sample that a row is of. `label` is
    the value that people gave and `probability` that of the row to be drawn, both NaN where
    there is none.
    """

    said: Values
    sample: NDArray[np.intp]
    label: Values
    probability: Values

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Which rows were drawn and have a label."""
        return np.isfinite(self.label) & np.isfinite(self.probability)


def prediction_powered(rows: Judged, *, by_sample: bool = False) -> Figure:
    """The mean of what people would say of all rows: the judge's mean, less its mean error.

    Prediction-powered inference (Angelopoulos et al. 2023), the judge weighed as it helps
    (PPI++, Angelopoulos, Duchi and Zrnic 2023), for draws with unequal probabilities (Zrnic
    and Candès 2024). Of the pooled rows, or with `by_sample` of the means of samples. The
    interval is that of samples drawn at random, each with all its rows, at 95 % by Student's t
    with as many labels; where values are 0 or 1 two made-up errors widen it, one in each
    direction (after Agresti and Coull 1998), since a judge that erred on no label may err on
    others. Clipped to 0 and 1. None below two labels or samples.
    """
    sample = np.unique(rows.sample, return_inverse=True)[1]
    counts = np.bincount(sample).astype(np.float64)
    labelled, n = rows.labelled, int(rows.labelled.sum())
    if n < 2 or len(counts) < 2:
        return Figure(None, None, None)
    weights = 1 / counts[sample] if by_sample else np.ones(len(sample))
    times = np.where(labelled, 1 / np.where(labelled, rows.probability, 1.0), 0.0)
    label = np.where(labelled, rows.label, 0.0)
    power = _power(label, rows.said, weights**2 * times * (times - 1))
    error = label - power * rows.said
    centre = float((weights * times * error).sum() / (weights * times).sum())
    pseudo = power * rows.said + times * (error - centre) + centre
    totals, sizes = np.bincount(sample, weights * pseudo), np.bincount(sample, weights)
    mean = float(totals.sum() / sizes.sum())
    spread = len(counts) / (len(counts) - 1) * float(((totals - mean * sizes) ** 2).sum())
    variance = spread / float(sizes.sum()) ** 2
    if _binary(rows.said) and _binary(label[labelled]):
        shares = weights * times / (weights * times).sum()
        variance += 2 * float((shares**2).sum()) ** 2 * (1 - n / len(sample))
    return clipped(mean, student(n) * variance**0.5, 0, 1)


def _power(label: Values, said: Values, weights: Values) -> float:
    """How much of the judge's word to take, 0 to 1: where its errors spread the estimate least."""
    total = weights.sum()
    if total <= 0:
        return 1.0
    off = said - (weights * said).sum() / total
    spread = float((weights * off**2).sum())
    return min(1.0, max(0.0, float((weights * off * label).sum()) / spread)) if spread > 0 else 1.0


def rogan_gladen(rate: float, n: float, right: tuple[int, int], clear: tuple[int, int]) -> Figure:
    """The true rate behind a judge's `rate` over `n` rows (Rogan and Gladen 1978).

    `right` is (how many it said yes to, of how many that people said yes to), `clear` (no, of
    how many no). The interval is that of Lang and Reiczigel (2014) at 95 %, clipped to 0 and 1;
    `n` may be an effective number, where rows of one sample hang together. None where the judge
    is no better than chance, or people said only yes or only no.
    """
    nothing = Figure(None, None, None)
    if not right[1] or not clear[1] or n <= 0:
        return nothing
    sensitivity, specificity = right[0] / right[1], clear[0] / clear[1]
    if sensitivity + specificity <= 1:
        return nothing
    value = (rate + specificity - 1) / (sensitivity + specificity - 1)
    a, b = (right[0] + 1) / (right[1] + 2), (clear[0] + 1) / (clear[1] + 2)
    if a + b <= 1:
        return nothing
    size = n + Z**2
    p = (n * rate + Z**2 / 2) / size
    true = min(1.0, max(0.0, (p + b - 1) / (a + b - 1)))
    spread_a, spread_b = a * (1 - a) / (right[1] + 2), b * (1 - b) / (clear[1] + 2)
    shift = 2 * Z**2 * (true * spread_a - (1 - true) * spread_b)
    spread = p * (1 - p) / size + true**2 * spread_a + (1 - true) ** 2 * spread_b
    reach = Z * spread**0.5 / (a + b - 1)
    inside = min(1.0, max(0.0, value))
    low, high = max(0.0, true + shift - reach), min(1.0, true + shift + reach)
    return Figure(inside, min(low, inside), max(high, inside))


def effective_number(said: Values, sample: NDArray[np.intp]) -> float:
    """How many independent rows would tell the rate of `said` as well (Kish 1965)."""
    number = np.unique(sample, return_inverse=True)[1]
    sizes = np.bincount(number).astype(np.float64)
    n, rate = len(said), float(said.mean())
    if len(sizes) < 2 or rate in (0.0, 1.0):
        return float(len(sizes))
    errors = np.bincount(number, said) - rate * sizes
    variance = len(sizes) / (len(sizes) - 1) * float((errors**2).sum()) / n**2
    return min(float(n), rate * (1 - rate) / variance) if variance > 0 else float(n)


def _binary(values: Values) -> bool:
    return bool(np.isin(values, (0.0, 1.0)).all())


# Whether a model that says 0.8 is right 8 times in 10.


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
