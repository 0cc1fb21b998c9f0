"""95 % intervals of a mean."""

from math import sqrt
from random import Random
from statistics import NormalDist, fmean, stdev

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimflow.stages.scores.formulas import (
    BOOTSTRAP_UP_TO,
    clustered_mean_interval,
    mean_interval,
    wilson,
)


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


def clustered(*groups: list[float]) -> tuple[float | None, float | None]:
    values = [value for group in groups for value in group]
    names = [f"c{n}" for n, group in enumerate(groups) for _ in group]
    return clustered_mean_interval(np.array(values), names)


def naive_bounds(groups: list[list[float]]) -> tuple[float, float]:
    """Whole groups drawn at random, 1,000 times, as in the bootstrap of single values."""
    ordered = sorted(groups, key=lambda group: (sum(sorted(group)), len(group)))
    n = len(groups)
    raw = [int(number) for number in np.random.PCG64(0).random_raw(n * 500)]
    halves = [half for number in raw for half in (number % 2**32, number >> 32)]
    means = []
    for start in range(0, n * 1_000, n):
        drawn = [ordered[half * n >> 32] for half in halves[start : start + n]]
        means.append(sum(map(sum, drawn)) / sum(map(len, drawn)))
    # The share of the normal distribution below -t sqrt(n / (n - 1)), t of n - 1 degrees.
    t = {6: 2.5706, 8: 2.3646}[n]
    tail = round(1_000 * NormalDist().cdf(-t * sqrt(n / (n - 1))))
    means.sort()
    return means[tail], means[-1 - tail]


@pytest.mark.parametrize(
    "groups",
    [
        [[0.2, 0.4], [0.6], [0.8, 0.9, 1.0], [0.5], [0.1, 0.3], [0.7]],
        [[n / 10] * (n + 1) for n in range(8)],
    ],
)
def test_clusters_are_resampled_whole(groups: list[list[float]]) -> None:
    low, high = clustered(*groups)
    assert (low, high) == pytest.approx(naive_bounds(groups), abs=1e-12)
    assert clustered(*[group[::-1] for group in groups[::-1]]) == (low, high)


def test_values_of_their_own_have_the_interval_without_clusters() -> None:
    random = Random(5)
    for count in (0, 1, 2, 9, BOOTSTRAP_UP_TO + 1):
        values = [random.random() for _ in range(count)]
        assert clustered(*[[value] for value in values]) == bounds(values)
    assert clustered([1.0], [1.0], [0.0]) == bounds([0.0, 1.0, 1.0])


@pytest.mark.parametrize("values", [[0.5, 0.6], [1.0, 1.0], [0.0, 1.0]])
def test_one_cluster_has_no_interval(values: list[float]) -> None:
    assert clustered(values) == (None, None)


def test_many_clusters_have_the_normal_interval_with_the_robust_error() -> None:
    random = Random(7)
    groups = [
        [random.random() ** 2 / 2 + n % 2 / 2 for _ in range(1 + n % 4)] for n in range(1_001)
    ]
    values = [value for group in groups for value in group]
    mean = fmean(values)
    square = sum(sum(value - mean for value in group) ** 2 for group in groups)
    reach = 1.959963984540054 * sqrt(1_001 / 1_000 * square) / len(values)
    assert clustered(*groups) == pytest.approx((mean - reach, mean + reach), abs=1e-12)


def test_equal_turns_count_as_one() -> None:
    """50 conversations of 4 equal turns tell as much as 50 single turns."""
    low, high = clustered(*[[1.0] * 4] * 35, *[[0.0] * 4] * 15)
    alone = wilson(35, 50)
    assert (low, high) == pytest.approx(alone, abs=0.01)
    assert low < alone[0]
    assert high > alone[1]
    assert bounds([0.0] * 60 + [1.0] * 140)[0] > low + 0.05


def test_all_ones_say_no_more_than_a_one_of_each_cluster() -> None:
    assert clustered(*[[1.0] * 5] * 12) == wilson(12, 12)
    assert clustered(*[[0.0] * 5] * 12) == wilson(0, 12)
    # One failure more is no better.
    assert clustered(*[[1.0] * 5] * 11, [1.0, 1.0, 1.0, 1.0, 0.0])[0] <= wilson(12, 12)[0]


@pytest.mark.parametrize("claims", [1, 4])
def test_with_clusters_it_covers_the_true_mean_about_19_times_in_20(claims: int) -> None:
    random = np.random.RandomState(3)
    hits = single = 0
    for _ in range(200):
        sizes = random.randint(1, 8, 20)
        shares = np.repeat(random.beta(1.4, 0.6, 20), sizes)
        values = random.binomial(claims, shares) / claims
        low, high = clustered_mean_interval(values, np.repeat(np.arange(20), sizes).astype(str))
        hits += low is not None and high is not None and low <= 0.7 <= high
        low, high = bounds(values.tolist())
        single += low is not None and high is not None and low <= 0.7 <= high
    assert 180 <= hits <= 199
    assert single <= 165


@settings(max_examples=50)
@given(
    groups=st.lists(
        st.lists(st.floats(-1, 1) | st.sampled_from([0.0, 1.0]), min_size=1, max_size=4),
        min_size=2,
        max_size=8,
    ),
    seed=st.integers(0, 9),
)
def test_clustered_bounds_lie_in_order_and_depend_on_no_order(
    groups: list[list[float]], seed: int
) -> None:
    low, high = clustered(*groups)
    assert low is not None
    assert high is not None
    values = [value for group in groups for value in group]
    least, most = (0, 1) if set(values) <= {0.0, 1.0} else (min(values), max(values))
    assert least - 1e-12 <= low <= high <= most + 1e-12
    shuffled = [[*group] for group in groups]
    random = Random(seed)
    random.shuffle(shuffled)
    for group in shuffled:
        random.shuffle(group)
    assert clustered(*shuffled) == (low, high)
