"""Missing fields and empty cases of samples, and the values of the cases."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from claimflow.stages.rows import Sample
from claimflow.stages.sample_texts import count_texts
from claimflow.stages.scores.answer_metrics import AnswerCorrectness, SemanticSimilarity
from claimflow.stages.scores.claim_metrics import ContextRecall, FactualCorrectness, Faithfulness
from claimflow.stages.scores.empty_cases import EmptyPolicy
from claimflow.stages.scores.lexical_metrics import DeterministicFaithfulness
from claimflow.stages.scores.retrieval_metrics import RagChecker
from claimflow.stages.tables import build

FULL = {"response": "Paris.", "reference": "Paris.", "retrieved_contexts": ["Paris."]}


def empty_case(stage: Any, **fields: Any) -> tuple[str | None, str | None, str | None]:
    samples = build(Sample, [{"sample_id": "s", **FULL, **fields}])
    (row,) = stage.empty_cases(samples).rows()
    assert row[0] == "s"
    missing, case, value = row[1:]
    return missing, case, value


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, (None, None, None)),
        ({"response": None}, ("missing: response", None, None)),
        (
            {"response": None, "retrieved_contexts": None},
            ("missing: response, retrieved_contexts", None, None),
        ),
        ({"reference": None}, (None, None, None)),
        ({"response": ""}, (None, "response", "formula")),
        ({"response": " \n\t\u3000"}, (None, "response", "formula")),
        ({"response": "I don't know."}, (None, "refusal", "undefined")),
        ({"retrieved_contexts": []}, (None, "contexts", "formula")),
        ({"retrieved_contexts": ["", " "]}, (None, "contexts", "formula")),
        ({"retrieved_contexts": ["", "x"]}, (None, None, None)),
        ({"response": "", "retrieved_contexts": []}, (None, "response", "formula")),
    ],
)
def test_missing_fields_and_empty_cases_of_faithfulness(fields: Any, expected: Any) -> None:
    assert empty_case(Faithfulness(), **fields) == expected


ASKS_FOR_FACTS = (FactualCorrectness, AnswerCorrectness, Faithfulness)


@pytest.mark.parametrize("kind", ASKS_FOR_FACTS)
def test_a_refusal_has_no_score_where_the_metric_asks_for_facts(kind: Any) -> None:
    fields = {"response": "I don't know."}
    assert empty_case(kind(), **fields) == (None, "refusal", "undefined")
    # Also beside another case, and whether the policy comes from a file or from Python.
    for policy in ({"response": 0}, EmptyPolicy(response=0)):
        stage = kind.model_validate({"empty": policy})
        assert stage.empty == EmptyPolicy(response=0, refusal="undefined")
    for policy in ({"refusal": "formula"}, EmptyPolicy(refusal="formula")):
        stage = kind.model_validate({"empty": policy})
        assert empty_case(stage, **fields) == (None, "refusal", "formula")


@pytest.mark.parametrize("kind", ASKS_FOR_FACTS)
@pytest.mark.parametrize("given", [{}, {"empty": {}}, {"empty": {"refusal": "formula"}}])
def test_in_compat_a_refusal_has_the_score_of_that_library(kind: Any, given: Any) -> None:
    stage = kind.model_validate({"compat": "ragas-0.4", **given})
    assert stage.empty == EmptyPolicy()
    with pytest.raises(ValidationError, match="empty cannot be combined with compat"):
        kind.model_validate({"compat": "ragas-0.4", "empty": {"refusal": "undefined"}})


@pytest.mark.parametrize("kind", ASKS_FOR_FACTS)
def test_the_value_of_a_refusal_is_part_of_the_fingerprint(kind: Any) -> None:
    default, formula = kind(), kind.model_validate({"empty": {"refusal": "formula"}})
    assert default.fingerprint_settings() != formula.fingerprint_settings()
    # The settings that were the default of earlier releases are those with the formula.
    policy = dict.fromkeys(("response", "refusal", "reference", "contexts"), "formula")
    assert formula.fingerprint_settings()["empty"] == policy
    assert kind(compat="ragas-0.4").fingerprint_settings()["empty"] == policy
    assert default.fingerprint_settings()["empty"] == {**policy, "refusal": "undefined"}


def test_lists_in_a_pipeline_file_are_settings_beside_a_policy() -> None:
    for more, refusal in (({}, "undefined"), ({"empty": {"refusal": 0}}, 0)):
        text = json.dumps({"weights": [0.5, 0.5], **more})
        stage = AnswerCorrectness.model_validate_json(text, strict=True)
        assert (stage.weights, stage.empty.refusal) == ((0.5, 0.5), refusal)


def test_other_metrics_leave_refusals_to_the_formula() -> None:
    for stage in (SemanticSimilarity(), RagChecker(), DeterministicFaithfulness()):
        assert stage.empty == EmptyPolicy()


def test_a_policy_that_is_none_is_told_as_before() -> None:
    with pytest.raises(ValidationError, match="valid dictionary or instance of EmptyPolicy"):
        Faithfulness.model_validate({"empty": "undefined"})


def test_a_declared_value_goes_before_the_formula() -> None:
    stage = Faithfulness(empty=EmptyPolicy(contexts=0))
    assert empty_case(stage, response="", retrieved_contexts=[]) == (None, "contexts", "0")


def test_no_samples() -> None:
    assert Faithfulness().empty_cases(build(Sample, [])).height == 0


def test_a_case_without_bearing_on_the_metric_is_refused() -> None:
    with pytest.raises(ValidationError) as caught:
        ContextRecall(empty=EmptyPolicy(refusal=0))
    assert (
        "empty.refusal has no effect on context_recall: its cases are reference, contexts"
        in str(caught.value)
    )


@pytest.mark.parametrize("value", [2, -1, 0.5, "zero", None])
def test_only_four_values_are_allowed(value: Any) -> None:
    with pytest.raises(ValidationError):
        EmptyPolicy(response=value)


def test_a_score_requires_the_fields_of_its_cases() -> None:
    assert FactualCorrectness().required_fields() == {"response", "reference"}
    assert ContextRecall().required_fields() == {"reference", "retrieved_contexts"}
    assert DeterministicFaithfulness().required_fields() == {"response", "retrieved_contexts"}


def test_count_texts_that_are_not_blank() -> None:
    samples = build(
        Sample,
        [
            {"sample_id": "a", "response": "x", "retrieved_contexts": ["x", "", "y"]},
            {"sample_id": "b", "response": " ", "retrieved_contexts": []},
            {"sample_id": "c"},
        ],
    )
    found = samples.select(count_texts("response"), count_texts("retrieved_contexts"))
    assert found.rows() == [(1, 2), (0, 0), (None, None)]
