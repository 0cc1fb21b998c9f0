import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.text.abbreviations import ABBREVIATIONS
from claimflow.stages.text.many_sentences import find_sentences
from claimflow.stages.text.pieces import Pieces
from claimflow.stages.text.sentences import sentence_bounds

DATA = Path(__file__).parents[1] / "data" / "sentence_split"
WORDS = ["food", "Food", "Mr", "ff", "B", "U.S", "13", "1", "2", "iv", "don't", "(x", "e\u0301"]
WORDS += ["é", "hmm", "...", "fine.We", "why?he", "3.5", "東京。大阪", "है", "\x00", "•", "x\u00a0y"]
STOPS = [". ", ".", "? ", "! ", "?! ", "... ", "… ", '." ', ".) ", ". [1] ", "! :D ", ". ? ", "。"]
STOPS += ["। ", ".\n", ".\t", "  ", " \n ", ": 1. ", " 2) ", " 2. ", " — ", " 😀 ", "« ", " »", "।"]
WORDS += ["（है", "है）", "《A", "B》"]
STOPS += ["।) ", "।। ", ". . ", ". 😀 ", ". » ", "? ...", ". :"]
TEXTS = st.lists(
    st.lists(st.sampled_from([*WORDS, *STOPS, " ", " ", *sorted(ABBREVIATIONS)[::9]]), max_size=14),
    min_size=1,
    max_size=4,
).map(lambda lists: ["".join(pieces) for pieces in lists])


def found(texts):
    return find_sentences(texts, Pieces.of(texts))


def bounds(texts):
    sentences = found(texts)
    return [sentences.bounds(number) for number in range(len(texts))]


@given(TEXTS)
def test_each_text_has_the_sentences_it_has_alone(texts):
    assert bounds(texts) == list(map(sentence_bounds, texts))


@given(st.lists(st.text(alphabet="aB1.?!… \n\t\"')[]。;:-•é中😀"), min_size=1, max_size=3))
def test_whatever_the_characters(texts):
    assert bounds(texts) == list(map(sentence_bounds, texts))


@pytest.mark.parametrize("name", ["ud_ewt.test", "languages", "golden_rules"])
def test_texts_of_the_labelled_data(name):
    lines = (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    sentences = [sentence for line in lines for sentence in json.loads(line)["sentences"]]
    texts = [" ".join(sentences[first : first + 7]) for first in range(0, len(sentences), 7)]
    assert bounds(texts) == list(map(sentence_bounds, texts))


@given(TEXTS)
def test_sentences_are_made_of_the_pieces_up_to_a_last_one(texts):
    pieces = Pieces.of(texts)
    sentences = find_sentences(texts, pieces)
    made, words = [], []
    for code, is_last in zip(sentences.codes.tolist(), sentences.last.tolist(), strict=True):
        words.append(pieces.distinct[code])
        if is_last:
            made.append(" ".join(words).strip(" "))
            words = []
    assert not "".join(words)
    kept = [n for n in range(len(texts)) if n not in sentences.apart]
    places = [(n, *place) for n in kept for place in zip(*sentences.bounds(n), strict=True)]
    assert made == [texts[n][start:end] for n, start, end in places]
    for number in kept:
        own = made[slice(*sentences.firsts[number : number + 2])]
        assert len(own) == len(sentences.bounds(number).starts)


@pytest.mark.parametrize(
    ("text", "apart"),
    [
        ("Mr. B ate. Fine? no.", False),
        ("He ate! :D She did. [3] Fine.", False),
        ("See 1. a 2. b 3. c", False),
        ("यह है। और यह।", False),
        ("So fine.We ate.", True),
        ("One.\tTwo.", True),
        ("東京。大阪。", True),
    ],
)
def test_texts_are_apart_where_a_sentence_ends_within_a_piece(text, apart):
    assert (0 in found([text]).apart) is apart


@pytest.mark.parametrize("before", ["", "One\n", "Why? ", "Why?! ", "By Dr. "])
@pytest.mark.parametrize("blanks", [0, 3, 12, 40])
def test_blanks_before_a_sentence_are_none_of_it(before, blanks):
    texts = [f"{before}{' ' * blanks}{number} Foo" for number in ("7.", "(7.", "Mr. 7.")]
    assert bounds(texts) == list(map(sentence_bounds, texts))


def test_texts_of_no_sentence():
    nothing = found(["", " \n ", "\n"])
    assert [len(nothing.starts), nothing.firsts, nothing.last.any()] == [0, [0, 0, 0, 0], False]


@pytest.mark.parametrize("unit", ["1) ", "Mr. ", "A. ", "x.Y", ". ", "? ", "U.S", "• ", "\n", "。"])
def test_time_is_linear(unit):
    texts = [unit * (100_000 // len(unit)), f"A.{' ' * 50_000}{'Mr. ' * 12_500}"]
    pieces = Pieces.of(texts)
    started = time.process_time()
    find_sentences(texts, pieces)
    assert time.process_time() - started < 3
