from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.text import batches
from claimflow.stages.text.batches import Letters

WORDS = st.lists(st.text(max_size=2), max_size=30)


@given(WORDS, WORDS)
def test_letters_are_equal_where_words_are(left, right):
    spell = Letters().spell
    one, other = spell(left), spell(right)
    assert (len(one), len(other)) == (len(left), len(right))
    assert [[a == b for a in left] for b in right] == [[a == b for a in one] for b in other]


def test_letters_can_be_written_in_utf_8(monkeypatch):
    monkeypatch.setattr(batches, "_SURROGATES", range(3, 0xE000))
    assert Letters().spell(["a", "b", "c", "d"]) == "\1\2\ue000\ue001"


def test_full_when_there_are_more_words_than_may_be(monkeypatch):
    monkeypatch.setattr(batches, "_MOST", 2)
    known = Letters()
    known.spell(["a", "b", "a"])
    assert not known.is_full
    known.spell(["c"])
    assert known.is_full
