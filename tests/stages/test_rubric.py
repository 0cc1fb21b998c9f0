"""Arithmetic of rubrics: votes on a check, and the score of a sample from its checks."""

import json
from itertools import product
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.judging.checks import PASS_OR_FAIL, CheckVerdict, median_verdict
from claimflow.stages.rows import Claim, RubricVerdict, Sample, content_key
from claimflow.stages.rubric import Rubric
from claimflow.stages.tables import build
from claimflow.stages.tools import Failure

GRADES = ("1", "2", "3")


def vote(verdict: str | None) -> tuple[str, CheckVerdict | Failure]:
    if verdict is None:
        return "judge", Failure("timeout", "late")
    return "judge", CheckVerdict(verdict, "why", "call")


def verdict_of(votes: list[str | None], labels: tuple[str, ...]) -> str | None:
    found = median_verdict([vote(one) for one in votes], labels)
    assert (found.agreement is None) == isinstance(found.verdict, Failure)
    return None if isinstance(found.verdict, Failure) else found.verdict.verdict


@given(st.lists(st.sampled_from([*GRADES, None]), min_size=1, max_size=6))
def test_a_verdict_is_the_one_that_holds_whatever_failed_votes_would_have_been(
    votes: list[str | None],
) -> None:
    lost = votes.count(None)
    given_votes = [one for one in votes if one is not None]
    possible = {
        sorted([*given_votes, *others])[(len(votes) - 1) // 2]
        for others in product(GRADES, repeat=lost)
    }
    assert verdict_of(votes, GRADES) == (possible.pop() if len(possible) == 1 else None)


@pytest.mark.parametrize(
    ("votes", "expected"),
    [
        (["pass", "fail", "pass"], "pass"),
        (["pass", "fail"], "fail"),
        (["pass", "pass", None], "pass"),
        (["pass", None], None),
        (["fail", None], "fail"),
        ([None, None], None),
    ],
)
def test_a_check_passes_if_more_than_half_of_all_votes_say_so(
    votes: list[str | None], expected: str | None
) -> None:
    assert verdict_of(votes, PASS_OR_FAIL) == expected


def scored(
    verdicts: list[tuple[str, str | None, float | None]], **more: Any
) -> dict[str, dict[str, Any]]:
    """Scores of the samples a to c, which all have a response, by sample."""
    rows = [
        {"sample_id": sample, "check_name": f"c{n}", "criterion": "x", "verdict": verdict}
        | {"score": score, "status": "judged" if verdict else "failed"}
        | ({} if verdict else {"failure": "timeout"})
        for n, (sample, verdict, score) in enumerate(verdicts)
    ]
    samples = build(Sample, [{"sample_id": name, "response": "r"} for name in "abc"])
    tables = {"samples": samples, "verdicts": build(RubricVerdict, rows), **more}
    made = Rubric(metric="tone").make(tables, {})
    assert set(made["metric"]) == {"tone"}
    return {row["sample_id"]: row for row in made.iter_rows(named=True)}


def test_a_score_is_the_share_that_passed_or_the_mean_grade() -> None:
    found = scored(
        [
            ("a", "pass", 1.0),
            ("a", "fail", 0.0),
            ("a", "pass", 1.0),
            ("b", "4", 0.75),
            ("b", "5", 1.0),
        ]
    )
    assert (found["a"]["score"], found["a"]["part"], found["a"]["whole"]) == (2 / 3, 2.0, 3.0)
    assert json.loads(found["a"]["details"])["not_passed"] == ["c1"]
    assert (found["b"]["score"], found["b"]["part"], found["b"]["whole"]) == (0.875, None, None)
    assert json.loads(found["b"]["details"])["grade"] == 4.5
    assert (found["c"]["status"], found["c"]["reason"]) == ("undefined", "no checks")


def test_one_check_without_a_verdict_fails_the_score() -> None:
    found = scored([("a", "pass", 1.0), ("a", None, None), ("b", "fail", 0.0)])
    assert (found["a"]["status"], found["a"]["score"]) == ("failed", None)
    assert found["a"]["reason"] == "1 of 2 checks have no verdict (timeout)"
    assert (found["b"]["status"], found["b"]["score"]) == ("scored", 0.0)


def test_claims_that_could_not_be_made_fail_the_score() -> None:
    failed = {"claim_id": content_key("claim", "a"), "sample_id": "a", "of": "response"}
    claims = build(Claim, [failed | {"claim": None, "status": "failed"}])
    found = scored([], claims=claims)
    assert (found["a"]["status"], found["a"]["reason"]) == (
        "failed",
        "the claims could not be made",
    )
    assert (found["b"]["status"], found["b"]["reason"]) == ("undefined", "no claims to check")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=20))
def test_part_over_whole_is_the_score(checks: list[tuple[str, bool]]) -> None:
    found = scored([(name, "pass" if ok else "fail", float(ok)) for name, ok in checks])
    for name, row in found.items():
        own = [ok for sample, ok in checks if sample == name]
        assert row["score"] == (sum(own) / len(own) if own else None)
        assert (row["part"], row["whole"]) == ((sum(own), len(own)) if own else (None, None))


def test_an_empty_response_may_have_a_score_of_its_own() -> None:
    samples = build(Sample, [{"sample_id": "a", "response": " "}])
    stage = Rubric.model_validate({"empty": {"response": 0}})
    made = stage.make({"samples": samples, "verdicts": build(RubricVerdict, [])}, {})
    assert made.select("score", "status").row(0) == (0.0, "scored")
    assert isinstance(made, pl.DataFrame)
