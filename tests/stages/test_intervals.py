"""95 % intervals of a mean."""

from math import sqrt
from random import Random
from statistics import fmean, stdev

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimflow.stages.scores.formulas import BOOTSTRAP_UP_TO, mean_interval


def bounds(values: list[float]) -> tuple[float | None, float | None]:
    return mean_interval(np.array(sorted(values)))


@pytest.mark.parametrize("values", [[], [0.5], [1.0]])
def test_no_interval_below_two_values(values: list[float]) -> None:
    assert bounds(values) == (None, None)


def test_a_known_interval_is_the_same_on_every_machine() -> None:
    values = sorted(n**0.5 % 1 for n in (2, 3, 5, 7, 11, 13, 17, 19))
    raw = [int(number) for number in np.random.PCG64(0).random_raw(4 * 1_000)]
    assert raw[0] == 11749869230777074271
    halves = [half for number in raw for half in (number % 2**32, number >> 32)]
    drawn = [values[half * 8 >> 32] for half in halves]
    means = sorted(fmean(drawn[start : start + 8]) for start in range(0, 8_000, 8))
    # Student's t of 7 degrees is 2.365, and 6 in 1,000 of the normal lie below -2.365 sqrt(8 / 7).
    assert bounds(values) == pytest.approx((means[6], means[-7]), abs=1e-15)
    assert bounds(values) == pytest.approx((0.27087293075559293, 0.6084953352856421), abs=1e-15)


@pytest.mark.parametrize(
    ("ones", "n", "low", "high"),
    [  # Newcombe 1998, table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (29, 29, 0.8830, 1.0),
    ],
)
def test_zeros_and_ones_have_the_score_interval(ones: int, n: int, low: float, high: float) -> None:
    assert bounds([1.0] * ones + [0.0] * (n - ones)) == pytest.approx((low, high), abs=5e-5)


def test_many_zeros_and_ones_have_the_score_interval() -> None:
    low, high = bounds([0.0] * (BOOTSTRAP_UP_TO + 1))
    assert low == 0.0
    assert high == pytest.approx(1.96**2 / (BOOTSTRAP_UP_TO + 1 + 1.96**2), abs=1e-6)


def test_up_to_the_limit_the_bootstrap_agrees_with_the_normal_interval() -> None:
    random = Random(1)
    values = [random.random() ** 3 for _ in range(BOOTSTRAP_UP_TO)]
    low, high = bounds(values)
    mean, reach = fmean(values), 1.96 * stdev(values) / sqrt(len(values))
    assert (low, high) == pytest.approx((mean - reach, mean + reach), abs=0.15 * reach)


def test_many_values_have_the_normal_interval() -> None:
    values = [n / BOOTSTRAP_UP_TO for n in range(BOOTSTRAP_UP_TO + 1)]
    reach = 1.959963984540054 * stdev(values) / sqrt(len(values))
    assert bounds(values) == pytest.approx((0.5 - reach, 0.5 + reach), abs=1e-12)


@pytest.mark.parametrize(("claims", "n"), [(1, 60), (4, 10), (4, 20)])
def test_it_covers_the_true_mean_about_19_times_in_20(claims: int, n: int) -> None:
    random = np.random.RandomState(2)
    hits = 0
    for _ in range(200):
        low, high = bounds((random.binomial(claims, 0.7, n) / claims).tolist())
        hits += low is not None and high is not None and low <= 0.7 <= high
    assert 180 <= hits <= 199


@settings(max_examples=30)
@given(values=st.lists(st.floats(-1, 1), min_size=2, max_size=30))
def test_bounds_lie_in_order_within_the_values(values: list[float]) -> None:
    low, high = bounds(values)
    assert low is not None
    assert high is not None
    rounding = 1e-12
    least, most = (0, 1) if set(values) <= {0.0, 1.0} else (min(values), max(values))
    assert least - rounding <= low <= fmean(values) + rounding
    assert fmean(values) - rounding <= high <= most + rounding
