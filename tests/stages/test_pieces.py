import gc

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.text.pieces import Pieces

TEXTS = st.lists(st.text(alphabet="ab \n\té中\x00", max_size=12), min_size=1, max_size=5)


def spelled_out(pieces):
    return [pieces.distinct[code] for code in pieces.codes.tolist()]


def test_pieces_stand_between_blanks():
    pieces = Pieces.of(["a  bc\nd", "", "bc "])
    assert spelled_out(pieces) == ["a", "", "bc", "\n", "d", "\n", "", "\n", "bc", "", "\n"]
    assert sorted(pieces.distinct) == ["", "\n", "a", "bc", "d"]
    assert pieces.starts.tolist() == [0, 2, 3, 5, 6, 7, 8, 8, 9, 12, 12]
    assert pieces.ends.tolist() == [1, 2, 5, 6, 7, 8, 8, 9, 11, 12, 13]
    assert pieces.places.tolist() == [0, 8, 9, 13]
    assert pieces.real.tolist() == [0, 2, 4, 8]


@given(TEXTS)
def test_the_joined_text_holds_each_piece_at_its_place(texts):
    pieces = Pieces.of(texts)
    joined = "\n".join([*texts, ""])
    places = zip(pieces.starts.tolist(), pieces.ends.tolist(), strict=True)
    assert [joined[start:end] for start, end in places] == spelled_out(pieces)
    assert pieces.breaks.tolist() == [piece == "\n" for piece in spelled_out(pieces)]


@given(TEXTS)
def test_each_text_has_the_pieces_it_would_have_alone(texts):
    pieces = Pieces.of(texts)
    for number, text in enumerate(texts):
        own = pieces.of_text(number)
        assert spelled_out(pieces)[own] == spelled_out(Pieces.of([text]))
        assert set(pieces.texts(pieces.starts[own]).tolist()) == {number}


def test_other_categories_of_the_process_do_no_harm():
    others = pl.Series(["x", "b", "y"]).cast(pl.Categorical)
    pieces = Pieces.of(["a b"])
    assert spelled_out(pieces) == ["a", "b", "\n"]
    assert len(pieces.distinct) == 3
    assert others.to_list() == ["x", "b", "y"]


def test_nothing_is_kept_in_the_process():
    Pieces.of(["kept nowhere at all"])
    gc.collect()
    assert pl.Series(["new"]).cast(pl.Categorical).to_physical().to_list() == [0]
