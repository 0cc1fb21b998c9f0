"""Variance components of repeated scores, and the minimum detectable difference."""

from statistics import NormalDist
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Source = Literal["sampling", "decomposition", "verification"]

POWER: Final = 0.8
ALPHA: Final = 0.05


class VarianceComponents(NamedTuple):
    """The variance of one sample's score as the sum of three components.

    `sampling` is the variance between samples, None below two of them; `decomposition` between
    decompositions of one sample, `verification` between verifications of one decomposition.
    `negative` names the components whose estimate was below 0 and is set to 0.
    """

    sampling: float | None
    decomposition: float
    verification: float
    negative: tuple[Source, ...] = ()


def variance_components(scores: NDArray[np.float64]) -> VarianceComponents:
    """Components of the variance of `scores`, shape (samples, decompositions, verifications).

    The model is y = mean + sample + decomposition(sample) + verification(decomposition), all
    three random, independent and of mean 0. The components are estimated by the analysis of
    variance (ANOVA) of a balanced nested design: with a decompositions, b verifications and the
    mean squares MS within decompositions, between decompositions and between samples, they are
    MS_v, (MS_d - MS_v) / b and (MS_s - MS_d) / (a b) (Searle, Casella and McCulloch 1992,
    Variance Components, 3.7; Snedecor and Cochran 1989, 13.7). A component that was not repeated
    (an axis of length 1) is 0, since only deterministic steps are not repeated. An estimate below
    0, possible for a small component, is set to 0 (ibid. 4.4).

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
    # Rounding turns a component of 0 into 1e-34 or -1e-18.
    scale = 1e-12 * max(float(np.abs(scores).max()) ** 2, 1.0)
    negative = tuple(source for source, value in found.items() if value < -scale)
    parts = {source: value if value > scale else 0.0 for source, value in found.items()}
    sampling = parts["sampling"] if samples > 1 else None
    if samples == 1:
        negative = tuple(source for source in negative if source != "sampling")
    return VarianceComponents(sampling, parts["decomposition"], parts["verification"], negative)


def detectable_difference(parts: VarianceComponents, samples: int) -> float:
    """The minimum detectable difference between the means of two runs over `samples`.

    A difference of this size is found with a power of 80 % by a two-sided paired test at 5 %:
    (z(1 - alpha / 2) + z(power)) sqrt(2 (decomposition + verification) / samples) (Cohen 1988,
    Statistical Power Analysis, 2.3; for evaluations Miller 2024, Adding Error Bars to Evals, arXiv
    2411.00640, section 5, with one answer a question). Both runs score the same samples, so the
    variance between samples cancels. A change that helps some samples and hurts others also
    varies between samples, and must be larger to be found: this is a lower bound.
    """
    normal = NormalDist()
    z = normal.inv_cdf(1 - ALPHA / 2) + normal.inv_cdf(POWER)
    return float(z * (2 * (parts.decomposition + parts.verification) / samples) ** 0.5)


def _mean_square(deviations: NDArray[np.float64], groups: int) -> float:
    """The sum of squares over its degrees of freedom, those of `groups` means subtracted."""
    freedom = deviations.size - groups
    return float((deviations**2).sum()) / freedom if freedom else 0.0
