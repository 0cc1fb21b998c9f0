"""Summaries of scores."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimflow.stages.rows import Sample, Score
from claimflow.stages.scores.formulas import clustered_mean_interval, mean_interval
from claimflow.stages.scores.summaries import SummarizeScores
from claimflow.stages.tables import build

SAMPLES = build(
    Sample,
    [
        {"sample_id": "a", "metadata": '{"topic":"law","level":1}'},
        {"sample_id": "b", "metadata": '{"topic":"law","level":2}'},
        {"sample_id": "c", "metadata": '{"topic":"art","level":1}'},
        {"sample_id": "d", "metadata": '{"level":null}'},
    ],
)


def scores(metric: str, **values: Any) -> Any:
    """A number is a score, a pair its part and whole, a word the status of a sample without."""
    rows = []
    for sample_id, value in values.items():
        row = {"sample_id": sample_id, "metric": metric, "score": None, "status": "scored"}
        match value:
            case str():
                row |= {"status": value}
            case (part, whole):
                row |= {"score": part / whole if whole else 0.0, "part": part, "whole": whole}
            case _:
                row |= {"score": value}
        rows.append(row)
    return build(Score, rows)


def summarized(tables: Any, *slices: str) -> Any:
    return SummarizeScores(slices=slices).make({"samples": SAMPLES, "scores": tables}, {})


def test_one_row_per_metric_of_every_step() -> None:
    table = summarized(
        {
            "strict": scores("m", a=0.25, b=0.5, c="undefined", d="failed"),
            "loose": scores("m", a=1.0, b="failed", c="failed", d="failed"),
        }
    )
    assert table.drop("low", "high").rows() == [
        ("strict", "m", None, None, 4, 2, 1, 1, 0.375, None, 0.25, 0.375, 0.5),
        ("loose", "m", None, None, 4, 1, 0, 3, 1.0, None, 1.0, 1.0, 1.0),
    ]
    assert table.select("low", "high").rows() == [(0.25, 0.5), (None, None)]


@pytest.mark.parametrize(
    ("values", "mean", "micro_mean"),
    [
        ({"a": (1, 1), "b": (1, 9)}, 5 / 9, 0.2),
        ({"a": (1, 2), "b": 1.0, "c": "undefined", "d": "failed"}, 0.75, 0.5),
        ({"a": (0, 3), "b": (0, 1)}, 0.0, 0.0),
        ({"a": 0.5}, 0.5, None),
        ({"a": "failed"}, None, None),
        ({"a": (0, 0), "b": 1.0}, 0.5, None),
    ],
)
def test_the_micro_mean_pools_the_parts_and_wholes_of_the_scored(
    values: dict[str, Any], mean: float | None, micro_mean: float | None
) -> None:
    assert summarized({"s": scores("m", **values)}).select("mean", "micro_mean").rows() == [
        (mean, micro_mean)
    ]


@pytest.mark.parametrize(
    "fields", [{"whole": None}, {"part": None}, {"status": "failed", "score": None}]
)
def test_a_row_without_part_whole_or_score_is_not_pooled(fields: dict[str, Any]) -> None:
    row = {"metric": "m", "score": 0.5, "status": "scored", "part": 1, "whole": 2}
    others = build(
        Score, [{**row, "sample_id": "a"}, {**row, "sample_id": "b", "part": 2, **fields}]
    )
    assert summarized({"s": others})["micro_mean"].to_list() == [0.5]


def test_slices_have_micro_means() -> None:
    table = summarized({"s": scores("m", a=(1, 2), b=(3, 4), c=(0, 4))}, "topic")
    assert table.select("slice_value", "micro_mean").rows() == [
        (None, 0.4), ("art", 0.0), ("law", 4 / 6),
    ]  # fmt: skip


def test_several_metrics_of_one_step() -> None:
    both = scores("m", a=0.0, b=1.0).vstack(scores("k", a=1.0, b=1.0))
    table = summarized({"step": both})
    assert table.select("metric", "mean").rows() == [("k", 1.0), ("m", 0.5)]


def test_nothing_scored_gives_no_mean_and_no_nan() -> None:
    (row,) = summarized({"step": scores("m", a="undefined", b="failed")}).to_dicts()
    assert (row["n"], row["n_scored"], row["n_undefined"], row["n_failed"]) == (2, 0, 1, 1)
    statistics = ("mean", "low", "high", "micro_mean", "minimum", "median", "maximum")
    assert [row[name] for name in statistics] == [None] * 7


def test_slices_add_up_and_samples_without_the_field_are_one() -> None:
    table = summarized({"s": scores("m", a=0.0, b=0.5, c=1.0, d="undefined")}, "topic", "level")
    columns = ("slice_field", "slice_value", "n", "n_scored", "mean")
    assert table.select(columns).rows() == [
        (None, None, 4, 3, 0.5),
        ("topic", None, 1, 0, None),
        ("topic", "art", 1, 1, 1.0),
        ("topic", "law", 2, 2, 0.25),
        ("level", None, 1, 0, None),
        ("level", "1", 2, 2, 0.5),
        ("level", "2", 1, 1, 0.5),
    ]


def test_slice_values_that_are_not_text_are_json() -> None:
    metadata = '{"x":{"b":[1,"é"],"a":true}}'
    sample = build(Sample, [{"sample_id": "a", "metadata": metadata}])
    table = SummarizeScores(slices=("x", "x")).run(sample, {"s": scores("m", a=1.0)})
    assert table["slice_value"].to_list() == [None, '{"a":true,"b":[1,"é"]}']


TURNS = build(
    Sample,
    [
        {"sample_id": "a", "metadata": '{"conversation_id":1,"topic":"law"}'},
        {"sample_id": "b", "metadata": '{"conversation_id":"1","topic":"art"}'},
        {"sample_id": "c", "metadata": '{"conversation_id":null,"topic":"law"}'},
        {"sample_id": "d", "metadata": '{"x":{"conversation_id":"1"},"topic":"art"}'},
        {"sample_id": "s-c", "metadata": '{"conversation_id":"c","topic":"law"}'},
    ],
)


def test_intervals_are_clustered_by_conversation() -> None:
    values = {"a": 0.2, "b": 0.3, "c": 0.9, "d": 0.5, "s-c": 0.7}
    tables = {"s": scores("m", **values), "t": scores("m", **{**values, "b": "failed"})}
    samples = {"samples": TURNS, "scores": tables}
    rows = SummarizeScores(slices=("topic",)).make(samples, {}).select("low", "high").rows()

    def bounds(of: str, clusters: str) -> Any:
        return clustered_mean_interval(
            np.array([values[one] for one in of.split()]), clusters.split()
        )

    assert rows[0] == bounds("a b d s-c c", "1 1 d s c")
    assert (
        rows[1] == bounds("a d s-c c", "1 d s c") == mean_interval(np.array([0.2, 0.5, 0.7, 0.9]))
    )
    assert rows[2] == bounds("b d", "1 d")
    assert rows[3] == bounds("a s-c c", "1 s c")
    alone = build(Sample, [{"sample_id": name} for name in values])
    (unclustered,) = (
        SummarizeScores()
        .make({"samples": alone, "scores": {"s": tables["s"]}}, {})
        .select("low", "high")
        .rows()
    )
    assert unclustered == mean_interval(np.array(sorted(values.values()))) != rows[0]


@pytest.mark.parametrize("tables", [{}, {"s": scores("m")}])
def test_no_scores_give_no_summaries(tables: Any) -> None:
    assert summarized(tables, "topic").height == 0


tenths = st.integers(0, 9).map(lambda n: n * 0.1)
counts = st.tuples(tenths, tenths)
outcome = st.floats(-1, 1) | counts | st.sampled_from(["undefined", "failed"])


@settings(max_examples=30)
@given(values=st.lists(outcome, min_size=1, max_size=4), seed=st.integers(0, 9))
def test_statistics_are_in_order_and_do_not_depend_on_the_order_of_rows(
    values: list[Any], seed: int
) -> None:
    table = scores("m", **dict(zip("abcd", values, strict=False)))
    summary = summarized({"s": table}, "topic")
    shuffled = table.sample(fraction=1, shuffle=True, seed=seed)
    assert summary.equals(summarized({"s": shuffled}, "topic"))
    row = summary.row(0, named=True)
    assert row["n"] == row["n_scored"] + row["n_undefined"] + row["n_failed"] == len(values)
    if row["n_scored"]:
        assert row["minimum"] <= row["median"] <= row["maximum"]
        assert row["minimum"] - 1e-12 <= row["mean"] <= row["maximum"] + 1e-12
