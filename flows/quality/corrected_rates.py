"""Rates and means corrected for the errors of a judge, and the reliability of its probabilities."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from claimflow.flows.quality.agreement import (
    Z_975,
    IntervalEstimate,
    clipped_interval,
    proportion,
)
from claimflow.flows.quality.distributions import t_quantile_975

Values = NDArray[np.float64]

_BINS: Final = 10


class JudgedRows(NamedTuple):
    """Rows with the judge's value, 0 to 1, of which some were drawn and labelled.

    All arrays have the shape (rows,). `sample` numbers the sample of each row. `label` is the value
    that people gave and `probability` the row's inclusion probability, both NaN where a row was not
    drawn or has no label.
    """

    judged: Values
    sample: NDArray[np.intp]
    label: Values
    probability: Values

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Which rows were drawn and have a label."""
        return np.isfinite(self.label) & np.isfinite(self.probability)


def prediction_powered(rows: JudgedRows, *, by_sample: bool = False) -> IntervalEstimate:
    """The mean label of all rows, estimated from the judge's values and some labels.

    Prediction-powered inference (Angelopoulos et al. 2023): the judge's mean less its mean error
    on the labelled rows, with the weight of the judge tuned (PPI++, Angelopoulos, Duchi and Zrnic
    2023), for draws with unequal probabilities (Zrnic and Candès 2024). The mean is over all rows,
    or with `by_sample` over the means of the samples.

    The 95 % interval treats samples as clusters drawn at random, by Student's t with the number
    of labels. Where all values are 0 or 1, two pseudo-errors widen it, one in each direction (after
    Agresti and Coull 1998), since a judge that erred on no label may err on other rows. Clipped
    to 0 and 1. None below two labels or two samples.
    """
    sample = np.unique(rows.sample, return_inverse=True)[1]
    counts = np.bincount(sample).astype(np.float64)
    labelled, n = rows.labelled, int(rows.labelled.sum())
    if n < 2 or len(counts) < 2:
        return IntervalEstimate(None, None, None)
    weights = 1 / counts[sample] if by_sample else np.ones(len(sample))
    inverse = np.where(labelled, 1 / np.where(labelled, rows.probability, 1.0), 0.0)
    label = np.where(labelled, rows.label, 0.0)
    power = _tuned_power(label, rows.judged, weights**2 * inverse * (inverse - 1))
    error = label - power * rows.judged
    centre = float((weights * inverse * error).sum() / (weights * inverse).sum())
    pseudo_labels = power * rows.judged + inverse * (error - centre) + centre
    totals, sizes = np.bincount(sample, weights * pseudo_labels), np.bincount(sample, weights)
    mean = float(totals.sum() / sizes.sum())
    spread = len(counts) / (len(counts) - 1) * float(((totals - mean * sizes) ** 2).sum())
    variance = spread / float(sizes.sum()) ** 2
    if _is_binary(rows.judged) and _is_binary(label[labelled]):
        shares = weights * inverse / (weights * inverse).sum()
        variance += 2 * float((shares**2).sum()) ** 2 * (1 - n / len(sample))
    return clipped_interval(mean, t_quantile_975(n) * variance**0.5, 0, 1)


