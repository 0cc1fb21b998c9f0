"""Formulas of scores, as Polars expressions. NULL means undefined: nothing to divide by."""

from typing import Annotated

import polars as pl
from pydantic import Field

Beta = Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)]
"""Weight of recall against precision in F-beta: 1 is even, 0 is precision alone."""


def share(part: pl.Expr, whole: pl.Expr) -> pl.Expr:
    """`part / whole`; undefined when the whole is 0."""
    return pl.when(whole > 0).then(part / whole)


def fbeta(precision: pl.Expr, recall: pl.Expr, beta: float) -> pl.Expr:
    """F-beta of precision and recall, van Rijsbergen 1979.

    Undefined when both are; an undefined one counts as 0 beside a defined one. The order
    of the operations is fixed, since other orders round otherwise in the last digit.
    """
    p, r = precision.fill_null(0.0), recall.fill_null(0.0)
    divisor = (beta**2 * p) + r
    f = pl.when(divisor > 0).then(((1 + beta**2) * (p * r)) / divisor).otherwise(0.0)
    return pl.when(precision.is_not_null() | recall.is_not_null()).then(f)


def passes(score: pl.Expr, threshold: float | None) -> pl.Expr:
    """1.0 where the score reaches the threshold and 0.0 below it; without one the score."""
    return score if threshold is None else (score >= threshold).cast(pl.Float64)


def weighted_mean(one: pl.Expr, other: pl.Expr, weights: tuple[float, float]) -> pl.Expr:
    """Mean of two by weights that need not sum to 1; one of weight 0 may be undefined."""
    w_one, w_other = weights
    first = one if w_one else pl.lit(0.0)
    second = other if w_other else pl.lit(0.0)
    return (w_one * first + w_other * second) / (w_one + w_other)
