"""Status, reason and score of a row, in their order of precedence."""

import json
from typing import Any

import polars as pl
import pytest

from claimflow.stages.scores.finalize import CompatScore, finalize_scores

FRAME = {
    "sample_id": pl.String,
    "missing": pl.String,
    "case": pl.String,
    "case_value": pl.String,
    "failure": pl.String,
    "value": pl.Float64,
    "part": pl.Int64,
    "whole": pl.Int64,
}


def finalized(compat: CompatScore | None = None, **columns: Any) -> dict[str, Any]:
    frame = pl.DataFrame([{"sample_id": "s", **columns}], schema=FRAME)
    scores = finalize_scores(
        frame,
        metric="m",
        value=pl.col("value"),
        undefined=pl.lit("no claims"),
        details={"value": pl.col("value"), "a": pl.lit(1)},
        part=pl.col("part"),
        whole=pl.col("whole"),
        compat=compat,
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
            {"missing": "missing: response", "case": "contexts", "case_value": "1"},
            None,
            "undefined",
            "missing: response",
        ),
        (
            {"case": "response", "case_value": "formula"},
            None,
            "undefined",
            "no claims; the response is empty (policy: formula)",
        ),
        (
            {"case": "contexts", "case_value": "formula", "value": 0.0},
            0.0,
            "scored",
            "there are no contexts (policy: formula)",
        ),
        (
            {"case": "refusal", "case_value": "formula", "failure": "it failed"},
            None,
            "failed",
            "it failed; the response is a refusal (policy: formula)",
        ),
        (
            {"case": "refusal", "case_value": "1", "failure": "it failed", "value": 0.5},
            1.0,
            "scored",
            "the response is a refusal (policy: 1)",
        ),
        (
            {"case": "reference", "case_value": "undefined", "value": 0.5},
            None,
            "undefined",
            "the reference is empty (policy: undefined)",
        ),
    ],
)
def test_precedence(columns: Any, score: float | None, status: str, reason: str | None) -> None:
    row = finalized(**columns)
    assert (row["score"], row["status"], row["reason"]) == (score, status, reason)
    assert (row["sample_id"], row["metric"]) == ("s", "m")


def test_details_are_json_with_sorted_names_and_the_policy() -> None:
    text = finalized(case="response", case_value="0")["details"]
    assert json.loads(text) == {"a": 1, "empty": "response", "value": None, "worth": "0"}
    assert list(json.loads(text)) == ["a", "empty", "value", "worth"]


@pytest.mark.parametrize(
    ("columns", "ratio"),
    [
        ({"value": 0.5, "part": 1, "whole": 2}, (1.0, 2.0)),
        ({"value": 0.0, "part": 0, "whole": 0}, (None, None)),
        ({"part": 1, "whole": 2}, (None, None)),
        ({"value": 0.5, "part": 1, "whole": 2, "failure": "it failed"}, (None, None)),
        ({"value": 0.5, "part": 1, "whole": 2, "missing": "missing: response"}, (None, None)),
        (
            {"value": 0.5, "part": 1, "whole": 2, "case": "response", "case_value": "1"},
            (None, None),
        ),
        (
            {"value": 0.5, "part": 1, "whole": 2, "case": "response", "case_value": "formula"},
            (1.0, 2.0),
        ),
    ],
)
def test_part_and_whole_of_a_score_by_the_formula(columns: Any, ratio: Any) -> None:
    row = finalized(**columns)
    assert (row["part"], row["whole"]) == ratio


THEIRS = CompatScore("lib-1", pl.col("value") * 2, pl.lit("lib-1 gives NaN: no claims"))


@pytest.mark.parametrize(
    ("columns", "score", "status", "reason", "corrected"),
    [
        ({"value": 0.25, "part": 1, "whole": 4}, 0.5, "scored", None, 0.25),
        ({}, None, "undefined", "lib-1 gives NaN: no claims", None),
        ({"case": "contexts", "case_value": "formula", "value": 0.0}, 0.0, "scored", None, 0.0),
        ({"failure": "it failed", "value": 0.25}, None, "failed", "it failed", None),
        (
            {"missing": "missing: response", "value": 0.25},
            None,
            "undefined",
            "missing: response",
            None,
        ),
    ],
)
def test_compat_scores_have_ours_in_details(
    columns: Any, score: Any, status: str, reason: Any, corrected: Any
) -> None:
    row = finalized(THEIRS, **columns)
    assert (row["score"], row["status"], row["reason"]) == (score, status, reason)
    assert (row["part"], row["whole"]) == (None, None)
    details = json.loads(row["details"])
    assert (details["compat"], details["corrected"]) == ("lib-1", corrected)
    assert list(details) == sorted(details)
