"""Missing fields and empty cases of samples, and the values of the cases."""

from typing import Any

import pytest
from pydantic import ValidationError

from claimflow.stages.rows import Sample
from claimflow.stages.sample_texts import count_texts
from claimflow.stages.scores.claim_metrics import ContextRecall, FactualCorrectness, Faithfulness
from claimflow.stages.scores.empty_cases import EmptyPolicy
from claimflow.stages.scores.lexical_metrics import DeterministicFaithfulness
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
        ({"response": "I don't know."}, (None, "refusal", "formula")),
        ({"retrieved_contexts": []}, (None, "contexts", "formula")),
        ({"retrieved_contexts": ["", " "]}, (None, "contexts", "formula")),
        ({"retrieved_contexts": ["", "x"]}, (None, None, None)),
        ({"response": "", "retrieved_contexts": []}, (None, "response", "formula")),
    ],
)
def test_missing_fields_and_empty_cases_of_faithfulness(fields: Any, expected: Any) -> None:
    assert empty_case(Faithfulness(), **fields) == expected


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
