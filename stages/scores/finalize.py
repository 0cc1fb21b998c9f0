"""Scores from values: status scored, undefined or failed, and the reason."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import polars as pl

from claimflow.stages.scores.empty_cases import CASE_REASON

_NO_NUMBER: Final = pl.lit(None, pl.Float64)


class CompatScore(NamedTuple):
    """The score that the library `name` gives, NULL where it gives none; `undefined` says why.

    The value may not be NaN. `undefined` names what happens instead: "ragas-0.4 raises
    ValueError: the response is empty" or "ragas-0.4 gives NaN: no claims".
    """

    name: str
    value: pl.Expr
    undefined: pl.Expr


def finalize_scores(
    frame: pl.DataFrame,
    *,
    metric: str,
    value: pl.Expr,
    undefined: pl.Expr,
    details: Mapping[str, pl.Expr],
    part: pl.Expr | None = None,
    whole: pl.Expr | None = None,
    compat: CompatScore | None = None,
) -> pl.DataFrame:
    """One score per row of `frame`.

    `frame` has the columns of `ScoreStage.empty_cases` and `failure`: NULL, or what failed.
    `value` is what the formula gives, NULL where it is undefined, and `undefined` the reason.
    The first that applies decides: a missing field, the declared value of an empty case, a
    failure, the value of the formula.
    `part` and `whole` are given for a value that is their ratio; they are NULL on every row that
    is not scored by the formula, or whose whole is 0.

    With `compat` the score is that library's, without part and whole. `details` then has its name
    as `compat` and `value` as `corrected`.
    """
    stated = compat or CompatScore("", value, undefined)
    if compat:
        part = whole = None
    ratio = (pl.col("status") == "scored") & pl.col("declared").is_null() & (pl.col("whole") > 0)
    return (
        frame.with_columns(
            value=stated.value,
            undefined=stated.undefined,
            part=_NO_NUMBER if part is None else part.cast(pl.Float64),
            whole=_NO_NUMBER if whole is None else whole.cast(pl.Float64),
            details=_details(details, value, compat),
            declared=pl.col("case_value").cast(pl.Float64, strict=False),
        )
        .with_columns(status=_status())
        .select(
            "sample_id",
            "status",
            pl.when(ratio).then(pl.col("part", "whole")).name.keep(),
            metric=pl.lit(metric),
            score=pl.when(pl.col("status") == "scored").then(pl.coalesce("declared", "value")),
            reason=pl.coalesce("missing", _no_value_reason() if compat else _reason()),
            details=pl.col("details").struct.json_encode(),
        )
    )


def _details(details: Mapping[str, pl.Expr], value: pl.Expr, compat: CompatScore | None) -> pl.Expr:
    """`details` in the order of their names, with the empty case and what `compat` adds."""
    parts = {**details, "empty": pl.col("case"), "worth": pl.col("case_value")}
    if compat:
        failed = pl.col("missing").is_not_null() | pl.col("failure").is_not_null()
        parts |= {"compat": pl.lit(compat.name), "corrected": pl.when(~failed).then(value)}
    return pl.struct(parts[name].alias(name) for name in sorted(parts))


def _status() -> pl.Expr:
    scored, undefined, failed = (pl.lit(status) for status in ("scored", "undefined", "failed"))
    return (
        pl.when(pl.col("missing").is_not_null() | (pl.col("case_value") == "undefined"))
        .then(undefined)
        .when(pl.col("declared").is_not_null())
        .then(scored)
        .when(pl.col("failure").is_not_null())
        .then(failed)
        .when(pl.col("value").is_not_null())
        .then(scored)
        .otherwise(undefined)
    )


def _no_value_reason() -> pl.Expr:
    """What failed, or why the value is undefined; NULL for a value."""
    return pl.coalesce("failure", pl.when(pl.col("value").is_null()).then("undefined"))


def _reason() -> pl.Expr:
    """What failed or was undefined, and the empty case with its value."""
    by_formula = pl.col("case_value").is_null() | (pl.col("case_value") == "formula")
    case = pl.col("case").replace_strict(dict(CASE_REASON), default=None)
    reason = pl.concat_str(
        pl.when(by_formula).then(_no_value_reason()),
        pl.format("{} (policy: {})", case, pl.col("case_value")),
        separator="; ",
        ignore_nulls=True,
    )
    return pl.when(reason != "").then(reason)
