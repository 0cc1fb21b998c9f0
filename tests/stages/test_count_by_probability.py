"""Scores that count claims by the support of their verdicts, with values computed by hand."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from claimflow.stages.base import Stage
from claimflow.stages.registry import STAGES
from claimflow.stages.rows import Claim, Sample, Similarity, Verdict, content_key
from claimflow.stages.scores.answer_metrics import AnswerCorrectness
from claimflow.stages.scores.claim_metrics import ContextRecall, FactualCorrectness, Faithfulness
from claimflow.stages.tables import TableError, build

PROBABILITIES = {"count": "probabilities"}
Supports = Sequence[Any]
"""Of each claim its support, or a list of one for each passage; a text is a verdict without one."""


def verdict(support: float | str | None) -> dict[str, Any]:
    """A verdict with this support: entailed from a half on."""
    if support is None:
        return {"verdict": None, "status": "failed", "failure": "timeout"}
    if isinstance(support, str):
        return {"verdict": support}
    return {"verdict": "entailed" if support >= 0.5 else "neutral", "support": support}


def side(of: str, against: str, by_sample: Mapping[str, Supports]) -> list[pl.DataFrame]:
    """Claims of a side, and the verdicts on them."""
    claims, verdicts = [], []
    for sample_id, supports in by_sample.items():
        for n, support in enumerate(supports):
            key = content_key("claim", sample_id, of, n)
            claims.append({"claim_id": key, "sample_id": sample_id, "of": of, "claim": str(n)})
            passages = enumerate(support) if isinstance(support, list) else [(None, support)]
            row = {"claim_id": key, "against": against}
            verdicts += [{**row, "passage": passage, **verdict(one)} for passage, one in passages]
    return [build(Claim, claims), build(Verdict, verdicts)]


def both(response: Supports, reference: Supports, sample: str = "s") -> list[pl.DataFrame]:
    """What `FactualCorrectness.run` reads besides the samples."""
    (left, in_right) = side("response", "reference", {sample: response})
    (right, in_left) = side("reference", "response", {sample: reference})
    return [left, right, in_right, in_left]


SAMPLES = build(
    Sample,
    [{"sample_id": "s", "response": "a", "reference": "b", "retrieved_contexts": ["c", "d"]}],
)
SIMILAR = build(
    Similarity, [{"sample_id": "s", "left": "response", "right": "reference", "cosine": 0.6}]
)


def scored(table: pl.DataFrame) -> tuple[dict[str, Any], dict[str, Any]]:
    """The one row of a table of scores, and its details."""
    (row,) = table.rows(named=True)
    return row, json.loads(row["details"])


RESPONSE, REFERENCE = [0.9, 0.6, 0.3], [0.8, 0.2]
# Expected are 1.8 of 3 response claims and 1.0 of 2 reference claims; entailed are 2 and 1.


@pytest.mark.parametrize(
    ("chosen", "by_verdicts", "by_probabilities", "part", "whole"),
    [
        ({"mode": "precision"}, 2 / 3, 1.8 / 3, 1.8, 3.0),
        ({"mode": "recall"}, 2 / 3, 1.8 / 2.8, 1.8, 2.8),
        ({"mode": "recall", "recall_of": "reference"}, 1 / 2, 1 / 2, 1.0, 2.0),
        # P = 0.6 and R = 9/14: F1 = 2PR/(P+R)
        ({}, 2 / 3, 1.8 / (1.8 + 0.5 * (1.2 + 1.0)), 3.6, 5.8),
        # P = 0.6 and R = 0.5: F2 = 5PR/(4P+R) = 1.5/2.9
        ({"beta": 2, "recall_of": "reference"}, 10 / 19, 1.5 / 2.9, None, None),
    ],
)
def test_factual_correctness_by_both_counts(
    chosen: Any, by_verdicts: float, by_probabilities: float, part: float, whole: float
) -> None:
    tables = [SAMPLES, *both(RESPONSE, REFERENCE)]
    for count, score in (("verdicts", by_verdicts), ("probabilities", by_probabilities)):
        row, details = scored(FactualCorrectness(count=count, **chosen).run(*tables))
        assert row["score"] == pytest.approx(score, abs=1e-12)
        assert details["score_by_verdicts"] == pytest.approx(by_verdicts, abs=1e-12)
        assert details["score_by_probabilities"] == pytest.approx(by_probabilities, abs=1e-12)
        found = [details[name] for name in ("tp", "response_support", "fn", "reference_support")]
        ours, theirs = ([2, 1.8], [1, 1.0])
        # The verdicts that a mode does not need were not read.
        ours = [None, None] if chosen == {"mode": "recall", "recall_of": "reference"} else ours
        theirs = [None, None] if chosen == {"mode": "precision"} else theirs
        assert found == [*ours, *theirs]
    assert (row["part"], row["whole"]) == (
        part and pytest.approx(part),
        whole and pytest.approx(whole),
    )


def test_the_shares_in_details_are_those_of_the_score() -> None:
    stage = FactualCorrectness(count="probabilities", beta=2, recall_of="reference")
    row, details = scored(stage.run(SAMPLES, *both(RESPONSE, REFERENCE)))
    assert (details["precision"], details["recall"]) == (pytest.approx(0.6), 0.5)
    assert details["f_beta"] == row["score"] == details["score_by_probabilities"]


def test_answer_correctness_by_both_counts() -> None:
    tables = [SAMPLES, *both(RESPONSE, REFERENCE), SIMILAR]
    chosen = {"beta": 2, "recall_of": "reference"}
    by_verdicts, by_probabilities = 0.75 * 10 / 19 + 0.15, 0.75 * 1.5 / 2.9 + 0.15
    row, details = scored(AnswerCorrectness(**chosen, **PROBABILITIES).run(*tables))
    assert row["score"] == pytest.approx(by_probabilities) == details["weighted_mean"]
    assert details["f_beta"] == pytest.approx(1.5 / 2.9)
    assert details["score_by_verdicts"] == pytest.approx(by_verdicts)
    row, details = scored(AnswerCorrectness(**chosen).run(*tables))
    assert row["score"] == pytest.approx(by_verdicts) == details["weighted_mean"]
    assert details["score_by_probabilities"] == pytest.approx(by_probabilities)
    # With a threshold both numbers are what it makes of them.
    between = (by_verdicts + by_probabilities) / 2
    row, details = scored(AnswerCorrectness(**chosen, threshold=between).run(*tables))
    assert (row["score"], details["score_by_probabilities"]) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("stage", "of"), [(Faithfulness, "response"), (ContextRecall, "reference")]
)
@pytest.mark.parametrize(
    ("supports", "by_verdicts", "support"),
    [
        ([0.9, 0.4, 0.2], 1, 1.5),
        # Of several passages the one that supports the claim most counts.
        ([[0.1, 0.7], [0.3, 0.4]], 1, 1.1),
        # Single replies of a language model, and corrections by hand, have no support.
        (["entailed", "neutral", "contradicted", 0.25], 1, 1.25),
        ([["neutral", 0.4], ["entailed", 0.4]], 1, 1.4),
    ],
)
def test_the_mean_support_of_the_claims(
    stage: Any, of: str, supports: Any, by_verdicts: int, support: float
) -> None:
    tables = side(of, "retrieved_contexts", {"s": supports})
    n = len(supports)
    row, details = scored(stage(**PROBABILITIES).run(SAMPLES, *tables))
    assert row["score"] == pytest.approx(support / n)
    assert (row["part"], row["whole"]) == (pytest.approx(support), n)
    assert (details["entailed"], details["support"]) == (by_verdicts, pytest.approx(support))
    assert details["score_by_verdicts"] == by_verdicts / n
    row, details = scored(stage().run(SAMPLES, *tables))
    assert (row["score"], row["part"], row["whole"]) == (by_verdicts / n, by_verdicts, n)
    assert details["score_by_probabilities"] == pytest.approx(support / n)


def test_verdicts_without_support_count_as_they_are() -> None:
    labels = (["entailed", "neutral", "entailed"], ["contradicted", "entailed"])
    for chosen in ({}, {"mode": "precision"}, {"mode": "recall"}, {"recall_of": "reference"}):
        scores = [
            FactualCorrectness(count=count, **chosen).run(SAMPLES, *both(*labels))
            for count in ("verdicts", "probabilities")
        ]
        assert scores[0].equals(scores[1])


def test_a_missing_verdict_fails_the_score_by_either_count() -> None:
    for count in ("verdicts", "probabilities"):
        stage = FactualCorrectness(count=count)
        row, details = scored(stage.run(SAMPLES, *both([0.9, None], [0.8])))
        assert (row["score"], row["status"]) == (None, "failed")
        assert row["reason"] == "1 of 2 claims of the response have no verdict (timeout)"
        assert (details["response_support"], details["reference_support"]) == (None, 0.8)
        assert (details["score_by_verdicts"], details["score_by_probabilities"]) == (None, None)


@pytest.mark.parametrize("chosen", [{}, {"recall_of": "reference"}, {"mode": "recall"}])
def test_a_side_without_claims_is_the_same_by_either_count(chosen: Any) -> None:
    for tables in (both([], []), both([], [0.0]), both([0.0], [])):
        scores = [
            FactualCorrectness(count=count, **chosen).run(SAMPLES, *tables)
            for count in ("verdicts", "probabilities")
        ]
        assert scores[0].equals(scores[1])


def test_an_undefined_refusal_has_both_numbers_in_its_details() -> None:
    refused = SAMPLES.with_columns(response=pl.lit("I don't know."))
    row, details = scored(FactualCorrectness(**PROBABILITIES).run(refused, *both([0.4], [0.8])))
    assert (row["score"], row["status"]) == (None, "undefined")
    assert row["reason"] == "the response is a refusal (policy: undefined)"
    assert details["score_by_verdicts"] == 0.0
    assert details["score_by_probabilities"] == pytest.approx(0.8 / (0.8 + 0.6 + 0.2))


METRICS = (FactualCorrectness, AnswerCorrectness, Faithfulness, ContextRecall)


@pytest.mark.parametrize("kind", METRICS)
def test_a_library_that_is_followed_counts_verdicts(kind: type[Stage]) -> None:
    with pytest.raises(ValidationError, match="count cannot be combined with compat"):
        kind.model_validate({"compat": "ragas-0.4", **PROBABILITIES})


def test_in_compat_details_have_no_second_count() -> None:
    _, details = scored(
        FactualCorrectness(compat="ragas-0.4").run(SAMPLES, *both(RESPONSE, REFERENCE))
    )
    assert not [name for name in details if "support" in name or "score_by" in name]
    assert details["corrected"] == pytest.approx(2 / 3)


def test_the_default_leaves_fingerprints_as_they_were() -> None:
    for kind in METRICS:
        assert "count" not in kind().fingerprint_settings()
        assert kind(**PROBABILITIES).fingerprint_settings()["count"] == "probabilities"


def test_metrics_by_passage_count_verdicts_alone() -> None:
    assert {use for use, stage in STAGES.items() if "count" in stage.model_fields} == {
        kind.use for kind in METRICS
    }


def test_a_support_beyond_0_and_1_is_refused() -> None:
    tables = side("response", "retrieved_contexts", {"s": [0.5]})
    for wrong in (1.5, -0.25):
        tables[1] = tables[1].with_columns(support=pl.lit(wrong))
        with pytest.raises(TableError, match=rf"a verdict with support {wrong}, which is not"):
            Faithfulness().run(SAMPLES, *tables)


some = st.lists(st.floats(0, 1) | st.sampled_from(["entailed", "neutral"]), max_size=6)


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    samples=st.lists(st.tuples(some, some), min_size=1, max_size=6),
    beta=st.floats(0, 3),
    recall_of=st.sampled_from(["response", "reference"]),
    seed=st.integers(0, 9),
)
def test_any_order_and_any_division_of_the_samples_gives_the_same_scores(
    samples: Any, beta: float, recall_of: Any, seed: int
) -> None:
    names = [str(n) for n in range(len(samples))]
    texts = {"response": "a", "reference": "b"}
    table = build(Sample, [{"sample_id": name, **texts} for name in names])
    sides = [
        *side("response", "reference", dict(zip(names, (one for one, _ in samples), strict=True))),
        *side("reference", "response", dict(zip(names, (two for _, two in samples), strict=True))),
    ]
    stage = FactualCorrectness(count="probabilities", beta=beta, recall_of=recall_of)

    def scores(samples: pl.DataFrame, tables: list[pl.DataFrame]) -> pl.DataFrame:
        ours, in_theirs, theirs, in_ours = tables
        return stage.run(samples, ours, theirs, in_theirs, in_ours)

    at_once = scores(table, sides)
    shuffled = [one.sample(fraction=1, shuffle=True, seed=seed) for one in sides]
    assert at_once.equals(scores(table, shuffled))
    assert at_once.equals(pl.concat(scores(table.slice(n, 1), sides) for n in range(len(names))))
    found = at_once["score"].drop_nulls()
    assert found.is_between(0, 1).all()
    assert not found.is_nan().any()


def test_sums_of_the_order_of_rows_would_differ_in_the_last_digit() -> None:
    """The example shows that the order is fixed: in these orders floats add up differently."""
    supports = [0.1, 0.2, 0.3]
    assert sum(supports) != sum(reversed(supports))
    found = {
        scored(
            Faithfulness(**PROBABILITIES).run(
                SAMPLES, *side("response", "retrieved_contexts", {"s": order})
            )
        )[0]["score"]
        for order in (supports, supports[::-1])
    }
    assert len(found) == 1
