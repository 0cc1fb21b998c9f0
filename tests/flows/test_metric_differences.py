"""Differences of metrics between two runs, and their findings."""

from collections.abc import Mapping

import polars as pl
import pytest

from claimflow.flows.errors import InputError
from claimflow.flows.quality.metric_differences import (
    MetricDifference,
    StatusCounts,
    metric_differences,
    select_metrics,
    unshared_metrics,
)

Values = Mapping[str, float | str | None]


def pairs(a: Mapping[str, Values], b: Mapping[str, Values]) -> pl.DataFrame:
    """As `paired_scores` gives them."""
    rows = [
        (metric, metric, sample, *side(a, metric, sample), *side(b, metric, sample))
        for metric in dict.fromkeys([*a, *b])
        for sample in dict.fromkeys([*a.get(metric, ()), *b.get(metric, ())])
    ]
    texts = ("name", "metric", "sample_id", "status_a", "status_b")
    columns = ("name", "metric", "sample_id", "status_a", "score_a", "status_b", "score_b")
    kinds = {name: pl.String if name in texts else pl.Float64 for name in columns}
    return pl.DataFrame(rows, kinds, orient="row")


def side(run: Mapping[str, Values], metric: str, sample: str) -> tuple[str | None, float | None]:
    value = run.get(metric, {}).get(sample)
    return (value, None) if isinstance(value, str | None) else ("scored", float(value))


def found(a: Mapping[str, Values], b: Mapping[str, Values]) -> list[MetricDifference]:
    return metric_differences(pairs(a, b))


def test_means_are_over_the_samples_that_both_have_scored() -> None:
    a: Values = {"1": 0.5, "2": 1.0, "3": "failed", "4": 0.0, "5": "undefined", "6": 0.25}
    b: Values = {"1": 0.75, "2": 0.5, "3": 1.0, "4": "undefined", "5": "failed", "7": 0.0}
    [one] = found({"faithfulness": a}, {"faithfulness": b})
    assert (one.a, one.b) == (StatusCounts(4, 1, 1, 1), StatusCounts(4, 1, 1, 1))
    assert (one.mean_a, one.mean_b) == (0.75, 0.625)
    assert one.difference is not None
    assert (one.difference.samples, one.difference.mean) == (2, -0.125)


def test_a_metric_without_a_common_sample_is_unclear() -> None:
    [one] = found({"faithfulness": {"1": 0.5}}, {"faithfulness": {"2": 0.5}})
    assert (one.difference, one.mean_a, one.p_holm, one.finding) == (None, None, None, "unclear")


def test_better_is_lower_for_a_lower_is_better_metric() -> None:
    names = [f"s{i}" for i in range(12)]
    low, high = dict.fromkeys(names, 0.25), {n: 0.5 + i / 100 for i, n in enumerate(names)}
    metrics = ("faithfulness", "noise_sensitivity")
    up = found(dict.fromkeys(metrics, low), dict.fromkeys(metrics, high))
    assert [(one.metric, one.finding) for one in up] == [
        ("faithfulness", "better"),
        ("noise_sensitivity", "worse"),
    ]
    assert [one.lower_is_better for one in up] == [False, True]


def test_p_is_corrected_for_the_metrics_with_changed_scores_only() -> None:
    names = [f"s{i}" for i in range(6)]
    before = dict.fromkeys(names, 0.5)
    after = {name: 0.6 + i / 100 for i, name in enumerate(names)}
    a = dict.fromkeys(("faithfulness", "context_recall", "chrf"), before)
    b = {"faithfulness": after, "context_recall": after, "chrf": before}
    up, also_up, still = found(a, b)
    assert up.difference is not None
    assert up.difference.p == pytest.approx(2 / 64)
    assert up.p_holm == also_up.p_holm == pytest.approx(4 / 64)
    assert (up.finding, still.finding, still.p_holm) == ("unclear", "same", 1.0)


def test_intervals_are_clipped_to_possible_differences() -> None:
    [one] = found({"chrf": {"1": 0.0, "2": 0.0}}, {"chrf": {"1": 1.0, "2": 0.5}})
    assert one.difference is not None
    assert (one.difference.low, one.difference.high) == (-1.0, 1.0)
    similar = "semantic_similarity"
    [one] = found({similar: {"1": -0.5, "2": 0.0}}, {similar: {"1": 1.0, "2": 0.0}})
    assert one.difference is not None
    assert one.difference.high is not None
    assert one.difference.high > 1


def test_metrics_of_one_run_only_are_named_and_not_compared() -> None:
    both = pairs({"bleu": {"1": 0.5}, "chrf": {"1": 1}}, {"chrf": {"1": 1}, "rouge": {}})
    assert [one.metric for one in metric_differences(both)] == ["chrf"]
    assert unshared_metrics(both) == (["bleu"], [])


def test_metrics_are_chosen_by_name() -> None:
    both = pairs({"bleu": {"1": 0.5}, "chrf": {"1": 1}}, {"chrf": {"1": 1}})
    assert set(select_metrics(both, ["chrf"])["name"]) == {"chrf"}
    assert select_metrics(both, []).height == both.height
    with pytest.raises(InputError) as caught:
        select_metrics(both, ["crf", "chrf"])
    assert str(caught.value) == ("--metric: neither run has scores of 'crf'; did you mean 'chrf'?")
