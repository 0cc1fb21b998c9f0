"""The measures of continuous-eval: token overlap of recorded tokens, and all of them on texts."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.compat.continuous_eval import (
    content_tokens,
    continuous_eval_measures,
    overlap_with,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "golden_lexical.jsonl"
CASES = [json.loads(line) for line in GOLDEN.read_text("utf-8").split("\n") if line]


def agrees(values: Any, outcome: Any, measure: str) -> None:
    wanted = [outcome["scores"][f"{measure}_{part}"] for part in ("precision", "recall", "f1")]
    assert list(values) == pytest.approx(wanted, rel=1e-9, abs=1e-12)


def test_golden_overlap_from_the_recorded_tokens() -> None:
    cases = [case for case in CASES if "answer_tokens" in case]
    assert len(cases) == 326
    for case in cases:
        overlap = overlap_with(case["context_tokens"])
        expected = case["expected"]
        for tokens, parts in zip(case["sentence_tokens"], expected["per_sentence"], strict=True):
            agrees(overlap(tokens), parts["token_overlap"], "token_overlap")
        for tokens, parts in zip(case["text_tokens"], expected["per_text"], strict=True):
            values = overlap_with(tokens)(case["answer_tokens"])
            agrees(values, parts["token_overlap"], "token_overlap")


def test_golden_tokens_of_whole_texts() -> None:
    for case in CASES:
        if "answer_tokens" in case:
            assert content_tokens(case["answer"]) == case["answer_tokens"]
            assert list(map(content_tokens, case["texts"])) == case["text_tokens"]


@pytest.mark.parametrize("by_sentence", [True, False])
def test_golden_measures_of_plain_texts(by_sentence: bool) -> None:
    count = 0
    for case in CASES:
        sources = ["\n".join(case["texts"])] if by_sentence else case["texts"]
        parts = case["expected"]["per_sentence" if by_sentence else "per_text"]
        measures = continuous_eval_measures(case["answer"], sources, by_sentence=by_sentence)
        found = [made for against in measures for made in against]
        if any(part["rouge_l"].get("type") == "ValueError" for part in parts):
            assert found == []
            continue
        for made, part in zip(found, parts, strict=True):
            agrees(made.token_overlap, part["token_overlap"], "token_overlap")
            rouge = part["rouge_l"]
            if "with_raised_recursion_limit" in rouge:
                rouge = {"scores": rouge["with_raised_recursion_limit"]}
            agrees(made.rouge_l, rouge, "rouge_l")
            count += 1
    assert count > 500


def test_a_part_is_named_by_position_and_span_for_every_source() -> None:
    text = " It rains. It pours. "
    found = continuous_eval_measures(text, ["a", "b"], by_sentence=True)
    named = [(0, " It rains.", (0, 10)), (1, "It pours.", (11, 20))]
    assert [[made[:3] for made in against] for against in found] == [named, named]
    assert continuous_eval_measures(text, ["a"], by_sentence=False)[0][0][:3] == (
        None,
        text,
        (0, 21),
    )


def test_a_sentence_is_split_again_for_its_tokens() -> None:
    # Of two stops in one word only the last cuts, so the first one does when that is gone.
    ((first, _),) = continuous_eval_measures("x.)y.)c", ["x y"], by_sentence=True)
    assert (first.text, first.token_overlap.precision) == ("x.)y.", 1.0)


@pytest.mark.parametrize(
    ("text", "sources", "made"),
    [
        (" \n", ["a"], []),
        ("a. b.", ["a", "..."], []),
        ("a. b.", [], []),
        ("? ?", ["...", ""], [2, 2]),
    ],
)
def test_texts_for_which_the_library_raises_have_no_measures(
    text: str, sources: list[str], made: list[int]
) -> None:
    found = continuous_eval_measures(text, sources, by_sentence=True)
    assert [len(parts) for parts in found] == made


@given(st.text(max_size=40), st.text(max_size=40), st.booleans())
def test_measures_lie_between_0_and_1(text: str, source: str, by_sentence: bool) -> None:
    for parts in continuous_eval_measures(text, [source], by_sentence=by_sentence):
        for made in parts:
            assert all(0 <= value <= 1 for value in (*made.rouge_l, *made.token_overlap))
