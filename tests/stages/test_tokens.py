import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.text import tokens as tokens_module
from claimflow.stages.text.overlap import token_overlap
from claimflow.stages.text.tokens import (
    content_words,
    lacks_spaces,
    tokenize,
    treebank_words,
    unspaced_words,
)
from claimflow.stages.text.unicode_words import unicode_words
from claimflow.stages.text.word_lists import STOP_WORDS

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = [
    json.loads(line) for line in (GOLDEN / "golden_lexical.jsonl").read_text().split("\n") if line
]


def test_stop_words_are_those_of_the_golden_list():
    assert sorted(STOP_WORDS) == (GOLDEN / "stopwords_effective.txt").read_text().split()


def test_content_tokens_equal_the_golden_ones():
    cases = [case for case in CASES if "answer_tokens" in case]
    assert len(cases) == 326
    for case in cases:
        assert [content_words(s) for s in case["answer_sentences"]] == case["sentence_tokens"]
        contexts = [word for s in case["context_sentences"] for word in content_words(s)]
        assert contexts == case["context_tokens"]
        whole = [content_words(case["answer"]), *map(content_words, case["texts"])]
        assert (whole == [case["answer_tokens"], *case["text_tokens"]]) == case[
            "tokens_split_invariant"
        ]


def test_treebank_tokens_equal_the_golden_ones():
    cases = [case for case in CASES if "sentence_word_tokens" in case["legacy_0_2_4"]]
    assert len(cases) == 326
    for case in cases:
        legacy = case["legacy_0_2_4"]
        words = [treebank_words(sentence) for sentence in case["answer_sentences"]]
        assert words == legacy["sentence_word_tokens"], case["id"]
        contexts = [word for s in case["context_sentences"] for word in treebank_words(s)]
        assert contexts == legacy["context_word_tokens"]


def test_overlaps_of_all_cases_equal_the_golden_ones():
    # The seven longest cases record no tokens, but what comes of them.
    assert len(CASES) == 333
    for case in CASES:
        context = [word for s in case["context_sentences"] for word in treebank_words(s)]
        precisions = [
            token_overlap(treebank_words(sentence), context).distinct.precision
            for sentence in case["answer_sentences"]
        ]
        assert precisions == pytest.approx(
            case["legacy_0_2_4"]["token_overlap_p_by_sentence"], rel=1e-9, abs=1e-12
        )
        context = [word for s in case["context_sentences"] for word in content_words(s)]
        for sentence, parts in zip(
            case["answer_sentences"], case["expected"]["per_sentence"], strict=True
        ):
            assert list(token_overlap(content_words(sentence), context).distinct) == pytest.approx(
                [
                    parts["token_overlap"]["scores"][f"token_overlap_{name}"]
                    for name in ("precision", "recall", "f1")
                ],
                rel=1e-9,
                abs=1e-12,
            )


# What NLTK 3.9.1's tokenizer gives for these sentences.
TREEBANK = {
    'He said "hi" (twice).': ["He", "said", "``", "hi", "''", "(", "twice", ")", "."],
    "Isn't it 3,5 or 4.5%?": ["Is", "n't", "it", "3,5", "or", "4.5", "%", "?"],
    "I'm gonna... 'tis cannot--well": [
        *("I", "'m", "gon", "na", "...", "'t", "is", "can", "not", "--", "well"),
    ],
    "D'ye want more'n a, b: c;": ["D", "'ye", "want", "more", "'n", "a", ",", "b", ":", "c", ";"],
    "‘Yes’ «no» ``x''": ["‘", "Yes", "’", "«", "no", "»", "``", "x", "''"],
    "dogs' 'a' wanna go": ["dogs", "'", "'", "a", "'", "wan", "na", "go"],
}


@pytest.mark.parametrize("sentence", TREEBANK)
def test_treebank_rules(sentence):
    assert treebank_words(sentence) == TREEBANK[sentence]


PARTS = [*"abxsSdDtTN019.,:;'\"`()[]{}<>*#&?!-«»“”‘’„ \u00a0\t\n\u3000ıéß", *"      "]
PARTS += ["'s", "n't", "'ll", "can", "not", "wanna", "cannot", "gimme", "'tis", "more'n", "d'ye"]
PARTS += ["...", "''", "``", "--", "Mr. ", ". A"]


