import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.text import piece_marks
from claimflow.stages.text.piece_marks import look_at
from claimflow.stages.text.pieces import Pieces


def marked(text, kind):
    """The pieces of a text that are of a kind."""
    pieces = Pieces.of([text])
    codes = pieces.codes[getattr(look_at(pieces), kind)].tolist()
    return [pieces.distinct[code] for code in codes]


@pytest.mark.parametrize(
    ("text", "last", "is_open"),
    [
        ("We ate food. And fish", ["food."], []),
        ("We ate food. and fish", ["food."], []),
        ("We ate food! And fish", ["food!"], []),
        ("Really?! And so", ["Really?!"], []),
        ("Really?! and so", [], ["Really?!"]),
        ("Hmm. And so", ["Hmm."], []),
        ("hmm. and so", [], ["hmm."]),
        ("of Dr. Who", [], ["Dr."]),
        ("We ate food. \u2014 No", [], ["food."]),
        ("We ate food. [3] No", [], ["food."]),
        ("We ate food.  Yes", [], ["food."]),
        ('He ate. "Good"', ["ate."], []),
        ("so fine.We ate", [], ["fine.We"]),
        ("at www.site.org or J.B.x or 3.5 or a.b@c.d", [], []),
        (".Net is", [], [".Net"]),
        ("यह है। और", ["है।"], []),
        ("यह है। – और", [], ["है।"]),
        ("（यह है। और）", [], ["है।"]),
    ],
)
def test_sentences_end_surely_or_perhaps(text, last, is_open):
    assert marked(text, "last") == last
    assert marked(text, "open") == is_open


@pytest.mark.parametrize("end", ["", "\n", "\nMore"])
def test_at_the_end_of_a_line_no_capital_is_asked_for(end):
    text = f"they said hmm.{end}"
    assert marked(text, "last") == marked(text, "open") == []


def test_pieces_with_which_an_item_may_begin():
    text = "1. a 23) b •c ‣ d 4.) e 1234. f x1. g 5.1 h"
    assert marked(text, "item") == ["1.", "23)", "•c", "‣", "4.)"]


def test_pieces_within_which_a_sentence_may_end_or_begin():
    text = "a\tb c\u00a0d 東京。大阪 東京。 「はい。」と so.Fine"
    assert marked(text, "within") == ["a\tb", "c\u00a0d", "東京。大阪", "「はい。」と"]


@given(st.text(alphabet="aB.?!…。 \n\"')[]3;é😀-—"))
def test_pieces_are_marked_as_they_were_before(text):
    pieces = Pieces.of([text])
    first = look_at(pieces)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(piece_marks, "_KNOWN", piece_marks._Known())
        anew = look_at(pieces)
    assert [kind.tolist() for kind in first] == [kind.tolist() for kind in anew]


def test_short_pieces_are_remembered_and_not_too_many(monkeypatch):
    monkeypatch.setattr(piece_marks, "_MOST", 1)
    known = piece_marks._Known()
    assert known["food."] == known["fish."] == known["food."] != known["x" * 41]
    assert list(known) == ["food.", "fish."]
    assert known["No"] > 0
    assert list(known) == ["No"]
