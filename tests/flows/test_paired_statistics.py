"""Intervals, tests and corrections compared with SciPy, with tables and with known truths."""

import math

import numpy as np
import pytest

from claimflow.flows.quality.paired_statistics import (
    RESAMPLES,
    holm_correction,
    paired_difference,
    ratio_interval,
    sign_flip_p,
)

DIFFERENCES = np.array(
    [0, 0.25, -0.5, 0, 0.1, 0.75, 0, 0.2, -0.1, 0.3, 0, 0, 0.5, 0.05, -0.25, 0, 0.4, 0.15, 0, 0.35]
)
DARWIN = np.array([49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]) / 100
"""Heights of crossed less self-fertilised maize, in units of 12.5 inches (Fisher 1935, 17)."""


def test_the_interval_is_the_wider_of_students_and_of_scipys_bootstrap_at_each_end() -> None:
    from scipy import stats

    t = stats.ttest_1samp(DIFFERENCES, 0).confidence_interval(0.95)
    tail = stats.norm.cdf(-stats.t.ppf(0.975, 19) * math.sqrt(20 / 19))
    b = stats.bootstrap(
        (DIFFERENCES,),
        np.mean,
        n_resamples=RESAMPLES,
        batch=500,
        confidence_level=1 - 2 * tail,
        method="BCa",
        rng=np.random.default_rng(0),
    ).confidence_interval
    found = paired_difference(DIFFERENCES)
    assert found.mean == pytest.approx(0.11)
    assert found.low == pytest.approx(min(t.low, b.low), abs=1e-9)
    assert found.high == pytest.approx(max(t.high, b.high), abs=1e-9)


def test_the_sign_flip_test_agrees_with_scipy_and_fisher() -> None:
    from scipy import stats

    by_scipy = stats.permutation_test(
        (DARWIN,), np.sum, permutation_type="samples", n_resamples=2**15
    ).pvalue
    assert by_scipy == pytest.approx(0.0526, abs=1e-4)  # 1,726 of 32,768, as Fisher counted
    assert sign_flip_p(DARWIN) == pytest.approx(by_scipy, abs=0.01)


def test_few_units_are_tested_exactly() -> None:
    assert sign_flip_p(np.array([0.1, 0.2, 0.3, 0.4, 0.5])) == pytest.approx(2 / 32)
    assert sign_flip_p(np.array([0.1, 0.2, 0, 0.3, 0.4, 0, 0.5, 0])) == pytest.approx(2 / 32)
    assert sign_flip_p(np.full(10, 0.1)) == pytest.approx(2 / 1024)


def test_many_units_are_tested_by_the_normal_distribution() -> None:
    from scipy import stats

    drawn = np.random.default_rng(5).normal(0.05, 1, 1_001)
    by_drawing = stats.permutation_test(
        (drawn,), np.sum, permutation_type="samples", n_resamples=4_999, vectorized=True, rng=1
    ).pvalue
    assert sign_flip_p(drawn) == pytest.approx(by_drawing, abs=0.02)


@pytest.mark.parametrize(
    ("differences", "low", "high", "p"),
    [
        ([0.5], None, None, None),
        ([0.0, 0.0], 0.0, 0.0, 1.0),
        ([0.25, 0.25, 0.25], 0.25, 0.25, 0.25),
        ([1e-17, 0.0, -1e-17], 0.0, 0.0, 1.0),
        ([0.1 + 0.2 - 0.3, 0.0], 0.0, 0.0, 1.0),
    ],
)
def test_differences_without_variance_raise_no_warning(
    differences: list[float], low: float | None, high: float | None, p: float | None
) -> None:
    found = paired_difference(np.array(differences))
    assert (found.low, found.high, found.p) == (low, high, p)


@pytest.mark.parametrize("count", [2, 3, 4, 13, 14, 1_000, 1_001])
def test_a_single_difference_among_zeros_raises_no_warning(count: int) -> None:
    found = paired_difference(np.array([1.0] + [0.0] * (count - 1)))
    assert found.p == 1.0
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.mean < found.high
    assert not found.unchanged


def test_only_units_that_are_all_zero_are_unchanged() -> None:
    assert paired_difference(np.zeros(3)).unchanged
    assert not paired_difference(np.full(3, 0.25)).unchanged
    assert not paired_difference(np.zeros(1)).unchanged


def test_a_unit_of_several_samples_is_drawn_and_flipped_whole() -> None:
    totals, sizes = np.array([1.0, 0.5, -0.25, 0.75]), np.array([4.0, 1.0, 2.0, 3.0])
    differences = np.array([0.25] * 4 + [0.5] + [-0.125] * 2 + [0.25] * 3)
    units = ["a"] * 4 + ["b"] + ["c"] * 2 + ["d"] * 3
    found = paired_difference(differences, units)
    assert (found.samples, found.units, found.mean) == (10, 4, 0.2)
    assert (found.low, found.high) == ratio_interval(totals, sizes)
    assert found.p == sign_flip_p(totals) == pytest.approx(4 / 16)
    alone = paired_difference(differences)
    assert alone.p is not None
    assert alone.p < 0.1


def test_the_standard_error_of_a_ratio_is_cochrans() -> None:
    """Above the bootstrap's reach the bounds are those of the linearised ratio alone."""
    drawn = np.random.default_rng(2)
    sizes = drawn.integers(1, 6, 1_500).astype(float)
    totals = drawn.normal(0.1, 0.3, 1_500) * sizes
    ratio = totals.sum() / sizes.sum()
    error = math.sqrt(1_500 * np.var(totals - ratio * sizes, ddof=1)) / sizes.sum()
    low, high = ratio_interval(totals, sizes)
    assert low == pytest.approx(ratio - 1.9616 * error, abs=1e-5)
    assert high == pytest.approx(ratio + 1.9616 * error, abs=1e-5)


def test_holm_corrects_step_by_step() -> None:
    # The example of the R documentation's p.adjust, by hand.
    assert holm_correction([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm_correction([0.6, 0.9]) == [1.0, 1.0]
    assert holm_correction([None, 0.02, None, 0.01]) == [None, 0.02, None, 0.02]
    assert holm_correction([]) == []


def test_the_same_numbers_give_the_same_bounds() -> None:
    assert paired_difference(DIFFERENCES) == paired_difference(DIFFERENCES.copy())


@pytest.mark.parametrize("clustered", [False, True], ids=["plain", "clustered"])
def test_the_interval_covers_the_truth(clustered: bool) -> None:
    """150 draws of 40 skewed differences of shares: 95 % within three standard errors.

    `tests/benchmarks/differences.py` is the same with more draws, sizes and shapes.
    """
    drawn = np.random.default_rng(11)
    truth, covered = -0.08 * 5 / 6, 0
    for _ in range(150):
        own = np.repeat(drawn.beta(5, 1, 20), 2) if clustered else drawn.beta(5, 1, 40)
        before, after = (drawn.binomial(5, share) / 5 for share in (own, 0.92 * own))
        moved, sizes = after - before, np.ones(40)
        if clustered:
            moved, sizes = moved.reshape(20, 2).sum(1), sizes.reshape(20, 2).sum(1)
        low, high = ratio_interval(moved, sizes)
        assert low is not None
        assert high is not None
        covered += low <= truth <= high
    assert covered / 150 >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / 150)
