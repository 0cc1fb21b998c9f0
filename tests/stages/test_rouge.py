import json
import time
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.text.comparison import Comparison
from claimflow.stages.text.overlap import lcs_length, rouge_l, rouge_ls, rouge_words

GOLDEN = Path(__file__).parents[1] / "golden" / "golden_lexical.jsonl"
MEASURES = GOLDEN.with_name("golden_measures.jsonl")
WORDS = st.lists(st.sampled_from("abcd"), max_size=9)


def compared():
    """A text, its source, and the values of a ROUGE-L that counts distinct words by piece."""
    for line in GOLDEN.read_text().split("\n"):
        case = json.loads(line) if line else {"expected": {"per_text": [], "per_sentence": []}}
        for text, parts in zip(case.get("texts", []), case["expected"]["per_text"], strict=True):
            yield case["answer"], text, parts["rouge_l"]
        sentences = case.get("answer_sentences", [])
        for sentence, parts in zip(sentences, case["expected"]["per_sentence"], strict=True):
            yield sentence, "\n".join(case["texts"]), parts["rouge_l"]


def is_plain(text):
    """One piece between full stops, in which no word repeats: where both definitions agree."""
    words = rouge_words(text)
    return len([p for p in text.split(".") if p]) <= 1 and len(set(words)) == len(words)


def test_equals_the_golden_values_where_the_definitions_agree():
    count, only_punctuation = 0, 0
    for text, source, outcome in compared():
        if outcome["status"] == "error" or not (is_plain(text) and is_plain(source)):
            continue
        if not any(c.isalnum() for c in text) and text.isascii():
            only_punctuation += 1  # there the other side is 0 whatever the source
            continue
        p, r = (outcome["scores"][f"rouge_l_{part}"] for part in ("precision", "recall"))
        ours = rouge_l(text, source)
        assert [ours.precision, ours.recall] == pytest.approx([p, r], rel=1e-9, abs=1e-12)
        f1 = 2 * p * r / (p + r) if p + r else 0
        assert ours.f1 == pytest.approx(f1, rel=1e-9, abs=1e-12)
        count += 1
    assert (count, only_punctuation) == (309, 38)


def test_equals_rouge_score():
    cases = [json.loads(line) for line in MEASURES.read_text().split("\n") if line]
    for case in cases:
        ours = rouge_l(case["text"], case["source"])
        assert list(ours) == pytest.approx(case["rouge_l"], rel=1e-9, abs=1e-12), case["id"]
    assert len(cases) == 470


def test_letters_are_counted_as_words():
    rouge = rouge_ls([Comparison(["abx", ""], "xaab"), Comparison(["b"], "")])
    assert rouge.precision.tolist() == [2 / 3, 0, 0]
    assert rouge.recall.tolist() == [0.5, 0, 0]


def test_documented_example():
    source = "William Shakespeare is the author of 'Romeo and Juliet'."
    first = rouge_l("William Shakespeare wrote 'Romeo and Juliet'.", source)
    assert (first.precision, first.recall) == (0.8333333333333334, 5 / 9)
    assert rouge_l("He is born in Ireland", source).precision == 0.2


def test_words_end_at_white_space_and_full_stops():
    assert rouge_words("U.S. costs: 3.14!\u2003Ok.") == ["U", "S", "costs:", "3", "14!", "Ok"]


@pytest.mark.parametrize(
    ("text", "source"), [("", ""), ("a", ""), ("", "a"), ("..", "."), ("a", "A")]
)
def test_nothing_in_common_is_zero(text, source):
    assert rouge_l(text, source) == (0, 0, 0)


def by_definition(words, source):
    """The longest subsequence of `words` that is one of `source`, by trying all."""
    for size in range(len(words), 0, -1):
        for chosen in combinations(words, size):
            rest = iter(source)
            if all(word in rest for word in chosen):
                return size
    return 0


@given(WORDS, WORDS)
def test_lcs_is_the_longest_common_subsequence(words, source):
    assert lcs_length(words, source) == by_definition(words, source)


@given(WORDS, WORDS)
def test_in_range_and_precision_and_recall_swap_with_the_sides(left, right):
    forth, back = rouge_l(" ".join(left), " ".join(right)), rouge_l(" ".join(right), " ".join(left))
    assert (forth.precision, forth.recall, forth.f1) == (back.recall, back.precision, back.f1)
    assert all(0 <= part <= 1 for part in forth)


@given(st.text().filter(rouge_words))
def test_identical_texts_score_one(text):
    assert rouge_l(text, text) == (1, 1, 1)


def test_long_texts_take_bounded_time():
    started = time.process_time()
    assert lcs_length(["a", "b"] * 20_000, ["b", "a"] * 20_000) == 39_999
    assert time.process_time() - started < 3
