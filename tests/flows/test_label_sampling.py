"""Draws of rows to label: repeatable, and with the stated inclusion probabilities."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from claimflow.flows.quality.label_sampling import (
    Draw,
    DrawMethod,
    draw_rows,
    inclusion_probabilities,
    parse_draw,
    uncertainty,
)

COLUMNS = {
    "sample_id": pl.String,
    "claim_id": pl.String,
    "passage": pl.Int64,
    "p_entailed": pl.Float64,
    "p_contradicted": pl.Float64,
    "p_neutral": pl.Float64,
    "agreement": pl.Float64,
}


def rows(count: int, **columns: Any) -> pl.DataFrame:
    made = [{"sample_id": f"s{n}", "claim_id": f"c{n}"} for n in range(count)]
    frame = pl.DataFrame(made, schema=COLUMNS)
    return frame.with_columns(
        pl.Series(name, values, dtype=pl.Float64) for name, values in columns.items()
    )


def test_a_random_draw_is_determined_by_its_seed() -> None:
    first = draw_rows(rows(50), Draw("random", 5, 50, 0))
    assert first == draw_rows(rows(50), Draw("random", 5, 50, 0))
    assert list(first) == [29, 32, 49, 27, 14]
    assert set(first.values()) == {0.1}
    assert list(draw_rows(rows(50), Draw("random", 5, 50, 1))) != list(first)
    assert list(draw_rows(rows(50), Draw("random", 9, 50, 0)))[:5] == list(first)


def test_a_draw_of_more_than_all_rows_is_all_rows() -> None:
    assert sorted(draw_rows(rows(3), Draw("random", 9, 3, 0)).items()) == [(0, 1), (1, 1), (2, 1)]
    assert draw_rows(rows(0), Draw("random", 9, 0, 0)) == {}


def test_uncertainty_of_probabilities_and_of_votes() -> None:
    frame = rows(
        3, p_entailed=[0.5, 0.1, None], p_contradicted=[0.3, 0.9, None], p_neutral=[0.2, 0, None]
    )
    found = uncertainty(frame)
    assert found is not None
    assert found.tolist() == pytest.approx([0.5, 0.1, 1.0])
    voted = uncertainty(rows(2, agreement=[1.0, 0.6]))
    assert voted is not None
    assert voted.tolist() == pytest.approx([0.0, 0.4])
    assert uncertainty(rows(2)) is None


def test_inclusion_probabilities_follow_uncertainty_and_are_positive() -> None:
    found = inclusion_probabilities(np.array([0.5, 0.25, 0.25, 0.0]), 2)
    # 0.2 spread evenly, 0.8 by doubt, times 2.
    assert found.tolist() == pytest.approx([0.9, 0.5, 0.5, 0.1])
    sure = inclusion_probabilities(np.array([0.9, 0.05, 0.05, 0.0]), 2)
    assert sure[0] == 1.0
    assert sure.sum() == pytest.approx(2.0)
    assert sure[3] > 0
    assert inclusion_probabilities(np.zeros(4), 2).tolist() == pytest.approx([0.5] * 4)


def test_rows_are_drawn_with_their_inclusion_probability() -> None:
    doubts = [0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.0, 0.0]
    frame = rows(8, agreement=[1 - doubt for doubt in doubts])
    times = np.zeros(8)
    for seed in range(2_000):
        found = draw_rows(frame, Draw("uncertainty", 3, 8, seed))
        assert len(found) == 3
        times[list(found)] += 1
    expected = inclusion_probabilities(np.array(doubts), 3)
    assert times / 2_000 == pytest.approx(expected, abs=0.035)
    assert found == {row: pytest.approx(expected[row]) for row in found}


@pytest.mark.parametrize("by", ["random", "uncertainty"])
def test_a_draw_is_parsed_from_its_text(by: DrawMethod) -> None:
    draw = Draw(by, 100, 480, 7)
    assert str(draw) == f"{by} 100 of 480, seed 7"
    assert parse_draw(f" {draw} ") == draw
    for words in ("", "random", "random 1 of 2", "best 1 of 2, seed 3", f"{draw}0000000000"):
        assert parse_draw(words) is None
