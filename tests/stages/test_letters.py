from hypothesis import given
from hypothesis import strategies as st

from stages.text import letters
from stages.text.letters import Letters, Spelling

WORDS = st.lists(st.text(max_size=2), max_size=30)


@given(WORDS, WORDS)
def test_letters_are_equal_where_words_are(left, right):
    spell = Letters().spell
    one, other = spell(left), spell(right)
    assert (len(one), len(other)) == (len(left), len(right))
    assert [[a == b for a in left] for b in right] == [[a == b for a in one] for b in other]


def test_pieces_are_spelled_by_their_words():
    known = Letters()
    spelling = Spelling(lambda piece: known.spell(piece.split()))
    assert spelling.of(["a\tb", "", "a", "c"]) == known.spell(["a", "b", "a", "c"])
    assert spelling.of([]) == ""


def test_pieces_are_looked_at_once_unless_they_are_long():
    asked = []
    spelling = Spelling(lambda piece: asked.append(piece) or "x")
    assert spelling.of(["a", "b" * 51, "a", "b" * 51, "c" * 50, "c" * 50]) == "x" * 6
    assert asked == ["a", "b" * 51, "b" * 51, "c" * 50]


def test_full_when_there_are_more_words_than_may_be(monkeypatch):
    monkeypatch.setattr(letters, "_MOST", 2)
    known = Letters()
    known.spell(["a", "b", "a"])
    assert not known.is_full
    known.spell(["c"])
    assert known.is_full
