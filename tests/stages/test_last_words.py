import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.text import sentences
from claimflow.stages.text import sentences as last_words
from claimflow.stages.text.abbreviations import ABBREVIATIONS
from claimflow.stages.text.sentences import FOLLOWERS, followers, split_sentences


@pytest.mark.parametrize(
    ("word", "followers"),
    [
        *(("food", 2), ("Argentina", 2), ("2000", 2), ("13th", 2), ('"tragedy"', 2), ("don't", 2)),
        *(("hmm", 1), ("XL", 1), ("Mr", 0), ("(etc", 0), ("B", 0), ("U.S", 0), ("eks", 0)),
        *(("", 0), ("((", 0), ("21", 0), ("iv", 0), ("a\tfood", 0), ("Mr\t", 0), ("x" * 40, 0)),
    ],
)
def test_what_may_follow_a_word(word, followers):
    assert FOLLOWERS[word] == followers


@pytest.mark.parametrize(
    ("word", "stop", "expected"),
    [
        *(("food", ".", 2), ("Mr", ".", 0), ("food", "!", 2), ("Mr", "?", 1), ("", "?", 1)),
        *(("food", "...", 1), ("Mr", "...", 0), ("food", "?!", 1), ("food", ".”", 0)),
        *(("food", "…", 0), ("food", "।", 0), ("food", '."', 1)),
    ],
)
def test_what_may_follow_a_word_and_its_stop(word, stop, expected):
    assert followers(word, stop) == expected


def test_words_are_forgotten_when_they_are_too_many(monkeypatch):
    monkeypatch.setattr(last_words, "_MOST", 1)
    known = last_words._Followers()
    assert [known[word] for word in ("food", "fish", "x" * 40, "iv", "food")] == [2, 2, 0, 0, 2]
    assert list(known) == ["iv", "food"]


WORDS = ["Mr", "ff", "f.", "eks", "iv", "1", "12", "300", "XIV", "B", "food", "don't", "(x", "a-b"]
STOPS = [
    ". ",
    ".  ",
    "? ",
    "! ",
    "... ",
    '." ',
    ".) ",
    "?! ",
    ".\n",
    ". [1] ",
    "\u2026 ",
    "\u3002 ",
]
AFTER = [
    "The",
    "the",
    "\u2014 the",
    "- A",
    "5",
    "(A",
    "\u00c9t\u00e9",
    "\u00e9t\u00e9",
    " ",
    "\t",
    "\u00a0A",
]
PIECES = ["Mr\t", "\t", *WORDS, *STOPS, *AFTER, " ", *sorted(ABBREVIATIONS)[::9]]


@given(st.lists(st.sampled_from(PIECES), max_size=20).map("".join))
def test_the_short_way_gives_the_same(text):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sentences, "_clearly_ends", lambda *_: False)
        expected = split_sentences(text)
    assert split_sentences(text) == expected
