"""Rates and means corrected for the errors of a judge."""

import numpy as np
import pytest

from claimflow.flows.quality.agreement import IntervalEstimate
from claimflow.flows.quality.corrected_rates import (
    JudgedRows,
    effective_sample_size,
    prediction_powered,
    rogan_gladen,
)

NOTHING = IntervalEstimate(None, None, None)


def judged(judgements: str, labels: str, *, probability: float, per_sample: int = 1) -> JudgedRows:
    """Rows with the judge's value, 0 or 1, and the label, 0, 1 or none (a point)."""
    label = np.array([np.nan if one == "." else float(one) for one in labels])
    values = np.array([float(one) for one in judgements])
    sample = np.arange(len(judgements)) // per_sample
    return JudgedRows(values, sample, label, np.where(np.isnan(label), np.nan, probability))


def test_the_mean_error_on_the_labels_is_subtracted() -> None:
    # Said of half of the rows; of the labelled ones too much by 2 of 10, and never too little.
    rows = judged("1" * 50 + "0" * 50, "11100" + "." * 45 + "00000" + "." * 45, probability=0.1)
    found = prediction_powered(rows)
    # The judge counts as much as it helps: the slope of 1, 1, 1, 0, 0 and five 0 on what it said.
    slope = 0.6
    assert found.value == pytest.approx(slope * 0.5 + (0.3 - slope * 0.5))
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0.3 < found.high < 0.5 + 0.2


def test_with_every_row_labelled_the_judge_has_no_influence() -> None:
    rows = judged("1" * 50 + "0" * 50, "10" * 50, probability=1.0)
    found = prediction_powered(rows)
    assert found.value == pytest.approx(0.5)
    truth = prediction_powered(judged("10" * 50, "10" * 50, probability=1.0))
    assert found == truth


def test_a_good_judge_makes_the_interval_narrower() -> None:
    rng = np.random.default_rng(0)
    truth = (rng.random(1_000) < 0.7).astype(float)
    label = np.where(np.arange(1_000) < 100, truth, np.nan)
    chances = np.where(np.arange(1_000) < 100, 0.1, np.nan)
    good = prediction_powered(JudgedRows(truth, np.arange(1_000), label, chances))
    none = prediction_powered(JudgedRows(np.zeros(1_000), np.arange(1_000), label, chances))

    def width(figure: IntervalEstimate) -> float:
        assert figure.high is not None
        assert figure.low is not None
        return figure.high - figure.low

    assert width(good) < 0.5 * width(none)
    # No error was seen on 100 labels, yet there may be some.
    assert width(good) > 2 * 1.96 * (0.7 * 0.3 / 1_000) ** 0.5


def test_rows_are_weighted_by_inverse_probability() -> None:
    # Half of the rows are drawn four times as often; people say 1 of those and 0 of the others.
    label = np.full(100, np.nan)
    label[:40], label[50:60] = 1.0, 0.0
    chances = np.where(np.isnan(label), np.nan, np.repeat([0.8, 0.2], 50))
    found = prediction_powered(JudgedRows(np.full(100, 0.0), np.arange(100), label, chances))
    assert found.value == pytest.approx(0.5)


def test_by_sample_each_sample_counts_the_same() -> None:
    sample = np.array([0] * 9 + [1])
    label = np.array([1.0] * 9 + [0.0])
    rows = JudgedRows(label, sample, label, np.ones(10))
    assert prediction_powered(rows).value == pytest.approx(0.9)
    assert prediction_powered(rows, by_sample=True).value == pytest.approx(0.5)


def test_rows_of_one_sample_are_a_cluster() -> None:
    judgements, labels = "1" * 60 + "0" * 40, "1" * 60 + "0" * 40
    many = prediction_powered(judged(judgements, labels, probability=1.0))
    few = prediction_powered(judged(judgements, labels, probability=1.0, per_sample=10))
    assert few.low is not None
    assert many.low is not None
    assert few.low < many.low


def test_below_two_labels_or_samples_it_is_undefined() -> None:
    assert prediction_powered(judged("10", "1.", probability=0.5)) == NOTHING
    assert prediction_powered(judged("10", "10", probability=1.0, per_sample=2)) == NOTHING


def test_rogan_and_gladens_rate() -> None:
    found = rogan_gladen(0.3, 1_000, (90, 100), (160, 200))
    assert found.value == pytest.approx((0.3 + 0.8 - 1) / (0.9 + 0.8 - 1))
    assert found.low is not None
    assert found.high is not None
    assert (round(found.low, 3), round(found.high, 3)) == (0.056, 0.219)


def test_rogan_and_gladens_rate_stays_a_rate() -> None:
    assert rogan_gladen(0.01, 100, (9, 10), (8, 10)).value == 0
    assert rogan_gladen(0.99, 100, (8, 10), (9, 10)).value == 1
    for right, clear in (((5, 10), (5, 10)), ((0, 0), (5, 5)), ((5, 5), (0, 0))):
        assert rogan_gladen(0.5, 100, right, clear) == NOTHING


def test_effective_sample_size() -> None:
    judgements = np.repeat([1.0, 0.0], 50)
    assert effective_sample_size(judgements, np.arange(100)) == pytest.approx(99)
    # Ten rows a sample that all say the same are worth one.
    assert effective_sample_size(judgements, np.arange(100) // 10) == pytest.approx(9)
    assert effective_sample_size(np.ones(100), np.arange(100) // 10) == 10
