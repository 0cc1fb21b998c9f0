"""Formulas of scores."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.scores.formulas import fbeta, passes, share, weighted_mean

counts = st.integers(0, 10_000)


def value(expression: pl.Expr, **columns: float | None) -> float | None:
    frame = pl.DataFrame({name: [number] for name, number in columns.items()}, strict=False)
    result: float | None = frame.with_columns(pl.all().cast(pl.Float64)).select(expression).item()
    return result


P, R = pl.col("p"), pl.col("r")


def test_a_share_of_nothing_is_undefined() -> None:
    assert value(share(P, R), p=0, r=0) is None
    assert value(share(P, R), p=0, r=3) == 0.0
    assert value(share(P, R), p=None, r=3) is None


@pytest.mark.parametrize(
    ("p", "r", "beta", "f"),
    [
        (1.0, 0.5, 1.0, 2 / 3),
        (0.5, 1.0, 2.0, 5 / 6),
        (0.5, 0.25, 0.0, 0.5),
        (0.0, 0.0, 1.0, 0.0),
        (0.5, 0.0, 0.0, 0.0),
        (None, 0.5, 1.0, 0.0),
        (0.5, None, 1.0, 0.0),
        (None, None, 1.0, None),
    ],
)
def test_fbeta(p: float | None, r: float | None, beta: float, f: float | None) -> None:
    assert value(fbeta(P, R, beta), p=p, r=r) == f


@given(tp=counts, fp=counts, fn=counts, beta=st.floats(0, 1000))
def test_fbeta_rounds_as_its_order_of_operations_does(
    tp: int, fp: int, fn: int, beta: float
) -> None:
    p = tp / (tp + fp) if tp + fp else 0.0
    r = tp / (tp + fn) if tp + fn else 0.0
    divisor = (beta**2 * p) + r
    expected = ((1 + beta**2) * (p * r)) / divisor if divisor else 0.0
    assert value(fbeta(P, R, beta), p=p, r=r) == expected


def test_the_closed_form_rounds_otherwise() -> None:
    p, r = 1 / 5, 1 / 11
    assert value(fbeta(P, R, 1.0), p=p, r=r) != 2 * 1 / (2 * 1 + 4 + 10)


@pytest.mark.parametrize(
    ("score", "threshold", "passed"),
    [
        (0.5, 0.5, 1.0),
        (0.4999, 0.5, 0.0),
        (-0.1, 0.0, 0.0),
        (0.0, 0.0, 1.0),
        (0.7, None, 0.7),
        (None, 0.5, None),
    ],
)
def test_a_threshold_makes_a_score_0_or_1(
    score: float | None, threshold: float | None, passed: float | None
) -> None:
    assert value(passes(P, threshold), p=score) == passed


@pytest.mark.parametrize(
    ("p", "r", "weights", "mean"),
    [
        (0.5, 1.0, (1.0, 3.0), 0.875),
        (None, 1.0, (0.0, 2.0), 1.0),
        (0.5, None, (2.0, 0.0), 0.5),
        (0.5, None, (1.0, 1.0), None),
    ],
)
def test_a_weighted_mean_needs_no_part_of_weight_0(
    p: float | None, r: float | None, weights: tuple[float, float], mean: float | None
) -> None:
    assert value(weighted_mean(P, R, weights), p=p, r=r) == mean
