"""Settle what the score of each sample is: scored, undefined or failed, and why."""

from collections.abc import Mapping

import polars as pl

from stages.nothing import NOTE


def settle(
    frame: pl.DataFrame,
    *,
    metric: str,
    value: pl.Expr,
    nothing: pl.Expr,
    details: Mapping[str, pl.Expr],
) -> pl.DataFrame:
    """One score per row of `frame`.

    `frame` has the columns of `ScoreStage.situation` and `failure`, NULL or what failed.
    `value` is what the formula gives, NULL for nothing, and `nothing` says why. A missing
    field goes before a declared worth, that before a failure, and that before the value.
    """
    parts = {**details, "empty": pl.col("case"), "worth": pl.col("worth")}
    return (
        frame.with_columns(
            value=value,
            nothing=nothing,
            details=pl.struct(parts[name].alias(name) for name in sorted(parts)),
            declared=pl.col("worth").cast(pl.Float64, strict=False),
        )
        .with_columns(status=_status())
        .select(
            "sample_id",
            "status",
            metric=pl.lit(metric),
            score=pl.when(pl.col("status") == "scored").then(pl.coalesce("declared", "value")),
            reason=pl.coalesce("missing", _reason()),
            details=pl.col("details").struct.json_encode(),
        )
    )


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


def _reason() -> pl.Expr:
    """What failed or was not there, and the case of nothing to score with its worth."""
    by_formula = pl.col("worth").is_null() | (pl.col("worth") == "formula")
    unscored = pl.coalesce("failure", pl.when(pl.col("value").is_null()).then("nothing"))
    case = pl.col("case").replace_strict(dict(NOTE), default=None)
    reason = pl.concat_str(
        pl.when(by_formula).then(unscored),
        pl.format("{} (policy: {})", case, pl.col("worth")),
        separator="; ",
        ignore_nulls=True,
    )
    return pl.when(reason != "").then(reason)
