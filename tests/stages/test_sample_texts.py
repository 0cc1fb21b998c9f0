"""The texts of a sample: sources to compare with, and premises with places in them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.sample_texts import Against, Premise, premises_of, sources_of

EMPTY = {"reference": None, "other_references": [], "retrieved_contexts": None}
JOINED = Premise("first\nthe second\n\nlast", ("first", "the second", "", "last"))


@pytest.mark.parametrize(
    ("against", "fields", "sources"),
    [
        ("reference", {"reference": "a"}, [(0, "a")]),
        (
            "reference",
            {"reference": "", "other_references": ["b", "a"]},
            [(0, ""), (1, "b"), (2, "a")],
        ),
        ("reference", {"other_references": ["a"]}, [(1, "a")]),
        ("reference", {"other_references": None}, []),
        ("retrieved_contexts", {"retrieved_contexts": ["b", "", "a"]}, [(None, "b\n\na")]),
        ("retrieved_contexts", {"retrieved_contexts": ["b", None, "a"]}, [(None, "b\na")]),
        ("retrieved_contexts", {"retrieved_contexts": []}, [(None, "")]),
        ("retrieved_contexts", {}, []),
    ],
)
def test_the_sources_of_a_sample(
    against: Against, fields: dict[str, Any], sources: list[tuple[int | None, str]]
) -> None:
    assert sources_of(EMPTY | fields, against) == sources


def test_a_field_gives_one_premise_or_one_for_each_passage() -> None:
    assert (
        premises_of("text", "joined") == premises_of("text", "each") == [Premise("text", ("text",))]
    )
    contexts = list(JOINED.texts)
    assert premises_of(contexts, "joined") == [JOINED]
    assert premises_of(["a", ""], "each") == [Premise("a", ("a",), 0), Premise("", ("",), 1)]


def test_missing_is_not_empty() -> None:
    assert premises_of(None, "joined") == premises_of(None, "each") == []
    assert premises_of([], "each") == []
    assert premises_of([], "joined") == [Premise("", ())]
    assert premises_of("", "joined") == [Premise("", ("",))]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("first", (0, 0, 5)),
        ("the second", (1, 0, 10)),
        ("second", (1, 4, 10)),
        ("last", (3, 0, 4)),
        ("rst\nthe s", (1, 0, 5)),
        ("first\nthe", (0, 0, 5)),
        ("st\nth", (0, 3, 5)),
        ("d\n\nlast", (3, 0, 4)),
        (JOINED.text, (1, 0, 10)),
    ],
)
def test_a_span_belongs_to_the_text_that_holds_most_of_it(
    words: str, expected: tuple[int, int, int]
) -> None:
    start = JOINED.text.index(words)
    assert JOINED.locate(start, start + len(words)) == expected


@given(st.lists(st.text("ab", max_size=4), min_size=1, max_size=6), st.data())
def test_a_place_is_inside_its_text_and_in_the_span(texts: list[str], data: st.DataObject) -> None:
    (premise,) = premises_of(texts, "joined")
    if not premise.text:
        return
    start = data.draw(st.integers(0, len(premise.text) - 1))
    end = data.draw(st.integers(start + 1, len(premise.text)))
    number, begin, stop = premise.locate(start, end)
    assert 0 <= begin <= stop <= len(texts[number])
    assert texts[number][begin:stop] in premise.text[start:end]
    longest = max(map(len, premise.text[start:end].split("\n")))
    assert stop - begin == longest
