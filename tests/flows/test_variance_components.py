"""Variance components of literal tables and of simulations with known components."""

import numpy as np
import pytest
from numpy.typing import NDArray

from claimflow.flows.quality.variance import (
    VarianceComponents,
    detectable_difference,
    variance_components,
)

Scores = NDArray[np.float64]


def simulated(
    seed: int, samples: int, of: tuple[int, int], sd: tuple[float, float, float]
) -> Scores:
    """Scores by the nested model with the standard deviations of its three components."""
    draw = np.random.default_rng(seed).normal
    between = draw(0.6, sd[0], (samples, 1, 1))
    decomposed = draw(0, sd[1], (samples, of[0], 1))
    return between + decomposed + draw(0, sd[2], (samples, *of))


def test_a_table_by_hand() -> None:
    # Means of decompositions: 1, 3 and 6, 8; of samples: 2, 7.
    scores = np.array([[[0.0, 2.0], [2.0, 4.0]], [[5.0, 7.0], [8.0, 8.0]]])
    # Mean squares within decompositions 6 / 4, between them 8 / 2, between samples 50.
    assert variance_components(scores) == VarianceComponents((50 - 4) / 4, (4 - 1.5) / 2, 1.5)


def test_a_component_that_was_not_repeated_is_0() -> None:
    scores = np.array([[0.0, 2.0], [5.0, 7.0]])
    # Within samples 2, between them 2 * 12.5.
    assert variance_components(scores[:, None, :]) == VarianceComponents((25 - 2) / 2, 0.0, 2.0)
    assert variance_components(scores[:, :, None]) == VarianceComponents((25 - 2) / 2, 2.0, 0.0)
    assert variance_components(scores[:, :1, None]) == VarianceComponents(12.5, 0.0, 0.0)


def test_a_negative_estimate_is_0_and_named() -> None:
    # Both decompositions have the same mean: less than chance would give.
    scores = np.array([[[0.0, 2.0], [2.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]]])
    assert variance_components(scores) == VarianceComponents(0.0, 0.0, 1.0, ("decomposition",))
    alike = np.array([[[0.0], [2.0]], [[2.0], [0.0]]])
    assert variance_components(alike) == VarianceComponents(0.0, 2.0, 0.0, ("sampling",))


def test_constant_scores_have_no_variance() -> None:
    assert variance_components(np.full((5, 3, 2), 0.1)) == VarianceComponents(0.0, 0.0, 0.0)


def test_one_sample_has_no_sampling_variance() -> None:
    assert variance_components(np.array([[[1.0, 3.0], [4.0, 6.0]]])) == VarianceComponents(
        None, 3.5, 2.0
    )


@pytest.mark.parametrize(
    "scores", [np.zeros((0, 2, 2)), np.zeros((2, 2)), np.full((1, 1, 1), np.nan)]
)
def test_other_shapes_and_nan_are_refused(scores: Scores) -> None:
    with pytest.raises(ValueError, match="must be three-dimensional and finite"):
        variance_components(scores)


@pytest.mark.parametrize(
    ("of", "sd"),
    [
        ((5, 2), (0.2, 0.1, 0.15)),
        ((3, 2), (0.3, 0.2, 0.05)),
        ((1, 4), (0.2, 0.0, 0.1)),
        ((4, 1), (0.2, 0.1, 0.0)),
    ],
)
def test_simulated_components_are_estimated_without_bias(
    of: tuple[int, int], sd: tuple[float, float, float]
) -> None:
    found = np.array(
        [list(variance_components(simulated(seed, 60, of, sd))[:3]) for seed in range(400)],
        dtype=np.float64,
    )
    expected = np.square(sd)
    error = found.std(axis=0, ddof=1) / len(found) ** 0.5
    assert np.all(np.abs(found.mean(axis=0) - expected) <= 4 * error + 1e-15)


def test_the_detectable_difference_in_numbers() -> None:
    # The two quantiles are 1.959964 and 0.841621, the root is that of 0.08 / 50.
    assert detectable_difference(VarianceComponents(0.2, 0.01, 0.03), 50) == pytest.approx(
        0.112063, abs=1e-6
    )
    assert detectable_difference(VarianceComponents(0.2, 0.0, 0.0), 50) == 0.0


def test_the_detectable_difference_has_a_power_of_80_percent() -> None:
    sd = (0.3, 0.1, 0.15)
    parts = VarianceComponents(*(value**2 for value in sd))
    samples, trials = 100, 4_000
    shift = detectable_difference(parts, samples)
    draw = np.random.default_rng(7).normal
    sample = draw(0, sd[0], (trials, 1, samples))
    noise = draw(0, sd[1], (trials, 2, samples)) + draw(0, sd[2], (trials, 2, samples))
    scores = sample + noise + np.array([0.0, shift])[None, :, None]
    differences = scores[:, 1] - scores[:, 0]
    error = differences.std(axis=1, ddof=1) / samples**0.5
    found = np.abs(differences.mean(axis=1) / error) > 1.959964
    assert abs(found.mean() - 0.8) < 0.025