@given(st.lists(st.sampled_from(PARTS), max_size=14).map("".join))
def test_cached_pieces_have_the_tokens_of_the_rules(sentence):
    assert treebank_words(sentence) == tokens_module._apply_rules(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        'He said "no." )',
        '""A" is it."',
        "''A'' is it.",
        "cannot, wanna. wanna",
        *("", ".", "a.", '"', " a", "a ", "x.\u00a0)", "It ends. )\u00a0)"),
        "1,5: a,, b",
        "Wait .. .",
        "\1 \0 \1",
    ],
)
def test_sentences_that_begin_or_end_with_marks_have_the_tokens_of_the_rules(sentence):
    assert treebank_words(sentence) == tokens_module._apply_rules(sentence)


def test_sentences_of_the_labelled_data_have_the_tokens_of_the_rules():
    for path in (GOLDEN.parent / "data" / "sentence_split").glob("*.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            for sentence in json.loads(line)["sentences"]:
                assert treebank_words(sentence) == tokens_module._apply_rules(sentence)


def test_treebank_parts_the_last_stop_of_each_sentence_only():
    assert tokenize("Mr. A. left. He ran.") == ["Mr.", "A.", "left", ".", "He", "ran", "."]
    assert treebank_words("Go. He ran.") == ["Go.", "He", "ran", "."]


def test_content_numbers_compare_by_value_and_lose_their_punctuation():
    assert tokenize("007, 7 and ７ or -5", tokens="content") == ["#7.0"] * 3 + ["#5.0"]
    assert tokenize("3.14 1e5", tokens="content") == ["#314.0", "#100000.0"]
    assert tokenize("9" * 400, tokens="content") == ["#inf"]


def test_content_words_part_two_words_written_as_one():
    for word in ("can/not", "gim/me", "gon/na", "got/ta", "lem/me", "wan/na", "gım/me"):
        first, second = word.split("/")
        assert content_words(f"x {first.title()}{second}, {first}-{second}s {first}{second}") == [
            *("x", first, second, f"{first}{second}s", first, second),
        ]


def test_unicode_tokens_are_unicode_words():
    text = "Don’t stop: -3.5 °C, 1,250,000 km!"
    assert tokenize(text, tokens="unicode") == unicode_words(text)


def test_characters_without_spaces_are_pairs_or_triples():
    assert unspaced_words("北京在1420年建成。") == ["北京", "京在", "1420", "年建", "建成"]
    assert unspaced_words("東京タワー") == ["東京", "京タ", "タワ", "ワー"]
    assert unspaced_words("ที่นี่ดี") == ["ที่นี่ดี"]
    assert unspaced_words("กรุงเทพ") == ["กรุง", "รุงเ", "งเท", "เทพ"]
    assert unspaced_words("GPT-4 的 Don't") == ["gpt", "4", "的", "don't"]
    assert unspaced_words("") == []


@pytest.mark.parametrize(
    "text",
    [
        "北京",
        "東京タワーは高い",
        "ひらがな",
        "กรุงเทพ",
        "ວຽງຈັນ",
        "ភ្នំពេញ",
        "မြန်မာ",
        "用 PyTorch 加载 GPU",
        "ﾄｳｷｮｳ",
    ],
)
def test_scripts_without_spaces(text):
    assert lacks_spaces(text)
    assert tokenize(text) == unspaced_words(text)
    assert lacks_spaces("in", text * 20)


@pytest.mark.parametrize(
    "text",
    ["", "42", "...", "Beijing", "한국어 문장", "यह है", "كتاب", "Beijing (北京) is old", "฿100"],
)
def test_other_scripts(text):
    assert not lacks_spaces(text)
    assert tokenize(text) == tokenize(text, tokens="treebank")


@given(st.text(st.sampled_from("故宫のタกรุงเທພ 1a。é'"), max_size=40))
def test_n_grams_hold_each_unicode_word(text):
    # Every word begins an n-gram or ends one, in order, and no n-gram has more than three.
    tokens = unspaced_words(text)
    assert set("".join(tokens)) == set("".join(unicode_words(text)))
    assert len(tokens) <= len(unicode_words(text))
    assert all(len(unicode_words(token)) <= 3 for token in tokens)


@given(st.text(max_size=80), st.sampled_from(["auto", "treebank", "content", "unicode"]))
def test_any_text_has_tokens_without_blanks(text, tokens):
    for word in tokenize(text, tokens=tokens):
        assert word
        assert word.split() == [word]


@pytest.mark.parametrize("tokens", ["auto", "treebank", "content", "unicode"])
@pytest.mark.parametrize(
    "unit",
    ["a", "1", " ", ".", "'", '"', ",", "`", ".)", "a' ", "\u0301\u0316", "1,000", "山", "กา"],
)
def test_time_is_linear(unit, tokens):
    text = "x" + unit * (100_000 // len(unit)) + "x"
    started = time.process_time()
    tokenize(text, tokens=tokens)
    assert time.process_time() - started < 3
