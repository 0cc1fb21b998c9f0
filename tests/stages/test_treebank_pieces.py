from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.text.treebank_pieces import piece_words

PARTS = [*"abxsSdDtTN019.,:;'\"`()[]{}<>*#&?!-«»“”‘’„\u00a0\tıéß", "''", "``", "--", "...", "\n"]
PARTS += ["'s", "n't", "'ll", "can", "not", "wanna", "cannot", "gimme", "'tis", "more'n", "d'ye"]
PIECES = st.lists(st.lists(st.sampled_from(PARTS), max_size=6).map("".join))


def test_pieces_are_parted_alone():
    assert piece_words(["b.\n", "b.", "it's,", "(b)", "b)\n"]) == [
        ["b", "."],
        ["b."],
        ["it", "'s", ","],
        ["(", "b", ")"],
        ["b", ")"],
    ]


def test_no_tokens_where_rules_look_further():
    assert piece_words(['""a"', "''b''", ")\n", ")", "a\2"]) == [None, None, None, [")"], None]


@given(PIECES)
def test_many_pieces_are_parted_as_one(pieces):
    assert piece_words(pieces) == [piece_words([piece])[0] for piece in pieces]
