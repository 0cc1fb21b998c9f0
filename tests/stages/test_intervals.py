"""95 % intervals of a mean."""

from math import sqrt
from random import Random
from statistics import fmean, stdev

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.intervals import BOOTSTRAP_UP_TO, mean_interval


def bounds(values: list[float]) -> tuple[float | None, float | None]:
    return mean_interval(pl.Series(sorted(values), dtype=pl.Float64))


@pytest.mark.parametrize("values", [[], [0.5]])
def test_below_two_values_there_is_none(values: list[float]) -> None:
    assert bounds(values) == (None, None)


def test_a_known_interval_is_the_same_on_every_machine() -> None:
    values = sorted(n**0.5 % 1 for n in (2, 3, 5, 7, 11, 13, 17, 19))
    random = Random(0).random
    means = sorted(fmean(values[int(random() * 8)] for _ in range(8)) for _ in range(1_000))
    assert means[25] < means[26]
    assert means[-26] < means[-25]
    assert bounds(values) == pytest.approx((means[25], means[-26]), abs=1e-15)
    assert bounds(values) == pytest.approx((0.2928684474089005, 0.5728918780942073), abs=1e-15)


def test_up_to_the_limit_the_bootstrap_agrees_with_the_normal_interval() -> None:
    random = Random(1)
    values = [random.random() ** 3 for _ in range(BOOTSTRAP_UP_TO)]
    low, high = bounds(values)
    mean, reach = fmean(values), 1.96 * stdev(values) / sqrt(len(values))
    assert (low, high) == pytest.approx((mean - reach, mean + reach), abs=0.1 * reach)


def test_above_the_limit_it_is_the_normal_interval() -> None:
    values = [n / BOOTSTRAP_UP_TO for n in range(BOOTSTRAP_UP_TO + 1)]
    reach = 1.959963984540054 * stdev(values) / sqrt(len(values))
    assert bounds(values) == pytest.approx((0.5 - reach, 0.5 + reach), abs=1e-12)


def test_it_covers_the_true_mean_about_19_times_in_20() -> None:
    random = Random(2)
    hits = 0
    for _ in range(200):
        low, high = bounds([float(random.random() < 0.7) for _ in range(60)])
        hits += low is not None and high is not None and low <= 0.7 <= high
    assert 180 <= hits <= 198


@settings(max_examples=30)
@given(values=st.lists(st.floats(-1, 1), min_size=2, max_size=30))
def test_bounds_lie_in_order_within_the_values(values: list[float]) -> None:
    low, high = bounds(values)
    assert low is not None
    assert high is not None
    rounding = 1e-12
    assert min(values) - rounding <= low <= high <= max(values) + rounding
