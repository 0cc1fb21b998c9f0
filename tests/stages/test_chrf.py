import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.text.chrf import chrf, chrfs
from claimflow.stages.text.comparison import Comparison

MEASURES = Path(__file__).parents[1] / "golden" / "golden_measures.jsonl"


def test_equals_sacrebleu():
    cases = [json.loads(line) for line in MEASURES.read_text().split("\n") if line]
    for case in cases:
        ours = chrf(case["text"], case["source"])
        assert ours == pytest.approx(case["chrf"], rel=1e-9, abs=1e-12), case["id"]
    assert len(cases) == 470


def test_precision_and_recall_are_means_over_the_orders_that_both_texts_have():
    # Hits of 1 to 3 characters: 3, 2, 1 of 3, 2, 1 in the text, of 4, 3, 2 in the source.
    recall = (3 / 4 + 2 / 3 + 1 / 2) / 3
    assert chrf("abc", "abcd") == 5 * recall / (4 + recall)


def test_white_space_is_left_out():
    assert chrf("a b\tc\u3000d", "ab cd") == 1


@pytest.mark.parametrize(("text", "source"), [("", ""), ("a", " "), ("\n", "a"), ("a", "A")])
def test_nothing_in_common_is_zero(text, source):
    assert chrf(text, source) == 0


def test_many_texts_keep_their_order():
    comparisons = [Comparison(["ab", "x"], "ab"), Comparison([], "b"), Comparison(["b"], "b")]
    assert chrfs(comparisons) == [1, 0, 1]


@given(st.text(max_size=30), st.text(max_size=30))
def test_in_range(text, source):
    assert 0 <= chrf(text, source) <= 1


@given(st.text().filter(str.strip))
def test_identical_texts_score_one(text):
    assert chrf(text, text) == pytest.approx(1)
