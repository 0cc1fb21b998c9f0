"""Counts of claims by verdict, and the positions of keys that they are counted by."""

from typing import Any

import polars as pl
import pytest

from claimflow.stages.rows import Claim, Sample, Verdict, content_key
from claimflow.stages.scores.claim_counts import count_claims, positions, tally
from claimflow.stages.tables import TableError, build

Judged = tuple[str, int | None, str | None]
"""A claim, a passage, and a verdict or the kind of failure; None for a failure of no kind."""

LABELS = ("entailed", "contradicted", "neutral")


def counts(
    claims: list[str], verdicts: list[Judged], *, contexts: list[str] | None = None, **fields: Any
) -> tuple[Any, ...]:
    """Counts of one sample, from claims by name and (claim, passage, verdict) triples."""
    samples = build(
        Sample, [{"sample_id": "s", "response": "r", "retrieved_contexts": contexts, **fields}]
    )
    claim_rows = [
        {"claim_id": content_key("claim", c), "sample_id": "s", "of": "response", "claim": c}
        for c in claims
    ]
    verdict_rows = [
        {
            "claim_id": content_key("claim", claim),
            "against": "retrieved_contexts",
            "passage": passage,
            "verdict": outcome if outcome in LABELS else None,
            "status": "judged" if outcome in LABELS else "failed",
            "failure": None if outcome in LABELS else outcome,
        }
        for claim, passage, outcome in verdicts
    ]
    found = count_claims(
        samples,
        build(Claim, claim_rows),
        build(Verdict, verdict_rows),
        of="response",
        against="retrieved_contexts",
    )
    # Without a support the verdicts count.
    assert found["support"].to_list() == found["entailed"].to_list()
    (row,) = found.drop("support").rows()
    return row


def test_joined_premises() -> None:
    verdicts: list[Judged] = [
        ("a", None, "entailed"),
        ("b", None, "contradicted"),
        ("c", None, "neutral"),
    ]
    assert counts(["a", "b", "c"], verdicts, contexts=["x", "y"]) == (3, 1, 1, 1, None)


def test_an_entailing_passage_goes_before_a_contradicting_one() -> None:
    verdicts: list[Judged] = [
        ("a", 0, "contradicted"),
        ("a", 1, "entailed"),
        ("b", 0, "neutral"),
        ("b", 1, "contradicted"),
        ("c", 0, "neutral"),
        ("c", 1, "neutral"),
    ]
    assert counts(["a", "b", "c"], verdicts, contexts=["x", "y"]) == (3, 1, 1, 1, None)


def test_a_claim_without_a_verdict_fails_the_count() -> None:
    failure = "1 of 2 claims of the response have no verdict"
    assert counts(["a", "b"], [("a", None, "entailed")], contexts=["x"]) == (
        2,
        None,
        None,
        None,
        failure,
    )


def test_a_failed_verdict_fails_the_count_even_beside_an_entailing_passage() -> None:
    verdicts: list[Judged] = [("a", 0, "entailed"), ("a", 1, None)]
    *_, failure = counts(["a"], verdicts, contexts=["x", "y"])
    assert failure == "1 of 1 claims of the response have no verdict"


def test_the_kinds_of_failure_are_named_once_each() -> None:
    verdicts: list[Judged] = [
        ("a", None, "timeout"),
        ("b", None, "missing"),
        ("c", None, "timeout"),
        ("d", None, "entailed"),
        ("e", None, "neutral"),
    ]
    *_, failure = counts(["a", "b", "c", "d", "e"], verdicts, contexts=["x"])
    assert failure == "3 of 5 claims of the response have no verdict (missing, timeout)"


def test_failures_with_and_without_a_kind_are_named_together() -> None:
    verdicts: list[Judged] = [
        ("a", 0, "timeout"),
        ("a", 1, "refused"),
        ("b", 0, None),
        ("b", 1, "entailed"),
    ]
    *_, failure = counts(["a", "b", "c"], verdicts, contexts=["x", "y"])
    assert failure == "3 of 3 claims of the response have no verdict (refused, timeout)"


def test_a_passage_without_a_verdict_fails_the_count() -> None:
    *_, failure = counts(["a"], [("a", 0, "entailed")], contexts=["x", "y"])
    assert failure == "1 of 1 claims of the response have no verdict"


def test_a_verdict_without_a_label_is_missing() -> None:
    texts = {"sample_id": "s", "response": "r", "retrieved_contexts": ["x"]}
    key = {"claim_id": content_key("claim", "a")}
    found = count_claims(
        build(Sample, [texts]),
        build(Claim, [{**key, "sample_id": "s", "of": "response", "claim": "a"}]),
        build(Verdict, [{**key, "against": "retrieved_contexts", "verdict": None}]),
        of="response",
        against="retrieved_contexts",
    )
    assert found["failure"].to_list() == ["1 of 1 claims of the response have no verdict"]


