"""Columns of a record become fields of a sample; all others become metadata."""

import json
import time
from typing import Any

import pytest

from claimflow.flows.samples.fields import fields_by_column, misspelt_fields, sample_fields
from claimflow.flows.samples.records import RecordError


def fields(values: dict[str, Any], *, cells: bool = False) -> dict[str, Any]:
    found, errors = sample_fields(values, fields_by_column({}), cells=cells)
    assert errors == []
    return found


def test_other_keys_of_context_objects_become_metadata() -> None:
    found = fields({"retrieved_context": [{"doc_id": "d1", "text": "one"}, "two"]})
    assert found["retrieved_contexts"] == ["one", "two"]
    assert found["metadata"] == '{"retrieved_context":[{"doc_id":"d1"},{}]}'


@pytest.mark.parametrize("name", ["text", "page_content", "content", "doc"])
def test_the_text_keys_of_context_objects(name: str) -> None:
    found = fields({"contexts": [{name: "t"}]})
    assert (found["retrieved_contexts"], found["metadata"]) == (["t"], "{}")


def test_one_text_is_one_context() -> None:
    assert fields({"contexts": '["no list"]'})["retrieved_contexts"] == ['["no list"]']


def test_the_first_of_many_references_is_the_reference() -> None:
    found = fields({"other_references": ["d"], "ground_truths": ["a", "b", "c"]})
    assert (found["reference"], found["other_references"]) == ("a", ["b", "c", "d"])
    none = fields({"ground_truths": []})
    assert (none["reference"], none["other_references"]) == (None, [])


def test_lists_in_cells() -> None:
    found = fields({"contexts": '["a", "b"]', "ground_truths": '["c","d"]'}, cells=True)
    assert found["retrieved_contexts"] == ["a", "b"]
    assert (found["reference"], found["other_references"]) == ("c", ["d"])
    assert fields({"contexts": "[]"}, cells=True)["retrieved_contexts"] == []
    assert fields({"contexts": r'["\ud800"]'}, cells=True)["retrieved_contexts"] == ["\ufffd"]


@pytest.mark.parametrize("cell", ["[1] a source", "[1]", "[sic] a [text]", "[", '"a"', ""])
def test_cells_that_only_look_like_lists_are_texts(cell: str) -> None:
    assert fields({"contexts": cell}, cells=True)["retrieved_contexts"] == [cell]
    assert fields({"answer": '["a"]'}, cells=True)["response"] == '["a"]'


@pytest.mark.parametrize(
    "members",
    [
        ["a", "b"],
        ["it's", 'a "b"', "both ' and \"", "[x], {y}", "a\\b\n\t\x00é\u2028\U0001f600", ""],
        ["a" * 200_000],
        [{"text": "a", "rank": 1, "score": -0.5, "kept": True, "by": None, "of": ["x"]}],
        ["a", {"text": "b"}],
    ],
)
def test_lists_as_python_prints_them(members: list[Any]) -> None:
    expected = fields({"contexts": members})
    assert fields({"contexts": repr(members)}, cells=True) == expected
    assert fields({"contexts": f"{members!r}\n"}, cells=True) == expected


@pytest.mark.parametrize(
    "cell",
    [
        "['a' 'b']",  # as NumPy prints an array
        "['a'\n 'b']",
        "['a', f'{1}']",
        r"['\d']",
        "['a', open('x'), 'b']",
        "['a'] and ['b']",
        f"['a', {'[' * 5_000}{']' * 5_000}, 'b']",
        f"['{'a' * 1_000_000}']",
    ],
)
def test_what_only_looks_like_such_a_list_is_refused(cell: str) -> None:
    _, errors = sample_fields({"contexts": cell}, fields_by_column({}), cells=True)
    assert [str(wrong) for wrong in errors] == [
        '\'contexts\' looks like a list as Python prints it; write it as JSON: ["one", "two"]'
    ]


