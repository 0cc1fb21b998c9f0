"""Outcomes of claims: how many of a text's claims a premise entails."""

from typing import Final

import polars as pl

from stages.nothing import texts_in
from stages.tables import TableError
from stages.words import SampleField, Side

COUNTS: Final = {
    "claims": pl.Int64,
    "entailed": pl.Int64,
    "contradicted": pl.Int64,
    "neutral": pl.Int64,
    "failure": pl.String,
}


def count_outcomes(
    samples: pl.DataFrame,
    claims: pl.DataFrame | None,
    verdicts: pl.DataFrame | None,
    *,
    of: Side,
    against: SampleField,
) -> pl.DataFrame:
    """One row per sample, in order: `sample_id` and the `COUNTS`.

    A claim is entailed when any passage entails it, contradicted when any contradicts it
    and none entails it, else neutral. When the decomposition failed or a claim lacks a
    verdict, `failure` says so and the outcomes are NULL, for a share of the verdicts that
    happened to arrive would be a different score. An empty premise needs no verdicts: it
    entails nothing. Without tables all counts are NULL.

    Raises `TableError` for claims of the other side and for verdicts against other texts.
    """
    if claims is None or verdicts is None:
        return samples.select("sample_id", **{name: pl.lit(None, t) for name, t in COUNTS.items()})
    _check(claims, "of", of)
    _check(verdicts, "against", against)
    judged = (
        claims.select("claim_id", "sample_id", "status", "failure")
        .join(_by_claim(verdicts), on="claim_id", how="left")
        .join(samples.select("sample_id", premises=texts_in(against)), on="sample_id")
        .with_columns(judged=_is_judged())
    )
    return (
        samples.select("sample_id")
        .join(_by_sample(judged, of), on="sample_id", how="left", maintain_order="left")
        .with_columns(
            pl.col("claims").fill_null(0),
            pl.when(pl.col("failure").is_null())
            .then(pl.col("entailed", "contradicted", "neutral").fill_null(0))
            .name.keep(),
        )
    )


def _by_claim(verdicts: pl.DataFrame) -> pl.DataFrame:
    verdict = pl.col("verdict")
    return verdicts.group_by("claim_id").agg(
        entailed=(verdict == "entailed").any(),
        contradicted=(verdict == "contradicted").any(),
        complete=((pl.col("status") == "judged") & verdict.is_not_null()).all(),
        joined=pl.col("passage").is_null().any(),
        passages=pl.col("passage").n_unique(),
        lost=pl.col("failure").drop_nulls().unique(),
    )


def _is_judged() -> pl.Expr:
    """A verdict on the whole text, or on every passage that is not blank."""
    answered = pl.col("joined").fill_null(False) | (
        pl.col("passages").fill_null(0) >= pl.col("premises").fill_null(1)
    )
    return answered & pl.col("complete").fill_null(True)


def _by_sample(judged: pl.DataFrame, of: Side) -> pl.DataFrame:
    made = pl.col("status") == "made"
    entailed = pl.col("entailed").fill_null(False)
    contradicted = pl.col("contradicted").fill_null(False) & ~entailed
    claims, unjudged = made.sum(), (made & ~pl.col("judged")).sum()
    undecomposed = pl.lit(f"the {of} could not be decomposed into claims")
    unjudged_of = pl.format(f"{{}} of {{}} claims of the {of} have no verdict", unjudged, claims)
    failure = (
        pl.when((~made).any())
        .then(_because(undecomposed, pl.col("failure")))
        .when(unjudged > 0)
        .then(_because(unjudged_of, pl.col("lost").explode()))
    )
    counts = {
        "claims": claims,
        "entailed": (made & entailed).sum(),
        "contradicted": (made & contradicted).sum(),
        "neutral": (made & ~entailed & ~contradicted).sum(),
    }
    return judged.group_by("sample_id").agg(
        **{name: count.cast(pl.Int64) for name, count in counts.items()}, failure=failure
    )


def _because(failure: pl.Expr, kinds: pl.Expr) -> pl.Expr:
    """`failure` with the `kinds` of failure, where a row names one."""
    named = kinds.drop_nulls().unique().sort().str.join(", ")
    return pl.when(named != "").then(pl.format("{} ({})", failure, named)).otherwise(failure)


def _check(table: pl.DataFrame, column: str, wanted: str) -> None:
    strange = table[column].unique().drop_nulls().to_list()
    if any(value != wanted for value in strange):
        found = ", ".join(sorted(strange))
        raise TableError(f"expected rows with {column} {wanted}, found {found}")
