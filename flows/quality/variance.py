"""Variance split by its sources, and the detectable difference."""

from statistics import NormalDist
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Source = Literal["sampling", "decomposition", "verification"]

POWER: Final = 0.8
ALPHA: Final = 0.05


class Parts(NamedTuple):
    """The variance of one sample's score, in three parts that add up to it.

    `sampling` is that between samples, None below two of them; `decomposition` that between
    decompositions of one sample, `verification` that between verifications of one
    decomposition. `negative` names the parts whose estimate was below 0 and is set to it.
    """

    sampling: float | None
    decomposition: float
    verification: float
    negative: tuple[Source, ...] = ()


def split_variance(scores: NDArray[np.float64]) -> Parts:
    """The parts of the variance of `scores`, shape (samples, decompositions, verifications).

    The model is y = mean + sample + decomposition(sample) + verification(decomposition), all
    three random, independent and of mean 0. The parts are estimated by the analysis of
    variance of a balanced nested design: with a decompositions, b verifications and the mean
    squares MS within decompositions, between decompositions and between samples, they are
    MS_v, (MS_d - MS_v) / b and (MS_s - MS_d) / (a b) (Searle, Casella and McCulloch 1992,
    Variance Components, 3.7; Snedecor and Cochran 1989, 13.7). A part that was not repeated
    (an axis of length 1) counts as 0: it is for what never varies. An estimate can come out
    below 0 where the part is small, and is set to 0 then, as ibid. 4.4.

    Raises `ValueError` where there is no score, or one that is not finite.
    """
    if scores.ndim != 3 or not scores.size or not bool(np.isfinite(scores).all()):
        raise ValueError(f"scores of shape {scores.shape} must be three-dimensional and finite")
    samples, decompositions, verifications = scores.shape
    of_decompositions = scores.mean(axis=2)
    of_samples = of_decompositions.mean(axis=1)
    within = _mean_square(scores - of_decompositions[:, :, None], samples * decompositions)
    between = verifications * _mean_square(of_decompositions - of_samples[:, None], samples)
    if verifications == 1:
        within = 0.0
    if decompositions == 1:
        between = within
    among = decompositions * verifications * _mean_square(of_samples - of_samples.mean(), 1)
    found: dict[Source, float] = {
        "verification": within,
        "decomposition": (between - within) / verifications,
        "sampling": (among - between) / (decompositions * verifications),
    }
    # Rounding makes a part of 0 one of 1e-34 or of -1e-18, which is nothing to tell.
    scale = 1e-12 * max(float(np.abs(scores).max()) ** 2, 1.0)
    negative = tuple(source for source, value in found.items() if value < -scale)
    parts = {source: value if value > scale else 0.0 for source, value in found.items()}
    sampling = parts["sampling"] if samples > 1 else None
    if samples == 1:
        negative = tuple(source for source in negative if source != "sampling")
    return Parts(sampling, parts["decomposition"], parts["verification"], negative)


def detectable_difference(parts: Parts, samples: int) -> float:
    """The smallest difference between the means of two runs over `samples` that would show.

    Both runs score the same samples, so what is between samples cancels in the differences of
    one sample's two scores, whose variance is twice that of one evaluation:
    (z(1 - alpha / 2) + z(power)) sqrt(2 (decomposition + verification) / samples), found with a
    probability of 80 % by a two-sided paired test at 5 % (Cohen 1988, Statistical Power Analysis,
    2.3; for evaluations Miller 2024, Adding Error Bars to Evals, arXiv 2411.00640, section 5,
    with one answer a question). A change that helps some samples and hurts others varies between
    samples too, and must be larger to show: this is the least.
    """
    normal = NormalDist()
    z = normal.inv_cdf(1 - ALPHA / 2) + normal.inv_cdf(POWER)
    return float(z * (2 * (parts.decomposition + parts.verification) / samples) ** 0.5)


def _mean_square(deviations: NDArray[np.float64], groups: int) -> float:
    """The sum of squares over its degrees of freedom: one less than there are in each group."""
    freedom = deviations.size - groups
    return float((deviations**2).sum()) / freedom if freedom else 0.0
