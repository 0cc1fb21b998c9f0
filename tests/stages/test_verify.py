"""Claim verification, with a model that answers from a table and notes what it is asked."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.keys import content_key
from stages.rows import Claim, Sample
from stages.tables import build
from stages.tools import Judgement, Pair
from stages.verify import VerifyClaims

YES = Judgement(0.8, 0.1, 0.1, 0, 5)
NO = Judgement(0.2, 0.5, 0.3, 0, 5)
OPEN = Judgement(0.2, 0.4, 0.4, 0, 0)


class Listed:
    """Gives the judgement listed for a premise, or the default; none for `silent` ones."""

    def __init__(self, default: Judgement | None = YES, **by_premise: Judgement) -> None:
        self.default = default
        self.by_premise = by_premise
        self.asked: list[list[Pair]] = []

    def judge(self, pairs: Sequence[Pair]) -> Mapping[Pair, Judgement]:
        self.asked.append(list(pairs))
        judged = {pair: self.by_premise.get(pair.premise, self.default) for pair in pairs}
        return {pair: judgement for pair, judgement in judged.items() if judgement}


def claims(*made: tuple[str, str | None]) -> pl.DataFrame:
    return build(
        Claim,
        [
            {
                "claim_id": content_key("claim", sample_id, number),
                "sample_id": sample_id,
                "of": "response",
                "claim": claim,
                "status": "made" if claim is not None else "failed",
            }
            for number, (sample_id, claim) in enumerate(made)
        ],
    )


def verify(
    samples: Sequence[dict[str, Any]], claims: pl.DataFrame, model: Listed, **settings: Any
) -> list[dict[str, Any]]:
    stage = VerifyClaims(**settings)
    table = stage.make({"samples": build(Sample, samples), "claims": claims}, {"model": model})
    return table.rows(named=True)


@pytest.mark.parametrize(
    ("judgement", "threshold", "verdict"),
    [
        (YES, 0.5, "entailed"),
        (YES, 0.8, "entailed"),
        (YES, 0.81, "neutral"),
        (NO, 0.5, "contradicted"),
        (NO, 0.2, "entailed"),
        (OPEN, 0.5, "neutral"),
    ],
)
def test_label(judgement: Judgement, threshold: float, verdict: str) -> None:
    samples = [{"sample_id": "s", "reference": "first"}]
    model = Listed(judgement)
    (row,) = verify(samples, claims(("s", "c")), model, against="reference", threshold=threshold)
    assert row["verdict"] == verdict
    probabilities = (row["p_entailed"], row["p_contradicted"], row["p_neutral"])
    assert probabilities == judgement[:3]
    assert (row["status"], row["reason"], row["passage"]) == ("judged", None, None)


def test_joined_contexts_are_one_premise_and_evidence_names_its_passage() -> None:
    samples = [{"sample_id": "s", "retrieved_contexts": ["first", "the second", ""]}]
    model = Listed(Judgement(0.9, 0.05, 0.05, 10, 16))
    (row,) = verify(samples, claims(("s", "c")), model, against="retrieved_contexts")
    assert model.asked == [[Pair("first\nthe second\n", "c")]]
    assert row["passage"] is None
    assert row["evidence"] == "second"
    assert (row["evidence_passage"], row["evidence_start"], row["evidence_end"]) == (1, 4, 10)


def test_evidence_over_two_passages_is_cut_to_the_greater_part() -> None:
    samples = [{"sample_id": "s", "retrieved_contexts": ["first", "second"]}]
    model = Listed(Judgement(0.9, 0.05, 0.05, 3, 12))
    (row,) = verify(samples, claims(("s", "c")), model, against="retrieved_contexts")
    assert (row["evidence"], row["evidence_passage"], row["evidence_start"]) == ("second", 1, 0)


def test_each_context_is_a_premise() -> None:
    samples = [{"sample_id": "s", "retrieved_contexts": ["first", " ", "third"]}]
    model = Listed(first=YES, third=NO)
    rows = verify(samples, claims(("s", "c")), model, against="retrieved_contexts", premises="each")
    assert [(r["passage"], r["verdict"], r["reason"]) for r in rows] == [
        (0, "entailed", None),
        (1, "neutral", "the premise is empty"),
        (2, "contradicted", None),
    ]
    assert [(r["evidence"], r["evidence_passage"]) for r in rows] == [
        ("first", 0),
        (None, None),
        ("third", 2),
    ]


@pytest.mark.parametrize("field", ["reference", "response"])
def test_evidence_in_a_single_text_has_no_passage(field: str) -> None:
    (row,) = verify(
        [{"sample_id": "s", field: "first text"}], claims(("s", "c")), Listed(), against=field
    )
    assert (row["evidence"], row["evidence_passage"]) == ("first", None)
    assert (row["evidence_start"], row["evidence_end"]) == (0, 5)


@pytest.mark.parametrize(
    ("fields", "settings", "verdicts"),
    [
        ({"reference": None}, {"against": "reference"}, []),
        ({"reference": ""}, {"against": "reference"}, ["neutral"]),
        ({"reference": " \n"}, {"against": "reference"}, ["neutral"]),
        ({"retrieved_contexts": None}, {"against": "retrieved_contexts"}, []),
        ({"retrieved_contexts": []}, {"against": "retrieved_contexts"}, ["neutral"]),
        ({"retrieved_contexts": ["", ""]}, {"against": "retrieved_contexts"}, ["neutral"]),
        ({"retrieved_contexts": []}, {"against": "retrieved_contexts", "premises": "each"}, []),
    ],
)
def test_nothing_to_judge_by(fields: Any, settings: Any, verdicts: list[str]) -> None:
    model = Listed()
    rows = verify([{"sample_id": "s", **fields}], claims(("s", "c")), model, **settings)
    assert [row["verdict"] for row in rows] == verdicts
    assert all(row["reason"] == "the premise is empty" for row in rows)
    assert all((row["p_neutral"], row["evidence"]) == (1.0, None) for row in rows)
    assert model.asked == []


def test_every_pair_is_asked_once_and_failed_claims_not_at_all() -> None:
    samples = [{"sample_id": "s", "reference": "first"}, {"sample_id": "t", "reference": "first"}]
    model = Listed()
    rows = verify(
        samples,
        claims(("s", "c"), ("s", None), ("t", "c"), ("s", "d"), ("unknown", "c")),
        model,
        against="reference",
    )
    assert model.asked == [[Pair("first", "c"), Pair("first", "d")]]
    expected = [content_key("claim", sample, n) for n, sample in ((0, "s"), (2, "t"), (3, "s"))]
    assert [row["claim_id"] for row in rows] == expected


def test_a_pair_without_a_judgement_is_a_failed_row() -> None:
    (row,) = verify(
        [{"sample_id": "s", "reference": "first"}],
        claims(("s", "c")),
        Listed(None),
        against="reference",
    )
    assert (row["verdict"], row["status"]) == (None, "failed")
    assert row["reason"] == "the model gave no judgement"


def test_reads_and_wiring() -> None:
    assert VerifyClaims(against="response").reads() == {"response"}
    assert set(VerifyClaims.inputs) == {"samples", "claims"}
    assert list(VerifyClaims.tools) == ["model"]


@settings(max_examples=60)
@given(st.lists(st.text("a\n😀", max_size=6), min_size=1, max_size=5), st.data())
def test_evidence_is_a_part_of_its_passage_and_of_the_span(
    contexts: list[str], data: st.DataObject
) -> None:
    joined = "\n".join(contexts)
    start = data.draw(st.integers(0, len(joined)))
    end = data.draw(st.integers(start, len(joined)))
    (row,) = verify(
        [{"sample_id": "s", "retrieved_contexts": contexts}],
        claims(("s", "c")),
        Listed(Judgement(1.0, 0.0, 0.0, start, end)),
        against="retrieved_contexts",
    )
    if row["evidence"] is None:
        assert start == end or not joined.strip()
    else:
        passage = contexts[row["evidence_passage"]]
        assert row["evidence"] == passage[row["evidence_start"] : row["evidence_end"]]
        assert row["evidence"] in joined[start:end]
