"""Factual correctness."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from claimflow.stages.rows import Claim, Sample, Verdict
from claimflow.stages.scores.claim_metrics import FactualCorrectness
from claimflow.stages.scores.empty_cases import EmptyPolicy
from claimflow.stages.tables import build

YES, NO, CONTRARY = "entailed", "neutral", "contradicted"
ID = "00000000-0000-0000-0000-00000000000"

EIFFEL = "The Eiffel Tower is located in Paris."
SAMPLES = build(
    Sample,
    [{"sample_id": "eiffel", "response": EIFFEL, "reference": f"{EIFFEL} It is 1000ft high."}],
)
RESPONSE_CLAIMS = build(
    Claim, [{"claim_id": ID + "1", "sample_id": "eiffel", "of": "response", "claim": EIFFEL}]
)
REFERENCE_CLAIMS = build(
    Claim,
    [
        {"claim_id": ID + "2", "sample_id": "eiffel", "of": "reference", "claim": EIFFEL},
        {"claim_id": ID + "3", "sample_id": "eiffel", "of": "reference", "claim": "1000ft high."},
    ],
)


def verdicts(against: str, labels: dict[str, str]) -> Any:
    rows = [
        {"claim_id": ID + n, "against": against, "verdict": label} for n, label in labels.items()
    ]
    return build(Verdict, rows)


@pytest.mark.parametrize(
    ("settings", "score"),
    [
        ({}, 2 / 3),
        ({"mode": "precision"}, 1.0),
        ({"mode": "recall"}, 0.5),
        ({"mode": "recall", "recall_of": "reference"}, 0.5),
        ({"beta": 2.0}, 5 / 9),
        ({"beta": 0.0}, 1.0),
    ],
)
def test_the_documented_eiffel_tower(settings: Any, score: float) -> None:
    table = FactualCorrectness(**settings).make(
        {
            "samples": SAMPLES,
            "response_claims": RESPONSE_CLAIMS,
            "reference_claims": REFERENCE_CLAIMS,
            "response_in_reference": verdicts("reference", {"1": YES}),
            "reference_in_response": verdicts("response", {"2": YES, "3": NO}),
        },
        {},
    )
    (row,) = table.to_dicts()
    assert row["score"] == pytest.approx(score, abs=1e-15)
    assert (row["metric"], row["status"], row["reason"]) == ("factual_correctness", "scored", None)
    f_beta = json.loads(row["details"])["f_beta"]
    assert f_beta == (row["score"] if "mode" not in settings else None)


@pytest.fixture(name="correctness")
def _correctness(judge: Any) -> Any:
    def score(response: list[str], reference: list[str], settings: Any, fields: Any = None) -> Any:
        texts = {"response": "a response", "reference": "a reference"}
        samples = build(Sample, [{"sample_id": "s", **texts, **(fields or {})}])
        response_claims, in_reference = judge("response", "reference", {"s": response})
        reference_claims, in_response = judge("reference", "response", {"s": reference})
        table = FactualCorrectness(**settings).run(
            samples, response_claims, reference_claims, in_reference, in_response
        )
        return table.row(0, named=True)

    return score


def test_the_documented_einstein(correctness: Any) -> None:
    row = correctness([YES, CONTRARY], [YES, CONTRARY], {})
    assert row["score"] == 0.5
    assert json.loads(row["details"]) == {
        "tp": 1,
        "fp": 1,
        "fn": 1,
        "precision": 0.5,
        "recall": 0.5,
        "f_beta": 0.5,
        "response_claims": 2,
        "response_entailed": 1,
        "response_contradicted": 1,
        "response_neutral": 0,
        "response_support": 1.0,
        "reference_claims": 2,
        "reference_entailed": 1,
        "reference_contradicted": 1,
        "reference_neutral": 0,
        "reference_support": 1.0,
        "score_by_verdicts": 0.5,
        "score_by_probabilities": 0.5,
        "empty": None,
        "worth": None,
    }


def test_precision_has_no_counts_of_the_reference_claims(correctness: Any) -> None:
    details = json.loads(correctness([YES, NO], [NO], {"mode": "precision"})["details"])
    assert (details["tp"], details["fp"], details["precision"]) == (1, 1, 0.5)
    assert (details["fn"], details["recall"], details["reference_claims"]) == (None, None, None)


NO_RESPONSE, NO_REFERENCE = "no claims in the response", "no claims in the reference"


@pytest.mark.parametrize(
    ("response", "reference", "settings", "score", "reason"),
    [
        ([], [NO], {}, 0.0, None),
        ([], [NO], {"mode": "recall"}, 0.0, None),
        ([], [NO], {"mode": "precision"}, None, NO_RESPONSE),
        ([NO], [], {}, 0.0, None),
        ([NO], [], {"mode": "recall"}, None, NO_REFERENCE),
        ([NO], [], {"mode": "precision"}, 0.0, None),
        ([], [], {}, None, f"{NO_RESPONSE} or the reference"),
        ([], [YES], {"recall_of": "reference"}, 0.0, None),
        ([YES], [], {"recall_of": "reference", "mode": "recall"}, None, NO_REFERENCE),
        ([NO], [YES], {"mode": "recall"}, 0.0, None),
        ([NO], [YES], {"mode": "recall", "recall_of": "reference"}, 1.0, None),
        ([YES], [YES, YES, NO], {"mode": "recall"}, 0.5, None),
        ([YES], [YES, YES, NO], {"mode": "recall", "recall_of": "reference"}, 2 / 3, None),
    ],
)
def test_a_side_without_claims(
    correctness: Any, response: Any, reference: Any, settings: Any, score: Any, reason: Any
) -> None:
    row = correctness(response, reference, settings)
    assert (row["score"], row["reason"]) == (score, reason)
    assert row["status"] == ("scored" if reason is None else "undefined")


def test_an_empty_response_by_policy(correctness: Any) -> None:
    case = "the response is empty"
    by_formula = correctness([], [NO], {}, {"response": ""})
    assert (by_formula["score"], by_formula["reason"]) == (0.0, f"{case} (policy: formula)")
    for value, score, status in (("undefined", None, "undefined"), (0, 0.0, "scored")):
        row = correctness([], [NO], {"empty": EmptyPolicy(response=value)}, {"response": ""})
        assert (row["score"], row["status"]) == (score, status)
        assert row["reason"] == f"{case} (policy: {value})"
        assert json.loads(row["details"])["worth"] == str(value)


def test_a_refusal_by_policy(correctness: Any) -> None:
    row = correctness([], [NO], {"empty": EmptyPolicy(refusal=1)}, {"response": "I don't know."})
    assert (row["score"], row["reason"]) == (1.0, "the response is a refusal (policy: 1)")


def test_a_claim_of_either_side_without_a_verdict_fails_the_score(correctness: Any) -> None:
    for sides in (([YES, []], [YES]), ([YES], [YES, []])):
        row = correctness(*sides, {})
        assert (row["score"], row["status"]) == (None, "failed")
        assert row["reason"].startswith("1 of 2 claims of the re")
        details = json.loads(row["details"])
        assert details["f_beta"] is None


def test_a_missing_field_is_undefined_with_any_policy(correctness: Any) -> None:
    row = correctness([NO], [], {"empty": EmptyPolicy(reference=0)}, {"reference": None})
    assert (row["score"], row["status"], row["reason"]) == (None, "undefined", "missing: reference")


def test_only_ignored_inputs_may_be_left_out() -> None:
    precision = FactualCorrectness(mode="precision")
    assert precision.ignores() == {"reference_claims", "reference_in_response"}
    table = precision.run(
        SAMPLES, RESPONSE_CLAIMS, response_in_reference=verdicts("reference", {"1": YES})
    )
    assert table["score"].to_list() == [1.0]
    by_reference = FactualCorrectness(mode="recall", recall_of="reference")
    assert by_reference.ignores() == {"response_claims", "response_in_reference"}
    with pytest.raises(ValueError, match="needs reference_claims, reference_in_response") as caught:
        FactualCorrectness().run(SAMPLES, RESPONSE_CLAIMS, None, verdicts("reference", {}))
    assert "factual_correctness with these settings" in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "part", "whole"),
    [
        ({}, 2, 5),
        ({"beta": 2.0}, 5, 11),
        ({"beta": 0.0}, 1, 3),
        ({"mode": "precision"}, 1, 3),
        ({"mode": "recall"}, 1, 2),
        ({"mode": "recall", "recall_of": "reference"}, 2, 3),
        ({"recall_of": "reference"}, None, None),
        ({"compat": "ragas-0.4"}, None, None),
    ],
)
def test_part_and_whole_are_the_counts_of_the_ratio(
    correctness: Any, settings: Any, part: float | None, whole: float | None
) -> None:
    row = correctness([YES, NO, NO], [YES, YES, NO], settings)
    assert (row["part"], row["whole"]) == (part, whole)
    assert part is None or row["score"] == pytest.approx(part / (whole or 1))


def test_recall_without_claims_has_no_ratio(correctness: Any) -> None:
    row = correctness([NO], [YES], {"mode": "recall"})
    assert (row["score"], row["part"], row["whole"]) == (0.0, None, None)


@pytest.mark.parametrize(
    ("compat", "fields", "status", "reason"),
    [
        ("ragas-0.4", {"response": ""}, "undefined", "the response is empty"),
        ("ragas-0.4", {"reference": ""}, "undefined", "the reference is empty"),
        ("ragas-0.4", {"response": "", "reference": ""}, "undefined", "the response is empty"),
        ("ragas-0.4", {"response": " "}, "scored", None),
        ("ragas-0.4-legacy", {"response": ""}, "scored", None),
    ],
)
def test_errors_of_ragas_are_undefined(
    correctness: Any, compat: str, fields: Any, status: str, reason: str | None
) -> None:
    row = correctness([], [NO], {"compat": compat}, fields)
    says = f"{compat} raises ValueError: {reason}" if reason else None
    assert (row["status"], row["reason"]) == (status, says)
    assert json.loads(row["details"])["corrected"] == 0.0


def test_a_failure_is_a_failure_in_compat(correctness: Any) -> None:
    row = correctness([YES, []], [YES], {"compat": "ragas-0.4"})
    assert (row["status"], json.loads(row["details"])["corrected"]) == ("failed", None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"recall_of": "reference"}, "recall_of cannot be combined with compat"),
        ({"empty": {"response": 0}}, "empty cannot be combined with compat"),
        ({"beta": 1}, "write 1.0: ragas-0.4-legacy takes no whole number"),
    ],
)
def test_settings_that_ragas_does_not_have_are_refused(settings: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        FactualCorrectness.model_validate({"compat": "ragas-0.4-legacy", **settings})


def test_collections_take_a_whole_beta() -> None:
    stage = FactualCorrectness.model_validate({"beta": 1, "compat": "ragas-0.4"})
    assert (stage.beta, stage.recall_of) == (1.0, "response")
