"""Properties of every estimate with an interval, for random labels and verdicts."""

from typing import Final

import krippendorff
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from claimflow.flows.quality.agreement import (
    IntervalEstimate,
    balanced_accuracy,
    clipped_interval,
    cohen_kappa,
    krippendorff_alpha,
    proportion,
    rank_correlations,
    rating_counts,
)
from claimflow.flows.quality.corrected_rates import (
    JudgedRows,
    effective_sample_size,
    prediction_powered,
    reliability_diagram,
    rogan_gladen,
)

few = settings(max_examples=40, deadline=None)

COUNTS: Final = st.lists(st.integers(0, 5), min_size=9, max_size=9)
UNIT: Final = st.floats(0, 1, width=32)
HALVES: Final = st.sampled_from([0.0, 0.5, 1.0])


def check_bounds(estimate: IntervalEstimate, lowest: float, highest: float) -> None:
    """The value lies within its interval and that within the bounds, or both are undefined."""
    value, low, high = estimate
    if value is None or low is None or high is None:
        assert (low, high) == (None, None)
        assert value is None or lowest - 1e-9 <= value <= highest + 1e-9
        return
    assert lowest - 1e-9 <= low <= value <= high <= highest + 1e-9


@given(st.floats(-3, 3), st.floats(0, 3))
def test_a_clipped_interval_keeps_its_reach(value: float, reach: float) -> None:
    found = clipped_interval(value, reach, 0, 1)
    check_bounds(found, 0, 1)
    assert found.low is not None
    assert found.high is not None
    assert found.high - found.low >= min(reach, 1) - 1e-12


@given(st.integers(0, 40), st.integers(0, 40))
@few
def test_proportions(part: int, rest: int) -> None:
    check_bounds(proportion(part, part + rest), 0, 1)


@given(COUNTS)
@settings(max_examples=15, deadline=None)
def test_agreement_of_any_confusion_matrix(cells: list[int]) -> None:
    counts = np.array(cells).reshape(3, 3)
    assume(counts.sum())
    agreed, right = cohen_kappa(counts), balanced_accuracy(counts)
    together = krippendorff_alpha(rating_counts(counts))
    for estimate, lowest in ((agreed, -1), (right, 0), (together, -1)):
        check_bounds(estimate, lowest, 1)
    # The names of the labels say nothing.
    turned = counts[::-1, ::-1]
    for one, other in (
        (agreed, cohen_kappa(turned)),
        (together, krippendorff_alpha(rating_counts(turned))),
    ):
        assert one == pytest.approx(other, nan_ok=True) or one == other
    if counts.trace() == counts.sum() and agreed.value is not None:
        assert (agreed.value, together.value) == (pytest.approx(1), pytest.approx(1))


@given(st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=4), min_size=1, max_size=8))
@few
def test_alpha_equals_the_library_at_both_levels(things: list[list[int]]) -> None:
    votes = np.array([np.bincount(thing, minlength=4) for thing in things])
    assume((votes.sum(axis=0) > 0).sum() > 1)
    domain = np.array([0.0, 0.25, 0.5, 1.0])
    for numbers, level in ((None, "nominal"), (domain, "interval")):
        found = krippendorff_alpha(votes, domain=numbers)
        check_bounds(found, -np.inf, 1)
        assert found.value == pytest.approx(
            krippendorff.alpha(value_counts=votes, value_domain=domain, level_of_measurement=level)
        )


def jackknifed(votes: NDArray[np.int_], domain: NDArray[np.float64]) -> float:
    """The reach of the jackknife interval of alpha, by calling the library without each subject."""
    from scipy import stats

    n = len(votes)
    left = [
        krippendorff.alpha(
            value_counts=np.delete(votes, one, axis=0),
            value_domain=domain,
            level_of_measurement="interval",
        )
        for one in range(n)
    ]
    reach: float = stats.t.ppf(0.975, n - 1) * ((n - 1) / n * np.var(left) * n) ** 0.5
    return reach


