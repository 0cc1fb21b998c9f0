"""Status, reason and score of a row, in their order of precedence."""

import json
from typing import Any

import polars as pl
import pytest

from stages.settle import settle

FRAME = {
    "sample_id": pl.String,
    "missing": pl.String,
    "case": pl.String,
    "worth": pl.String,
    "failure": pl.String,
    "value": pl.Float64,
}


def settled(**columns: Any) -> dict[str, Any]:
    frame = pl.DataFrame([{"sample_id": "s", **columns}], schema=FRAME)
    scores = settle(
        frame,
        metric="m",
        value=pl.col("value"),
        nothing=pl.lit("no claims"),
        details={"value": pl.col("value"), "a": pl.lit(1)},
    )
    return scores.row(0, named=True)


@pytest.mark.parametrize(
    ("columns", "score", "status", "reason"),
    [
        ({"value": 0.5}, 0.5, "scored", None),
        ({}, None, "undefined", "no claims"),
        ({"failure": "it failed", "value": 0.5}, None, "failed", "it failed"),
        ({"failure": "it failed"}, None, "failed", "it failed"),
        (
            {"missing": "missing: response", "failure": "it failed", "value": 0.5},
            None,
            "undefined",
            "missing: response",
        ),
        (
            {"missing": "missing: response", "case": "contexts", "worth": "1"},
            None,
            "undefined",
            "missing: response",
        ),
        (
            {"case": "response", "worth": "formula"},
            None,
            "undefined",
            "no claims; the response is empty (policy: formula)",
        ),
        (
            {"case": "contexts", "worth": "formula", "value": 0.0},
            0.0,
            "scored",
            "there are no contexts (policy: formula)",
        ),
        (
            {"case": "refusal", "worth": "formula", "failure": "it failed"},
            None,
            "failed",
            "it failed; the response is a refusal (policy: formula)",
        ),
        (
            {"case": "refusal", "worth": "1", "failure": "it failed", "value": 0.5},
            1.0,
            "scored",
            "the response is a refusal (policy: 1)",
        ),
        (
            {"case": "reference", "worth": "undefined", "value": 0.5},
            None,
            "undefined",
            "the reference is empty (policy: undefined)",
        ),
    ],
)
def test_precedence(columns: Any, score: float | None, status: str, reason: str | None) -> None:
    row = settled(**columns)
    assert (row["score"], row["status"], row["reason"]) == (score, status, reason)
    assert (row["sample_id"], row["metric"]) == ("s", "m")


def test_details_are_json_with_sorted_names_and_the_policy() -> None:
    text = settled(case="response", worth="0")["details"]
    assert json.loads(text) == {"a": 1, "empty": "response", "value": None, "worth": "0"}
    assert list(json.loads(text)) == ["a", "empty", "value", "worth"]
