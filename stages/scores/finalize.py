"""The status of each score: scored, undefined or failed, and why."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import polars as pl

from claimflow.stages.scores.empty_cases import CASE_REASON

_NO_NUMBER: Final = pl.lit(None, pl.Float64)


class CompatScore(NamedTuple):
    """What the library `name` gives: `value`, NULL where it gives none, and `nothing` says why.

    Neither may be NaN. `nothing` names what happens there: "ragas-0.4 raises ValueError: the
    response is empty" or "ragas-0.4 gives NaN: no claims".
    """

    name: str
    value: pl.Expr
    nothing: pl.Expr


def finalize_scores(
    frame: pl.DataFrame,
    *,
    metric: str,
    value: pl.Expr,
    nothing: pl.Expr,
    details: Mapping[str, pl.Expr],
    part: pl.Expr | None = None,
    whole: pl.Expr | None = None,
    compat: CompatScore | None = None,
) -> pl.DataFrame:
    """One score per row of `frame`.

    `frame` has the columns of `ScoreStage.situation` and `failure`, NULL or what failed.
    `value` is what the formula gives, NULL for nothing, and `nothing` says why. A missing
    field goes before a declared worth, that before a failure, and that before the value.
    `part` and `whole` are of a value that is their ratio; they are NULL on every row that is not
    scored by the formula, or whose whole is 0.

    With `compat` the score is that library's, and `value` stands as `corrected` in `details`
    with the name as `compat`; there is no part and no whole.
    """
    stated = compat or CompatScore("", value, nothing)
    if compat:
        part = whole = None
    ratio = (pl.col("status") == "scored") & pl.col("declared").is_null() & (pl.col("whole") > 0)
    return (
        frame.with_columns(
            value=stated.value,
            nothing=stated.nothing,
            part=_NO_NUMBER if part is None else part.cast(pl.Float64),
            whole=_NO_NUMBER if whole is None else whole.cast(pl.Float64),
            details=_told(details, value, compat),
            declared=pl.col("worth").cast(pl.Float64, strict=False),
        )
        .with_columns(status=_status())
        .select(
            "sample_id",
            "status",
            pl.when(ratio).then(pl.col("part", "whole")).name.keep(),
            metric=pl.lit(metric),
            score=pl.when(pl.col("status") == "scored").then(pl.coalesce("declared", "value")),
            reason=pl.coalesce("missing", _unscored() if compat else _reason()),
            details=pl.col("details").struct.json_encode(),
        )
    )


def _told(details: Mapping[str, pl.Expr], value: pl.Expr, compat: CompatScore | None) -> pl.Expr:
    """`details` by name, with the case of nothing to score and what `compat` adds."""
    parts = {**details, "empty": pl.col("case"), "worth": pl.col("worth")}
    if compat:
        parts |= {"compat": pl.lit(compat.name), "corrected": _unless_failed(value)}
    return pl.struct(parts[name].alias(name) for name in sorted(parts))


def _unless_failed(value: pl.Expr) -> pl.Expr:
    return pl.when(pl.col("missing").is_null() & pl.col("failure").is_null()).then(value)


def _status() -> pl.Expr:
    scored, undefined, failed = (pl.lit(word) for word in ("scored", "undefined", "failed"))
    return (
        pl.when(pl.col("missing").is_not_null() | (pl.col("worth") == "undefined"))
        .then(undefined)
        .when(pl.col("declared").is_not_null())
        .then(scored)
        .when(pl.col("failure").is_not_null())
        .then(failed)
        .when(pl.col("value").is_not_null())
        .then(scored)
        .otherwise(undefined)
    )


def _unscored() -> pl.Expr:
    return pl.coalesce("failure", pl.when(pl.col("value").is_null()).then("nothing"))


def _reason() -> pl.Expr:
    """What failed or was not there, and the case of nothing to score with its worth."""
    by_formula = pl.col("worth").is_null() | (pl.col("worth") == "formula")
    case = pl.col("case").replace_strict(dict(CASE_REASON), default=None)
    reason = pl.concat_str(
        pl.when(by_formula).then(_unscored()),
        pl.format("{} (policy: {})", case, pl.col("worth")),
        separator="; ",
        ignore_nulls=True,
    )
    return pl.when(reason != "").then(reason)
