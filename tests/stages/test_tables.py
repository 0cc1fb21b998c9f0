import math
from uuid import UUID

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from claimflow.stages.rows import Sample, Score, Verdict, row_kinds
from claimflow.stages.tables import TableError, build, conform, content_columns, python_type, schema

SCORE = {"sample_id": "s", "metric": "m", "score": 0.5, "status": "scored"}


def test_schema_of_a_row() -> None:
    assert dict(schema(Sample)) == {
        "sample_id": pl.String,
        "user_input": pl.String,
        "response": pl.String,
        "reference": pl.String,
        "retrieved_contexts": pl.List(pl.String),
        "other_references": pl.List(pl.String),
        "response_claims": pl.List(pl.String),
        "reference_claims": pl.List(pl.String),
        "metadata": pl.String,
    }


@pytest.mark.parametrize("row", row_kinds(), ids=lambda row: row.table)
def test_every_row_has_a_schema_and_a_key_of_content(row) -> None:
    assert list(schema(row)) == list(row.model_fields)
    assert set(row.key) <= set(content_columns(row))
    assert conform(row, build(row, [])).is_empty()


def test_audit_columns_are_no_content() -> None:
    content = ("claim_id", "against", "passage", "verdict", "status", "failure", "support")
    assert content_columns(Verdict) == content


def test_python_types() -> None:
    assert python_type(Verdict, "claim_id") is UUID
    assert python_type(Verdict, "verdict") is str
    assert python_type(Verdict, "p_entailed") is float
    assert python_type(Sample, "retrieved_contexts") == list[str]


def test_build_fills_in_defaults_and_refuses_other_fields() -> None:
    none = dict.fromkeys(("reason", "part", "whole"))
    assert build(Score, [SCORE]).row(0, named=True) == SCORE | none | {"details": "{}"}
    with pytest.raises(ValidationError):
        build(Score, [SCORE | {"sore": 1}])


def test_conform_adds_defaults_orders_and_casts() -> None:
    frame = pl.DataFrame({"status": ["scored"], "score": [1], "metric": ["m"], "sample_id": ["s"]})
    assert conform(Score, frame).equals(build(Score, [SCORE | {"score": 1.0}]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"extra": 1}, "unknown column 'extra'"),
        ({"sample_id": None}, "NULL in column 'sample_id'"),
        ({"score": math.nan}, "NaN or infinity in column 'score'"),
        ({"score": math.inf}, "NaN or infinity in column 'score'"),
        ({"status": "odd"}, "'status' is 'odd', not one of scored, undefined, failed"),
    ],
)
def test_conform_names_each_fault(changes: dict[str, object], message: str) -> None:
    with pytest.raises(TableError) as caught:
        conform(Score, pl.DataFrame([SCORE | changes]))
    assert str(caught.value) == f"not a table of scores: {message}"


def test_conform_names_all_faults_at_once() -> None:
    with pytest.raises(TableError) as caught:
        conform(Score, pl.DataFrame({"metric": ["m"], "odd": [1]}))
    assert str(caught.value) == (
        "not a table of scores: unknown column 'odd'; missing column 'sample_id'; "
        "missing column 'score'; missing column 'status'"
    )


def test_keys_do_not_repeat() -> None:
    with pytest.raises(TableError) as caught:
        conform(Score, pl.DataFrame([SCORE, SCORE]))
    assert str(caught.value) == "not a table of scores: 1 rows repeat a key (sample_id, metric)"


@given(st.lists(st.tuples(st.text(), st.floats(allow_nan=True) | st.none()), max_size=5))
def test_nan_is_refused(values: list[tuple[str, float | None]]) -> None:
    frame = pl.DataFrame(
        [SCORE | {"metric": f"{i}{name}", "score": value} for i, (name, value) in enumerate(values)]
        or [SCORE],
        schema_overrides={"score": pl.Float64},
    )
    bad = any(value is not None and not math.isfinite(value) for _, value in values)
    if bad:
        with pytest.raises(TableError):
            conform(Score, frame)
    else:
        assert conform(Score, frame).height == max(1, len(values))
