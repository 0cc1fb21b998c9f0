import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.text import piece_letters
from claimflow.stages.text.batches import Letters
from claimflow.stages.text.piece_letters import UNKNOWN, PieceLetters
from claimflow.stages.text.rouge import rouge_words
from claimflow.stages.text.tokens import treebank_words

PARTS = [*"abxsSdDtTN019.,:;'\"`()[]{}<>*#&?!-«»“”‘’„ \u00a0\t\u3000ıéß", *"      "]
PARTS += ["'s", "n't", "'ll", "can", "not", "wanna", "cannot", "gimme", "'tis", "more'n", "d'ye"]
PARTS += ["...", "''", "``", "--", "Mr. ", ". A"]
SENTENCES = st.lists(st.lists(st.sampled_from(PARTS), max_size=14).map("".join).map(str.strip))


def spelled(sentences):
    """The words and the tokens of sentences, read back from their letters."""
    letters = Letters({UNKNOWN: UNKNOWN})
    found = [piece for sentence in sentences for piece in sentence.split(" ")]
    last = [n == 0 for s in sentences for n in reversed(range(s.count(" ") + 1))]
    distinct = sorted(set(found))
    codes = np.array([distinct.index(piece) for piece in found], np.intp)
    columns = PieceLetters(letters).spell(distinct, codes, np.array(last, bool))
    words = {letter: word for word, letter in letters.items()}
    return tuple([[words[letter] for letter in text] for text in column] for column in columns)


@given(SENTENCES)
def test_sentences_have_their_words_and_the_tokens_of_the_rules(sentences):
    words, tokens = spelled(sentences)
    assert words == list(map(rouge_words, sentences))
    assert tokens == [treebank_words([sentence]) for sentence in sentences]


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
    assert spelled([sentence, "b.", sentence])[1] == [
        treebank_words([text]) for text in (sentence, "b.", sentence)
    ]


def test_a_piece_is_looked_at_once(monkeypatch):
    looked = []
    monkeypatch.setattr(
        piece_letters, "piece_words", lambda new: looked.extend(new) or [[form] for form in new]
    )
    letters = PieceLetters(Letters({UNKNOWN: UNKNOWN}))
    for last in ([False, False, True], [False, True, True]):
        letters.spell(["a", "b"], np.array([0, 0, 1]), np.array(last))
    assert looked == ["a", "b\n", "a\n"]