def rogan_gladen(
    rate: float, n: float, sensitivity: tuple[int, int], specificity: tuple[int, int]
) -> IntervalEstimate:
    """The true rate behind a judge's `rate` over `n` rows (Rogan and Gladen 1978).

    `sensitivity` is (true positives, positives) by the labels, `specificity` (true negatives,
    negatives). `n` may be an effective sample size. The 95 % interval is that of Lang and
    Reiczigel (2014), clipped to 0 and 1. None where the judge is no better than chance, or the
    labels are all positive or all negative.
    """
    nothing = IntervalEstimate(None, None, None)
    (true_positives, positives), (true_negatives, negatives) = sensitivity, specificity
    if not positives or not negatives or n <= 0:
        return nothing
    informedness = true_positives / positives + true_negatives / negatives - 1
    if informedness <= 0:
        return nothing
    value = (rate + true_negatives / negatives - 1) / informedness
    # Adjusted sensitivity, specificity and rate, as for an Agresti-Coull interval.
    se, sp = (true_positives + 1) / (positives + 2), (true_negatives + 1) / (negatives + 2)
    if se + sp <= 1:
        return nothing
    size = n + Z_975**2
    p = (n * rate + Z_975**2 / 2) / size
    true = min(1.0, max(0.0, (p + sp - 1) / (se + sp - 1)))
    var_se, var_sp = se * (1 - se) / (positives + 2), sp * (1 - sp) / (negatives + 2)
    shift = 2 * Z_975**2 * (true * var_se - (1 - true) * var_sp)
    variance = p * (1 - p) / size + true**2 * var_se + (1 - true) ** 2 * var_sp
    reach = Z_975 * variance**0.5 / (se + sp - 1)
    inside = min(1.0, max(0.0, value))
    low, high = max(0.0, true + shift - reach), min(1.0, true + shift + reach)
    return IntervalEstimate(inside, min(low, inside), max(high, inside))


def effective_sample_size(values: Values, sample: NDArray[np.intp]) -> float:
    """The number of independent rows that would give the mean of `values` as precisely.

    By the design effect of samples as clusters (Kish 1965); `values` are 0 or 1.
    """
    number = np.unique(sample, return_inverse=True)[1]
    sizes = np.bincount(number).astype(np.float64)
    n, rate = len(values), float(values.mean())
    if len(sizes) < 2 or rate in (0.0, 1.0):
        return float(len(sizes))
    errors = np.bincount(number, values) - rate * sizes
    variance = len(sizes) / (len(sizes) - 1) * float((errors**2).sum()) / n**2
    return min(float(n), rate * (1 - rate) / variance) if variance > 0 else float(n)


# The fields of these classes are keys of JSON documents.


class Bin(NamedTuple):
    """The `n` rows with a probability from `low` to `high`, their `mean` probability, and the
    share that people labelled entailed.
    """

    low: float
    high: float
    n: int
    mean: float
    entailed: IntervalEstimate


class Reliability(NamedTuple):
    """Probabilities of entailment compared with labels, in bins (a reliability diagram).

    `brier` is the mean squared error (Brier 1950), `off` the expected calibration error (Naeini,
    Cooper and Hauskrecht 2015): the distance of each bin's mean from its share, weighted by rows.
    """

    n: int
    brier: float
    off: float
    bins: list[Bin]


def reliability_diagram(
    probabilities: NDArray[np.float64], entailed: NDArray[np.bool_]
) -> Reliability | None:
    """Ten bins of equal width, empty ones left out; None where there are no rows."""
    if not len(probabilities):
        return None
    place = np.minimum((probabilities * _BINS).astype(np.intp), _BINS - 1)
    bins = [
        Bin(
            number / _BINS,
            (number + 1) / _BINS,
            int(inside.sum()),
            float(probabilities[inside].mean()),
            proportion(int(entailed[inside].sum()), int(inside.sum())),
        )
        for number in range(_BINS)
        if (inside := place == number).any()
    ]
    n = len(probabilities)
    off = sum(one.n * abs(one.mean - (one.entailed.value or 0.0)) for one in bins) / n
    brier = float(((probabilities - entailed) ** 2).mean())
    return Reliability(n, brier, off, bins)


def _tuned_power(label: Values, judged: Values, weights: Values) -> float:
    """The weight of the judge's values, 0 to 1, that minimizes the variance (PPI++)."""
    total = weights.sum()
    if total <= 0:
        return 1.0
    centred = judged - (weights * judged).sum() / total
    spread = float((weights * centred**2).sum())
    if spread <= 0:
        return 1.0
    return min(1.0, max(0.0, float((weights * centred * label).sum()) / spread))


def _is_binary(values: Values) -> bool:
    return bool(np.isin(values, (0.0, 1.0)).all())
