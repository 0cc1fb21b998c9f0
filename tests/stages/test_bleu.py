import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.text.bleu import character_bleu, character_bleus, word_bleu
from claimflow.stages.text.comparison import Comparison

GOLDEN = Path(__file__).parents[1] / "golden" / "golden_lexical.jsonl"
MEASURES = GOLDEN.with_name("golden_measures.jsonl")


def test_characters_equal_all_golden_values():
    count = 0
    for line in GOLDEN.read_text().split("\n"):
        if not line:
            continue
        case = json.loads(line)
        per_text, per_sentence = case["expected"]["per_text"], case["expected"]["per_sentence"]
        for source, parts in zip(case["texts"], per_text, strict=True):
            agrees(character_bleu(case["answer"], source), parts["bleu"])
        bleus = character_bleus([Comparison(case["answer_sentences"], "\n".join(case["texts"]))])
        for bleu, parts in zip(bleus, per_sentence, strict=True):
            agrees(bleu, parts["bleu"])
        count += len(per_text) + len(per_sentence)
    assert count == 1134


def agrees(bleu, outcome):
    expected = outcome["scores"]["bleu_score"]
    assert bleu == pytest.approx(expected, rel=1e-9, abs=0)


def test_documented_example():
    sentences = ["William Shakespeare wrote 'Romeo and Juliet'.", "He is born in Ireland"]
    source = "William Shakespeare is the author of 'Romeo and Juliet'."
    scores = character_bleus([Comparison(sentences, source)])
    assert scores == [0.6855956729300113, 0.05488226210213251]
    assert sum(scores) / 2 == 0.37023896751607194


def test_short_texts_have_almost_no_character_bleu():
    assert character_bleu("Yes.", "Yes.") == 1
    assert character_bleu("Yes", "Yes") == pytest.approx(sys.float_info.min**0.25)
    assert character_bleu("", "Yes") == character_bleu("x", "") == character_bleu("", "") == 0


# sacrebleu 2's sentence_bleu(text, [source], tokenize="none").score / 100
WORD_BLEU = [
    ("the cat sat on the mat", "the cat sat on the mat", 1.0000000000000004),
    ("Paris", "Paris", 1.0000000000000004),
    ("the the the the", "the cat sat here", 0.1597357760615681),
    ("a cat is on the mat", "the cat is on a big red mat", 0.25745264623946035),
    ("one two three", "three two one zero", 0.28435563904324646),
    ("a b c d e f", "a b x d e f g", 0.32159351091190125),
    ("x y", "a b", 0.0),
    ("the cat", "the cat sat on the mat", 0.13533528323661276),
    ("a b c d e f g h", "a b", 0.1104479556707894),
]


@pytest.mark.parametrize(("text", "source", "expected"), WORD_BLEU)
def test_words_equal_sacrebleu(text, source, expected):
    assert word_bleu(text.split(), source.split()) == pytest.approx(expected, rel=1e-9)


def test_words_equal_sacrebleu_on_recorded_texts():
    cases = [json.loads(line) for line in MEASURES.read_text().split("\n") if line]
    for case in cases:
        bleu = word_bleu(case["text"].split(), case["source"].split())
        assert bleu == pytest.approx(case["word_bleu"], rel=1e-9, abs=1e-12), case["id"]
    assert len(cases) == 470


@given(st.text(max_size=30), st.text(max_size=30))
def test_in_range(text, source):
    assert 0 <= character_bleu(text, source) <= 1
    assert 0 <= word_bleu(text.split(), source.split()) <= 1


@given(st.text(min_size=4))
def test_identical_texts_score_one(text):
    assert character_bleu(text, text) == 1
    assert word_bleu(list(text), list(text)) == 1
