import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.text.comparison import Comparison, Letters, lengths
from claimflow.stages.text.overlap import token_overlap, token_overlaps

GOLDEN = Path(__file__).parents[1] / "golden" / "golden_lexical.jsonl"
TOKENS = st.lists(st.sampled_from("abcdef"), max_size=12)
TEXT = st.text(alphabet="abc\n\0\U0001f600", max_size=9)
COMPARISONS = st.lists(st.builds(Comparison, st.lists(TEXT, max_size=4), TEXT), max_size=5)


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
        distinct = token_overlap(tokens, source).distinct
        assert list(distinct) == pytest.approx(expected, rel=1e-9, abs=1e-12)
        count += 1
    assert count == 1016


def test_equals_the_golden_values_of_treebank_tokens():
    for line in GOLDEN.read_text().split("\n"):
        legacy = json.loads(line)["legacy_0_2_4"] if line else {}
        if "sentence_word_tokens" in legacy:
            source = legacy["context_word_tokens"]
            overlaps = [token_overlap(words, source) for words in legacy["sentence_word_tokens"]]
            precisions = [overlap.distinct.precision for overlap in overlaps]
            assert precisions == pytest.approx(legacy["token_overlap_p_by_sentence"], rel=1e-9)


def test_distinct_hits_are_divided_by_tokens_with_repeats():
    assert token_overlap(["cat"] * 3, ["cat"] * 3).distinct == (1 / 3, 1 / 3, 1 / 3)
    assert token_overlap(["a", "b"], ["a", "c", "d", "d"]).distinct == (0.5, 0.25, 1 / 3)


def test_clipped_hits_count_a_token_as_often_as_both_have_it():
    assert token_overlap(["cat"] * 3, ["cat"] * 2).clipped == (2 / 3, 1, 0.8)
    assert token_overlap(["a", "b", "b"], ["b", "b", "b"]).clipped == (2 / 3, 2 / 3, 2 / 3)


@pytest.mark.parametrize(("tokens", "source"), [([], []), (["a"], []), ([], ["a"]), (["a"], ["b"])])
def test_nothing_in_common_is_zero(tokens, source):
    assert token_overlap(tokens, source) == ((0, 0, 0), (0, 0, 0))


@given(TOKENS, TOKENS)
def test_in_range_and_precision_and_recall_swap_with_the_sides(tokens, source):
    forth, back = token_overlap(tokens, source), token_overlap(source, tokens)
    for one, other in zip(forth, back, strict=True):
        assert (one.precision, one.recall, one.f1) == (other.recall, other.precision, other.f1)
        assert all(0 <= part <= 1 for part in one)
    assert all(d <= c for d, c in zip(forth.distinct, forth.clipped, strict=True))


@given(TOKENS.filter(bool))
def test_clipped_overlap_of_identical_tokens_is_one(tokens):
    assert token_overlap(tokens, tokens).clipped == (1, 1, 1)


@given(st.lists(st.text(), min_size=1, unique=True))
def test_identical_distinct_tokens_score_one(tokens):
    assert token_overlap(tokens, tokens).distinct == (1, 1, 1)


@given(COMPARISONS)
def test_many_texts_equal_the_definition(comparisons):
    distinct, clipped = token_overlaps(comparisons)
    pairs = [(text, source) for texts, source in comparisons for text in texts]
    for place, (text, source) in enumerate(pairs):
        size = max(len(text), 1)
        assert distinct.precision[place] == len(set(text) & set(source)) / size
        assert clipped.precision[place] == (Counter(text) & Counter(source)).total() / size
    assert [side.tolist() for side in lengths(comparisons)] == [
        [len(text) for text, _ in pairs],
        [len(source) for _, source in pairs],
    ]


@given(st.lists(st.text(max_size=2), max_size=30), st.lists(st.text(max_size=2), max_size=30))
def test_letters_are_equal_where_words_are(left, right):
    spell = Letters().spell
    one, other = spell(left), spell(right)
    assert (len(one), len(other)) == (len(left), len(right))
    assert [[a == b for a in left] for b in right] == [[a == b for a in one] for b in other]
