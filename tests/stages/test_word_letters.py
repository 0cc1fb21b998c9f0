import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.text.rouge import rouge_words
from stages.text.tokens import tokenize, tokenize_sentence
from stages.text.treebank import treebank_words
from stages.text.treebank_pieces import in_pieces, piece_words
from stages.text.word_letters import WordLetters

PARTS = [*"abxsSdDtTN019.,:;'\"`()[]{}<>*#&?!-«»“”‘’„ \u00a0\t\u3000ıéß", *"      "]
PARTS += ["'s", "n't", "'ll", "can", "not", "wanna", "cannot", "gimme", "'tis", "more'n", "d'ye"]
PARTS += ["...", "''", "``", "--", "Mr. ", ". A"]
TEXT = st.lists(st.sampled_from(PARTS), max_size=16).map("".join)
LINES = st.lists(st.lists(st.sampled_from(PARTS), max_size=14).map("".join).map(str.strip))


def same(letters, words):
    """Whether each letter comes again where its word does."""
    return [letters.index(a) for a in letters] == [words.index(a) for a in words]


@given(LINES)
def test_sentences_have_the_words_of_the_rules(sentences):
    spelled = WordLetters("treebank").sentences(sentences)
    assert [len(one) for one in spelled] == [len(treebank_words([s])) for s in sentences]
    assert same("".join(spelled), treebank_words(sentences))


@pytest.mark.parametrize(
    "sentence",
    [
        'He said "no." )',
        '""A" is it."',
        "''A'' is it.",
        "cannot, wanna. wanna",
        ".",
        "a.",
        '"',
        "x.\u00a0)",
        "It ends. )\u00a0)",
        "1,5: a,, b",
        "Wait .. .",
        "\1 \0 \1",
    ],
)
def test_sentences_that_begin_or_end_with_marks(sentence):
    words = treebank_words([sentence])
    assert same(WordLetters("treebank").sentences([sentence, sentence])[1], words)


def test_pieces_are_parted_alone():
    assert in_pieces(["A b.", "C"]) == ["A", "b.\n", "C\n"]
    assert piece_words("b.\n") == ["b", "."]
    assert piece_words("b.") == ["b."]
    assert piece_words("it's,") == ["it", "'s", ","]


def test_no_pieces_where_rules_look_further():
    assert in_pieces(['""a"']) == in_pieces(["a", "''b''"]) == []
    assert piece_words(")\n") is None
    assert piece_words(")") == [")"]


@given(TEXT, TEXT, st.sampled_from(["treebank", "content", "unicode"]))
def test_letters_stand_for_the_tokens(left, right, tokens):
    letters = WordLetters(tokens)
    lines = right.split("\n")
    spelled = letters.text(left) + "".join(letters.sentences(lines))
    words = tokenize(left, tokens=tokens)
    words += [word for line in lines for word in tokenize_sentence(line, tokens=tokens)]
    assert same(spelled, words)


@given(TEXT)
def test_letters_stand_for_the_words_of_rouge(text):
    spelled = WordLetters("treebank").words(text)
    words = rouge_words(text)
    assert same(spelled, words)
