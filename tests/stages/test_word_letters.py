from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.text import piece_letters, word_letters
from claimflow.stages.text.rouge import rouge_words
from claimflow.stages.text.sentences import sentence_bounds
from claimflow.stages.text.tokens import tokenize, tokenize_sentence
from claimflow.stages.text.unicode_words import composed
from claimflow.stages.text.word_letters import WordLetters

PARTS = [*"abxsSdDtTN019.,:;'\"`()[]{}<>*#&?!-«»“”‘’„ \u00a0\t\n\u3000ıéß。।", *"      "]
PARTS += ["'s", "n't", "'ll", "can", "not", "wanna", "cannot", "gimme", "'tis", "more'n", "d'ye"]
PARTS += ["...", "''", "``", "--", "Mr. ", ". A", "e\u0301", "why?he "]
TEXT = st.lists(st.sampled_from(PARTS), max_size=16).map("".join)
TEXTS = st.lists(TEXT, max_size=3)
TOKENS = st.sampled_from(["treebank", "content", "unicode"])


def same(letters, words):
    """Whether each letter comes again where its word does."""
    return [letters.index(a) for a in letters] == [words.index(a) for a in words]


def sentences(text):
    return [composed(text[start:end]) for start, end in zip(*sentence_bounds(text), strict=True)]


@given(TEXTS, TOKENS)
def test_sentences_are_where_they_are_and_have_their_tokens(texts, tokens):
    found = WordLetters(tokens).sentences(texts)
    assert [parts.bounds for parts in found] == list(map(sentence_bounds, texts))
    expected = [
        tokenize_sentence(line, tokens=tokens) for text in texts for line in sentences(text)
    ]
    spelled = [letters for parts in found for letters in parts.tokens]
    assert list(map(len, spelled)) == list(map(len, expected))
    assert same("".join(spelled), [word for words in expected for word in words])


@pytest.mark.parametrize("column", ["words", "tokens"])
@given(parted=TEXTS, whole=TEXTS, tokens=TOKENS)
def test_letters_stand_for_words_and_tokens(column, parted, whole, tokens):
    parts, texts = WordLetters(tokens).sentences_and_texts(parted, whole)
    spelled = [letters for part in parts for letters in getattr(part, column)]
    spelled += [getattr(text, column) for text in texts]
    of_sentence = of_text = rouge_words
    if column == "tokens":
        of_sentence = partial(tokenize_sentence, tokens=tokens)
        of_text = partial(tokenize, tokens=tokens)
    found = [of_sentence(line) for text in parted for line in sentences(text)]
    found += [of_text(composed(text)) for text in whole]
    assert same("".join(spelled), [word for words in found for word in words])


@given(TEXTS, TEXTS, TOKENS)
def test_sentences_and_texts_at_once_are_what_they_are_apart(parted, whole, tokens):
    letters = WordLetters(tokens)
    both = letters.sentences_and_texts(parted, whole)
    assert both == (letters.sentences(parted), letters.texts(whole))


@given(TEXTS, TEXTS)
def test_batches_change_nothing(parted, whole):
    letters = WordLetters("treebank")
    expected = letters.sentences_and_texts(parted, whole)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_letters, "_AT_ONCE", 9)
        assert letters.sentences_and_texts(parted, whole) == expected


def test_a_word_that_holds_the_end_of_a_sentence_is_one_for_rouge():
    found = WordLetters("treebank").texts(["so why?he", "東京。大阪", "so. he"])
    assert [len(text.words) for text in found] == [2, 1, 2]
    assert [len(text.tokens) for text in found] == [4, 2, 3]


@pytest.mark.parametrize("tokens", ["treebank", "content", "unicode"])
def test_letters_with_marks_are_the_same_however_written(tokens):
    letters = WordLetters(tokens)
    apart, together = letters.sentences(["Un cafe\u0301. Bon.", "Un café. Bon."])
    assert apart[1:] == together[1:]
    assert (apart.bounds.ends, together.bounds.ends) == ([9, 14], [8, 13])
    assert len(set(letters.texts(["cafe\u0301", "café"]))) == 1


def test_full_when_there_are_more_pieces_than_may_be(monkeypatch):
    monkeypatch.setattr(piece_letters, "_MOST", 14)
    letters = WordLetters("treebank")
    letters.texts(["12345 6789 6789", "6789"])
    assert not letters.is_full
    letters.texts(["6789 0"])
    assert letters.is_full