@pytest.mark.parametrize("cell", ["[{citation}]", "[{'a': 1}, x]", "[{'a', 'b'}]"])
def test_braces_in_brackets_are_text(cell: str) -> None:
    assert fields({"contexts": cell}, cells=True)["retrieved_contexts"] == [cell]


def test_metadata_is_canonical_json() -> None:
    assert fields({"b": 1, "a": "é"})["metadata"] == '{"a":"é","b":1}'


def test_hostile_cells_take_linear_time() -> None:
    start = time.process_time()
    for cell in ("['" + "' " * 500_000, "[" * 1_000_000 + "]", "['" + " " * 1_000_000 + "]"):
        sample_fields({"contexts": cell}, fields_by_column({}), cells=True)
    assert time.process_time() - start < 2


def test_a_record_error_has_a_message_with_its_hint() -> None:
    wrong = RecordError("'a' is a number", "write it as text")
    assert str(wrong) == "'a' is a number; write it as text"
    assert json.loads(fields({"x": None})["metadata"]) == {"x": None}


def test_claims_are_lists_of_texts() -> None:
    found = fields({"response_claims": ["a", "a", " b"], "reference_claims": []})
    assert (found["response_claims"], found["reference_claims"]) == (["a", "a", " b"], [])
    triplets = fields({"response_claims": [["Nile", "is", "long"], "b"]})
    assert triplets["response_claims"] == ["Nile is long", "b"]
    assert fields({"response_claims": None})["response_claims"] is None
    assert fields({})["response_claims"] is None
    cells = fields({"response_claims": '["a", "b"]', "reference_claims": "[]"}, cells=True)
    assert (cells["response_claims"], cells["reference_claims"]) == (["a", "b"], [])
    assert fields({"reference_claims": None}, cells=True)["reference_claims"] is None


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ("1. A. 2. B.", "is text; write a list of texts"),
        ({"text": "a"}, "is an object; write a list of texts"),
        ([["a", 1]], "holds a list in place 1; write a list of texts"),
        (["a", []], "holds a list in place 2; write a list of texts"),
        (["a", 3], "holds a number in place 2; write a list of texts"),
        (["a", None], "holds null in place 2; write a list of texts"),
        (["a", " \n"], "holds a blank claim in place 2; leave it out"),
    ],
)
def test_invalid_claims(value: Any, wrong: str) -> None:
    _, errors = sample_fields({"reference_claims": value}, fields_by_column({}), cells=False)
    assert [str(found) for found in errors] == [f"'reference_claims' {wrong}"]


@pytest.mark.parametrize("cell", ["a claim", "", "[1]", "['a' 'b']"])
def test_claims_in_a_cell_are_a_list_as_json(cell: str) -> None:
    _, errors = sample_fields({"response_claims": cell}, fields_by_column({}), cells=True)
    (error,) = errors
    assert error.hint in ("write a list of texts", 'write it as JSON: ["one", "two"]')


@pytest.mark.parametrize(
    ("column", "field"),
    [
        ("respnse", "response"),
        ("Response", "response"),
        ("anwser", "response"),
        ("context", "retrieved_contexts"),
        ("refrences", "reference"),
    ],
)
def test_a_column_like_a_missing_field_is_a_misspelling(column: str, field: str) -> None:
    missing = {"user_input", "response", "reference", "retrieved_contexts"}
    assert misspelt_fields({column, "topic"}, {}, missing) == {field: column}
    assert misspelt_fields({column, "topic"}, {}, missing - {field}) == {}


@pytest.mark.parametrize(
    "column", ["ids", "response_id", "response_ms", "query_id", "topic", "source", "inference"]
)
def test_other_metadata_is_no_misspelling(column: str) -> None:
    missing = {"sample_id", "user_input", "response", "reference", "retrieved_contexts"}
    assert misspelt_fields({column}, {}, missing) == {}


def test_a_renamed_column_is_no_misspelling() -> None:
    assert misspelt_fields({"respnse"}, {"respnse": "response"}, {"response"}) == {}