def test_blank_passages_need_no_verdict() -> None:
    assert counts(["a"], [("a", 1, "entailed")], contexts=["", "y"]) == (1, 1, 0, 0, None)
    assert counts(["a", "b"], [], contexts=[]) == (2, 0, 0, 2, None)


def test_no_claims() -> None:
    assert counts([], [], contexts=["x"]) == (0, 0, 0, 0, None)


def test_verdicts_on_other_claims_do_not_count() -> None:
    verdicts: list[Judged] = [("a", None, "neutral"), ("other", None, "entailed")]
    assert counts(["a"], verdicts, contexts=["x"]) == (1, 0, 0, 1, None)


@pytest.mark.parametrize(("kind", "because"), [(None, ""), ("refused", " (refused)")])
def test_a_failed_decomposition_fails_the_count(kind: str | None, because: str) -> None:
    samples = build(Sample, [{"sample_id": "s", "response": "r", "reference": "x"}])
    failed = {"claim_id": content_key("claim", "s"), "sample_id": "s", "of": "response"}
    claims = build(Claim, [{**failed, "claim": None, "status": "failed", "failure": kind}])
    found = count_claims(
        samples, claims, build(Verdict, []), of="response", against="reference"
    ).rows()
    failure = f"the response could not be decomposed into claims{because}"
    assert found == [(0, None, None, None, None, failure)]


def test_each_sample_names_its_own_kinds_of_failure() -> None:
    kinds = {"s": "missing", "t": "timeout", "u": None}
    samples = build(Sample, [{"sample_id": name, "reference": "x"} for name in kinds])
    ids = {name: content_key("claim", name) for name in kinds}
    claims = build(
        Claim,
        [
            {"claim_id": ids[name], "sample_id": name, "of": "response", "claim": "c"}
            for name in kinds
        ],
    )
    verdicts = build(
        Verdict,
        [
            {
                "claim_id": ids[name],
                "against": "reference",
                "verdict": None,
                "status": "failed",
                "failure": kind,
            }
            for name, kind in kinds.items()
        ],
    )
    found = count_claims(samples, claims, verdicts, of="response", against="reference")
    failure = "1 of 1 claims of the response have no verdict"
    assert found["failure"].to_list() == [f"{failure} (missing)", f"{failure} (timeout)", failure]


def test_every_sample_has_a_row_in_order() -> None:
    samples = build(Sample, [{"sample_id": name, "reference": "x"} for name in "cab"])
    key = {"claim_id": content_key("claim", "b"), "sample_id": "b"}
    claims = build(Claim, [{**key, "of": "response", "claim": "x"}])
    judged = {"claim_id": key["claim_id"], "against": "reference", "verdict": "neutral"}
    found = count_claims(
        samples, claims, build(Verdict, [judged]), of="response", against="reference"
    )
    assert found["claims"].to_list() == [0, 0, 1]
    assert found["neutral"].to_list() == [0, 0, 1]


def test_without_tables_the_counts_are_null() -> None:
    samples = build(Sample, [{"sample_id": "s"}])
    found = count_claims(samples, None, None, of="response", against="reference")
    assert found.rows() == [(None, None, None, None, None, None)]


def test_tables_of_another_direction_are_refused() -> None:
    samples = build(Sample, [{"sample_id": "s"}])
    key = {"claim_id": content_key("claim", "s")}
    claims = build(Claim, [{**key, "sample_id": "s", "of": "reference", "claim": "c"}])
    verdicts = build(Verdict, [{**key, "against": "response", "verdict": "neutral"}])
    none: tuple[pl.DataFrame, pl.DataFrame] = build(Claim, []), build(Verdict, [])
    with pytest.raises(TableError, match="expected rows with of response, found reference"):
        count_claims(samples, claims, none[1], of="response", against="reference")
    with pytest.raises(TableError, match="expected rows with against reference, found response"):
        count_claims(samples, none[0], verdicts, of="response", against="reference")


@pytest.mark.parametrize(
    ("keys", "among", "places"),
    [
        (["b", "b", "a", "b"], ["a", "b"], [1, 1, 0, 1]),
        (["x", "a", "x", "x"], ["a"], [None, 0, None, None]),
        ([], ["a"], []),
        (["a"], [], [None]),
    ],
)
def test_positions_of_keys(keys: list[str], among: list[str], places: list[int]) -> None:
    found = positions(pl.Series(keys, dtype=pl.String), pl.Series(among, dtype=pl.String))
    assert found.to_list() == places


def test_tally_counts_every_position() -> None:
    assert tally(pl.Series([2, 0, 2], dtype=pl.UInt32), 4).to_list() == [1, 0, 2, 0]
    assert tally(pl.Series([], dtype=pl.UInt32), 2).to_list() == [0, 0]
    assert tally(pl.Series([], dtype=pl.UInt32), 0).to_list() == []
