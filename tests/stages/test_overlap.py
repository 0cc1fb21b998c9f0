import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.text.overlap import token_overlap, token_overlap_with

GOLDEN = Path(__file__).parents[1] / "golden" / "golden_lexical.jsonl"
TOKENS = st.lists(st.sampled_from("abcdef"), max_size=12)


def compared():
    """Recorded tokens of a text and of its source, with the expected overlap."""
    for line in GOLDEN.read_text().split("\n"):
        case = json.loads(line) if line else {}
        if "answer_tokens" not in case:
            continue
        expected = case["expected"]
        for tokens, parts in zip(case["text_tokens"], expected["per_text"], strict=True):
            yield case["answer_tokens"], tokens, parts["token_overlap"]["scores"]
        for tokens, parts in zip(case["sentence_tokens"], expected["per_sentence"], strict=True):
            yield tokens, case["context_tokens"], parts["token_overlap"]["scores"]


def test_equals_the_golden_values():
    count = 0
    for tokens, source, scores in compared():
        expected = [scores[f"token_overlap_{part}"] for part in ("precision", "recall", "f1")]
        assert list(token_overlap(tokens, source)) == pytest.approx(expected, rel=1e-9, abs=1e-12)
        count += 1
    assert count == 1016


def test_equals_the_golden_values_of_treebank_tokens():
    for line in GOLDEN.read_text().split("\n"):
        legacy = json.loads(line)["legacy_0_2_4"] if line else {}
        if "sentence_word_tokens" in legacy:
            overlap = token_overlap_with(legacy["context_word_tokens"])
            precisions = [overlap(words).precision for words in legacy["sentence_word_tokens"]]
            assert precisions == pytest.approx(legacy["token_overlap_p_by_sentence"], rel=1e-9)


def test_distinct_hits_are_divided_by_tokens_with_repeats():
    assert token_overlap(["cat"] * 3, ["cat"] * 3) == (1 / 3, 1 / 3, 1 / 3)
    assert token_overlap(["a", "b"], ["a", "c", "d", "d"]) == (0.5, 0.25, 1 / 3)


@pytest.mark.parametrize(("tokens", "source"), [([], []), (["a"], []), ([], ["a"]), (["a"], ["b"])])
def test_nothing_in_common_is_zero(tokens, source):
    assert token_overlap(tokens, source) == (0, 0, 0)


@given(TOKENS, TOKENS)
def test_in_range_and_precision_and_recall_swap_with_the_sides(tokens, source):
    forth, back = token_overlap(tokens, source), token_overlap(source, tokens)
    assert (forth.precision, forth.recall, forth.f1) == (back.recall, back.precision, back.f1)
    assert all(0 <= part <= 1 for part in forth)


@given(st.lists(st.text(), min_size=1, unique=True))
def test_identical_distinct_tokens_score_one(tokens):
    assert token_overlap(tokens, tokens) == (1, 1, 1)
