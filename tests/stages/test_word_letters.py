import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.text import word_letters
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
    spelled = WordLetters("treebank").sentences([sentences])[0].tokens
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
        "\2 a,b (\2) \2",
    ],
)
def test_sentences_that_begin_or_end_with_marks(sentence):
    words = treebank_words([sentence])
    assert same(WordLetters("treebank").sentences([[sentence, sentence]])[0].tokens[1], words)


def test_pieces_are_parted_alone():
    assert in_pieces(["A b.", "C"]) == "A b.\n C\n "
    assert in_pieces([]) == ""
    assert piece_words(["b.\n", "b.", "it's,", "(b)", "b)\n"]) == [
        ["b", "."],
        ["b."],
        ["it", "'s", ","],
        ["(", "b", ")"],
        ["b", ")"],
    ]


def test_no_tokens_where_rules_look_further():
    assert piece_words(['""a"', "''b''", ")\n", ")", "a\2"]) == [None, None, None, [")"], None]


@given(LINES)
def test_many_pieces_are_parted_as_one(pieces):
    pieces = [piece for line in pieces for piece in f"{line}\n".split(" ")]
    assert piece_words(pieces) == [piece_words([piece])[0] for piece in pieces]


@given(TEXT, TEXT, st.sampled_from(["treebank", "content", "unicode"]))
def test_letters_stand_for_the_tokens(left, right, tokens):
    letters = WordLetters(tokens)
    lines = right.split("\n")
    spelled = [*letters.texts([[left]])[0].tokens, *letters.sentences([lines])[0].tokens]
    words = tokenize(left, tokens=tokens)
    words += [word for line in lines for word in tokenize_sentence(line, tokens=tokens)]
    assert same("".join(spelled), words)


@given(TEXT, TEXT, st.sampled_from(["treebank", "content", "unicode"]))
def test_letters_stand_for_the_words_of_rouge(left, right, tokens):
    letters = WordLetters(tokens)
    lines = right.split("\n")
    spelled = [*letters.texts([[left]])[0].words, *letters.sentences([lines])[0].words]
    words = rouge_words(left) + [word for line in lines for word in rouge_words(line)]
    assert same("".join(spelled), words)


@given(LINES, TEXT, st.sampled_from(["treebank", "content", "unicode"]))
def test_sentences_and_texts_at_once_are_what_they_are_apart(sentences, text, tokens):
    letters = WordLetters(tokens)
    both = letters.sentences_and_texts([sentences, []], [[text, ""]])
    assert both == letters.sentences([sentences, []]) + letters.texts([[text, ""]])


def test_a_word_that_holds_the_end_of_a_sentence_is_one_for_rouge():
    spelled = WordLetters("treebank").texts([["so why?he", "東京。大阪"]])[0]
    assert [len(words) for words in spelled.words] == [2, 1]
    assert [len(tokens) for tokens in spelled.tokens] == [4, 2]


@pytest.mark.parametrize("tokens", ["treebank", "content"])
def test_texts_come_back_in_their_groups(monkeypatch, tokens):
    monkeypatch.setattr(word_letters, "_AT_ONCE", 2)
    letters = WordLetters(tokens)
    groups = [["red. blue", "so fine.We"], [], ["blue"], ["", "fine red"]]
    red, blue, fine = letters.sentences([["red", "blue", "fine"]])[0].tokens
    spelled = letters.texts(groups)
    assert [len(group.words) for group in spelled] == [2, 0, 1, 2]
    assert [text.count(blue) for group in spelled for text in group.tokens] == [1, 0, 1, 0, 0]
    assert spelled[3] == (["", fine + red], ["", fine + red])
    assert letters.sentences(groups[2:])[0] == spelled[2] == ([blue], [blue])


def test_full_when_there_are_more_pieces_than_may_be(monkeypatch):
    monkeypatch.setattr(word_letters, "_MOST", 14)
    letters = WordLetters("treebank")
    letters.texts([["12345 6789 6789", "6789"]])
    assert not letters.is_full
    letters.texts([["6789 0"]])
    assert letters.is_full