def test_the_interval_of_alpha_is_the_jackknife_of_the_library() -> None:
    rng = np.random.default_rng(0)
    domain = np.linspace(0, 1, 6)
    votes = np.array(
        [np.bincount(rng.integers(0, 6, rng.integers(2, 5)), minlength=6) for _ in range(12)]
    )
    found = krippendorff_alpha(votes, domain=domain)
    assert found.value is not None
    assert found.high is not None
    assert found.high - found.value == pytest.approx(jackknifed(votes, domain))


def test_alpha_of_hundreds_of_different_ratings() -> None:
    rng = np.random.default_rng(0)
    one = rng.random(2_000)
    other = np.clip(one + rng.normal(0, 0.05, 2_000), 0, 1)
    domain, place = np.unique([*one, *other], return_inverse=True)
    votes = np.zeros((2_000, len(domain)), dtype=np.int_)
    np.add.at(votes, (np.tile(np.arange(2_000), 2), place), 1)
    found = krippendorff_alpha(votes, domain=domain)
    assert found.value == pytest.approx(0.985, abs=0.01)


@given(st.lists(st.tuples(HALVES, UNIT), max_size=12))
@few
def test_rank_correlations_of_any_ratings(pairs: list[tuple[float, float]]) -> None:
    ratings, scores = [rating for rating, _ in pairs], [score for _, score in pairs]
    found = rank_correlations(ratings, scores)
    check_bounds(found.spearman, -1, 1)
    check_bounds(found.kendall, -1, 1)
    for estimate in found[1:]:
        if estimate.low is not None and estimate.high is not None:
            assert estimate.high - estimate.low > 1e-6


@given(st.lists(st.tuples(UNIT, HALVES, st.floats(0.05, 1), st.integers(0, 4)), max_size=15))
@few
def test_a_prediction_powered_mean_of_any_labels(
    rows: list[tuple[float, float, float, int]],
) -> None:
    judgements, label, chance, sample = np.array(rows or np.zeros((0, 4)), dtype=np.float64).T
    # Two in three have a label.
    known = np.arange(len(rows)) % 3 > 0
    of = sample.astype(np.intp)
    judged = JudgedRows(
        judgements, of, np.where(known, label, np.nan), np.where(known, chance, np.nan)
    )
    for by_sample in (False, True):
        estimate = prediction_powered(judged, by_sample=by_sample)
        check_bounds(estimate, 0, 1)
        # A judge that is a constant is no help, and no harm.
        useless = judged._replace(judged=np.zeros(len(rows)))
        shifted = judged._replace(judged=np.ones(len(rows)))
        assert prediction_powered(useless, by_sample=by_sample) == pytest.approx(
            prediction_powered(shifted, by_sample=by_sample), nan_ok=True
        )


@given(UNIT, st.floats(0, 500), *(st.integers(0, 30) for _ in range(4)))
@few
def test_rogan_gladen_of_any_counts(
    rate: float, n: float, right: int, missed: int, clear: int, false: int
) -> None:
    found = rogan_gladen(rate, n, (right, right + missed), (clear, clear + false))
    check_bounds(found, 0, 1)
    # What holds of yes holds of no, the other way round.
    turned = rogan_gladen(1 - rate, n, (clear, clear + false), (right, right + missed))
    if found.value is not None and turned.value is not None:
        assert found.value == pytest.approx(1 - turned.value, abs=1e-6)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=1, max_size=30))
@few
def test_the_effective_sample_size_is_at_most_the_size(rows: list[tuple[bool, int]]) -> None:
    judgements, sample = (np.array(column) for column in zip(*rows, strict=True))
    assert 0 < effective_sample_size(judgements.astype(np.float64), sample) <= len(rows)


@given(st.lists(st.tuples(UNIT, st.booleans()), max_size=30))
@few
def test_every_probability_is_in_one_bin(rows: list[tuple[float, bool]]) -> None:
    judgements, truth = np.array([p for p, _ in rows]), np.array([t for _, t in rows], dtype=bool)
    found = reliability_diagram(judgements, truth)
    if found is None:
        assert not rows
        return
    assert sum(one.n for one in found.bins) == len(rows) == found.n
    assert 0 <= found.off <= 1
    assert 0 <= found.brier <= 1
    for one in found.bins:
        assert one.low - 1e-6 <= one.mean <= one.high + 1e-6
        check_bounds(one.entailed, 0, 1)
