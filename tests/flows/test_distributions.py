"""Quantiles and tails compared with SciPy."""

import pytest

from claimflow.flows.quality.distributions import (
    beta_quantile,
    clopper_pearson,
    incomplete_beta,
    normal_tail,
    sign_test_p,
    t_quantile_975,
)
from claimflow.stages.scores.formulas import wilson

SHAPES = [(0.5, 0.5), (0.5, 40), (1, 1), (1, 500), (3, 2), (39, 0.5), (250, 251), (3_000, 5_000)]
COUNTS = [(0, 1), (1, 1), (1, 2), (3, 40), (0, 500), (250, 500), (499, 500), (12, 100_000)]


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_the_beta_distribution_is_scipys(a: float, b: float) -> None:
    from scipy import special

    for x in (0.0, 1e-9, 0.01, 0.3, 0.374, 0.5, 0.99, 1.0):
        assert incomplete_beta(a, b, x) == pytest.approx(
            special.betainc(a, b, x), rel=1e-10, abs=1e-200
        )
    for p in (1e-6, 0.025, 0.5, 0.975):
        assert beta_quantile(a, b, p) == pytest.approx(special.betaincinv(a, b, p), rel=1e-10)


@pytest.mark.parametrize("n", [2, 3, 4, 10, 40, 1_000, 100_000])
def test_the_quantile_of_students_t_is_scipys(n: int) -> None:
    from scipy import stats

    assert t_quantile_975(n) == pytest.approx(stats.t.ppf(0.975, n - 1), rel=1e-10)


@pytest.mark.parametrize(("part", "whole"), COUNTS)
def test_intervals_of_proportions_are_scipys(part: int, whole: int) -> None:
    from scipy import stats

    counted = stats.binomtest(part, whole)
    for found, method in ((clopper_pearson, "exact"), (wilson, "wilson")):
        bounds = counted.proportion_ci(0.95, method)
        assert found(part, whole) == pytest.approx((bounds.low, bounds.high), rel=1e-9)


@pytest.mark.parametrize("counts", [(0, 1), (3, 3), (0, 40), (12, 5), (400, 520)])
def test_the_sign_test_is_scipys(counts: tuple[int, int]) -> None:
    from scipy import stats

    assert sign_test_p(*counts) == pytest.approx(stats.binomtest(counts[0], sum(counts)).pvalue)


def test_the_tail_of_the_normal_distribution_is_scipys() -> None:
    from scipy import stats

    for z in (-3.0, 0.0, 1.96, 8.0, 30.0):
        assert normal_tail(z) == pytest.approx(stats.norm.sf(z), rel=1e-12)
