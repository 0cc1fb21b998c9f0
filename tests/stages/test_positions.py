"""Positions of keys, and tallies of them."""

import polars as pl
import pytest

from claimflow.stages.scores.claim_counts import positions, tally


@pytest.mark.parametrize(
    ("keys", "among", "places"),
    [
        (["b", "b", "a", "b"], ["a", "b"], [1, 1, 0, 1]),
        (["x", "a", "x", "x"], ["a"], [None, 0, None, None]),
        ([], ["a"], []),
        (["a"], [], [None]),
    ],
)
def test_each_key_finds_its_place(keys: list[str], among: list[str], places: list[int]) -> None:
    found = positions(pl.Series(keys, dtype=pl.String), pl.Series(among, dtype=pl.String))
    assert found.to_list() == places


def test_tallies_have_a_number_for_every_position() -> None:
    assert tally(pl.Series([2, 0, 2], dtype=pl.UInt32), 4).to_list() == [1, 0, 2, 0]
    assert tally(pl.Series([], dtype=pl.UInt32), 2).to_list() == [0, 0]
    assert tally(pl.Series([], dtype=pl.UInt32), 0).to_list() == []
