"""Rows of lexical matches as continuous-eval makes them."""

from typing import Any

import polars as pl

from claimflow.stages.compat.continuous_eval import compat_matches
from claimflow.stages.rows import Sample, SentenceMatch
from claimflow.stages.tables import build, conform

SAMPLE = {
    "sample_id": "s",
    "response": "William Shakespeare wrote 'Romeo and Juliet'. He is born in Ireland",
    "reference": "William Shakespeare is the author of 'Romeo and Juliet'.",
    "retrieved_contexts": ["William Shakespeare is the author of 'Romeo and Juliet'."],
}
OURS = ("clipped_overlap_precision", "clipped_overlap_recall", "clipped_overlap_f1", "chrf")


def matches(against: Any = "retrieved_contexts", unit: Any = "sentence", **fields: Any) -> Any:
    made = compat_matches(build(Sample, [SAMPLE | fields]), against=against, unit=unit)
    return conform(SentenceMatch, made)


def test_the_published_example_of_the_current_release() -> None:
    rows = matches()
    assert rows["rouge_l_precision"].to_list() == [0.8333333333333334, 0.2]
    assert rows["token_overlap_precision"].to_list() == [0.8, 0.0]
    assert rows["bleu"].to_list() == [0.6855956729300113, 0.05488226210213251]
    assert rows["compat"].to_list() == ["continuous-eval-0.3"] * 2
    spans = zip(rows["start"], rows["end"], strict=True)
    assert [SAMPLE["response"][a:b] for a, b in spans] == rows["sentence"].to_list()
    assert rows.select("source", "position").rows() == [(None, 0), (None, 1)]


def test_there_are_no_values_that_the_library_does_not_know() -> None:
    for unit in ("sentence", "text"):
        rows = matches(against="reference", unit=unit)
        assert rows.select(pl.col(OURS).is_null().all()).row(0) == (True,) * 4


def test_every_reference_is_a_source_with_its_own_number() -> None:
    rows = matches("reference", "text", reference="Rome", other_references=["Dublin", "Cork"])
    assert rows.select("source", "position", "start", "end").rows() == [
        (0, None, 0, 67),
        (1, None, 0, 67),
        (2, None, 0, 67),
    ]
    assert matches("reference", reference=None, other_references=["Cork"])["source"][0] == 1


def test_contexts_are_joined_by_line_breaks() -> None:
    rows = matches(unit="text", response="ab\ncd", retrieved_contexts=["ab", "cd"])
    assert rows.select("token_overlap_f1", "bleu").row(0) == (1, 1)


def test_no_rows_where_the_library_raises_or_a_field_is_missing() -> None:
    for fields in (
        {"response": " "},
        {"response": None},
        {"retrieved_contexts": None},
        {"retrieved_contexts": []},
        {"retrieved_contexts": ["..."]},
    ):
        assert matches(**fields).height == 0
    several = {"reference": "Rome", "other_references": ["."]}
    assert matches("reference", "text", **several).height == 0


def test_an_empty_response_as_a_whole_has_zeros() -> None:
    rows = matches("reference", "text", response="", other_references=[""])
    assert rows.select("rouge_l_f1", "token_overlap_f1", "bleu").rows() == [(0, 0, 0)] * 2
