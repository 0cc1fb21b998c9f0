"""Claims that come with the samples: taken as they are, and before any decomposition."""

from collections.abc import Sequence

import polars as pl
import pytest

from claimflow.stages.decompose import DecomposeClaims, SuppliedClaims
from claimflow.stages.judging.claims import Decomposition
from claimflow.stages.rows import Sample, content_key
from claimflow.stages.tables import build
from claimflow.stages.tools import Form, Question, Reply

TEXT = "The tower stands in Paris. It opened in 1889."
SAMPLES = build(
    Sample,
    [
        {
            "sample_id": "a",
            "response": TEXT,
            "response_claims": [
                "It opened in 1889, in May.",
                " odd ",
                "It opened in 1889, in May.",
            ],
        },
        {"sample_id": "b", "response": "Milk is white."},
        {"sample_id": "c", "response": "Snow is cold.", "response_claims": []},
        {"sample_id": "d", "response_claims": ["Cheese is old."], "reference_claims": ["No."]},
    ],
)


def spans(table: pl.DataFrame) -> list[tuple[str, str, int | None, int | None]]:
    return table.select("sample_id", "claim", "start", "end").rows()


class FakeLlm:
    """A language model that knows one answer and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask(self, questions: Sequence[Question], form: Form) -> dict[Question, Reply]:
        self.asked += [question.text for question in questions]
        answer = Decomposition(claims=["Said."])
        return {question: Reply(answer, content_key("call")) for question in questions}


def test_supplied_claims_are_unchanged() -> None:
    table = SuppliedClaims(of="response").make({"samples": SAMPLES}, {})
    assert spans(table) == [
        ("a", "It opened in 1889, in May.", 27, 45),
        ("a", " odd ", None, None),
        ("d", "Cheese is old.", None, None),
    ]
    key = content_key("claim", "a", "response", "It opened in 1889, in May.")
    assert table["claim_id"][0] == key
    assert table["of"].unique().to_list() == ["response"]
    of_reference = SuppliedClaims(of="reference").make({"samples": SAMPLES}, {})
    assert spans(of_reference) == [("d", "No.", None, None)]


def test_requires_the_claims_of_its_side() -> None:
    assert SuppliedClaims(of="response").required_fields() == {"response_claims"}
    assert SuppliedClaims(of="reference").required_fields() == {"reference_claims"}


def test_decomposition_prefers_supplied_claims() -> None:
    table = DecomposeClaims(of="response").make({"samples": SAMPLES}, {})
    assert spans(table) == [
        ("a", "It opened in 1889, in May.", 27, 45),
        ("a", " odd ", None, None),
        ("b", "Milk is white.", 0, 14),
        ("d", "Cheese is old.", None, None),
    ]


def test_a_decomposed_claim_and_the_same_one_supplied_are_one() -> None:
    supplied = SAMPLES.filter(pl.col("sample_id") == "b").with_columns(
        response_claims=pl.lit(["Milk is white."])
    )
    made = DecomposeClaims(of="response").make({"samples": SAMPLES}, {})
    given = SuppliedClaims(of="response").make({"samples": supplied}, {})
    assert given.row(0) == made.row(2)


def test_decomposition_may_ignore_supplied_claims() -> None:
    table = DecomposeClaims(of="response", supplied="ignore").make({"samples": SAMPLES}, {})
    assert table["sample_id"].to_list() == ["a", "a", "b", "c"]


@pytest.mark.parametrize(
    ("supplied", "asked"),
    [("prefer", ["Milk is white."]), ("ignore", [TEXT, "Milk is white.", "Snow is cold."])],
)
def test_no_model_is_asked_about_a_sample_with_claims(supplied: str, asked: list[str]) -> None:
    llm = FakeLlm()
    settings = {"of": "response", "supplied": supplied, "prompt": "{{texts}}"}
    stage = DecomposeClaims.model_validate(settings)
    stage.make({"samples": SAMPLES}, {"llm": llm})
    assert llm.asked == asked
