"""Pairing of the scores and samples of two runs."""

import polars as pl
import pytest

from claimflow.flows.errors import InputError
from claimflow.flows.quality.metric_differences import (
    changed_samples,
    changed_scores,
    metadata_values,
    metric_differences,
    paired_scores,
)
from claimflow.flows.store.store import Store
from tests.flows.recorded_runs import Table, put_run, scores


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store") / "s.duckdb")


def test_a_metric_is_paired_across_step_names(store: Store) -> None:
    a = put_run(store, {"old": scores("faithfulness", {"x": 0.5})})
    b = put_run(store, {"new": scores("faithfulness", {"x": 0.75})})
    with store.reading() as connection:
        [row] = paired_scores(connection, a, b).to_dicts()
    assert (row["name"], row["score_a"], row["score_b"]) == ("faithfulness", 0.5, 0.75)


def test_a_metric_that_several_steps_make_is_paired_by_step(store: Store) -> None:
    one, two = scores("faithfulness", {"x": 0.5}), scores("faithfulness", {"x": 0.25})
    a = put_run(store, {"strict": one})
    b = put_run(store, {"loose": one, "strict": two})
    with store.reading() as connection:
        rows = paired_scores(connection, a, b).select("name", "score_a", "score_b").rows()
    assert sorted(rows, key=str) == [
        ("loose.faithfulness", None, 0.5),
        ("strict.faithfulness", 0.5, 0.25),
    ]


def test_changed_scores_are_sorted_by_size_with_changed_statuses_last(store: Store) -> None:
    before = {"a": 0.5, "b": 0.5, "c": 0.1 + 0.2, "d": "failed", "e": 0.5, "f": 1.0}
    after = {"a": 0.75, "b": 0.0, "c": 0.3, "d": 0.5, "e": "undefined", "g": 1.0}
    a = put_run(store, {"s": scores("faithfulness", before)})
    b = put_run(store, {"s": scores("faithfulness", after)})
    with store.reading() as connection:
        moved = changed_scores(paired_scores(connection, a, b))
    columns = ("sample_id", "difference", "status_a", "status_b", "reason_a", "reason_b")
    assert moved.select(columns).rows() == [
        ("b", -0.5, "scored", "scored", None, None),
        ("a", 0.25, "scored", "scored", None, None),
        ("d", None, "failed", "scored", "why failed", None),
        ("e", None, "scored", "undefined", None, "why undefined"),
    ]


def test_samples_differ_by_any_text_but_not_by_metadata(store: Store) -> None:
    before = [
        {"sample_id": "same", "response": "R", "metadata": '{"day": 1}'},
        {"sample_id": "text", "response": "R", "reference": None, "retrieved_contexts": ["x"]},
        {"sample_id": "gone"},
    ]
    after = [
        {"sample_id": "same", "response": "R", "metadata": '{"day": 2}'},
        {"sample_id": "text", "response": "R", "reference": "", "retrieved_contexts": ["x", "y"]},
        {"sample_id": "added"},
    ]
    a = put_run(store, {"samples": Table("samples", before)})
    b = put_run(store, {"samples": Table("samples", after)})
    with store.reading() as connection:
        assert changed_samples(connection, a, b).rows() == [
            ("text", "changed", ["reference", "retrieved_contexts"]),
            ("added", "new", []),
            ("gone", "removed", []),
        ]


def test_samples_are_grouped_by_any_metadata_field(store: Store) -> None:
    rows = [
        {"sample_id": "1", "metadata": '{"a/b~c": "x"}'},
        {"sample_id": "2", "metadata": '{"a/b~c": "x"}'},
        {"sample_id": "3", "metadata": '{"a/b~c": 7}'},
        {"sample_id": "x", "metadata": "{}"},
        {"sample_id": "4", "metadata": '{"a/b~c": null}'},
    ]
    run = put_run(store, {"samples": Table("samples", rows)})
    with store.reading() as connection:
        units = metadata_values(connection, run, "a/b~c")
        assert units == {"1": "x", "2": "x", "3": "7", "x": None, "4": None}
        with pytest.raises(InputError, match="no sample has the field 'a/b'; did you mean 'a/b~c'"):
            metadata_values(connection, run, "a/b")
    scored = {"status": "scored", "score": 0.5}
    pairs = pl.DataFrame(
        {"name": "m", "metric": "m", "sample_id": name}
        | {f"{key}_{side}": value for side in "ab" for key, value in scored.items()}
        for name in units
    )
    [found] = metric_differences(pairs, units)
    assert found.difference is not None
    assert (found.difference.samples, found.difference.units) == (5, 4)
