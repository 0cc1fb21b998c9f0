"""Outcomes of claims: how many of a text's claims a premise entails."""

from typing import Final, NamedTuple

import polars as pl

from claimflow.stages.nothing import texts_in
from claimflow.stages.positions import positions, tally
from claimflow.stages.tables import TableError
from claimflow.stages.words import SampleField, Side

COUNTS: Final = {
    "claims": pl.Int64,
    "entailed": pl.Int64,
    "contradicted": pl.Int64,
    "neutral": pl.Int64,
    "failure": pl.String,
}

_SAID: Final = ("entailed", "contradicted")


class Judged(NamedTuple):
    """What became of the claims of one side.

    `claims` has one row per row of the claims table about these samples, in order: `sample`, the
    position of its sample, `made`, `failure`, and `entailed`, `contradicted`, `unjudged`.
    `verdicts` has one row per verdict on them: `claim`, the position of that row, `passage`,
    `entailed`, `contradicted`, `judged` and `failure`.
    """

    claims: pl.DataFrame
    verdicts: pl.DataFrame


def count_outcomes(
    samples: pl.DataFrame,
    claims: pl.DataFrame | None,
    verdicts: pl.DataFrame | None,
    *,
    of: Side,
    against: SampleField,
) -> pl.DataFrame:
    """One row per sample, in order: the `COUNTS`. Without tables all of them are NULL."""
    if claims is None or verdicts is None:
        return pl.DataFrame(schema=COUNTS).clear(samples.height)
    judged = judge_claims(samples, claims, verdicts, of=of, against=against)
    return count_judged(judged, samples.height, of=of)


def judge_claims(
    samples: pl.DataFrame,
    claims: pl.DataFrame,
    verdicts: pl.DataFrame,
    *,
    of: Side,
    against: SampleField,
) -> Judged:
    """A claim is entailed when any passage entails it, contradicted when any contradicts it and
    none entails it. An empty premise needs no verdicts: it entails nothing.

    Raises `TableError` for claims of the other side and for verdicts against other texts.
    """
    _check(claims, "of", of)
    _check(verdicts, "against", against)
    known = claims.select(
        "claim_id",
        "failure",
        sample=positions(claims["sample_id"], samples["sample_id"]),
        made=pl.col("status") == "made",
    ).filter(pl.col("sample").is_not_null())
    each = _each_verdict(known, verdicts)
    premises = samples.select(texts_in(against).fill_null(1)).to_series()
    entailed, contradicted = (pl.lit(_having(word, each, known) > 0) for word in _SAID)
    counted = known.select(
        "sample",
        "made",
        "failure",
        entailed=pl.col("made") & entailed,
        contradicted=pl.col("made") & contradicted & ~entailed,
        unjudged=pl.col("made") & _unjudged(each, known, premises.gather(known["sample"])),
    )
    return Judged(counted, each)


def count_judged(judged: Judged, samples: int, *, of: Side) -> pl.DataFrame:
    """One row per sample: the `COUNTS` of its claims.

    When the decomposition failed or a claim lacks a verdict, `failure` says so and the
    outcomes are NULL, for a share of the verdicts that happened to arrive would be a different
    score.
    """
    counts = {
        name: tally(judged.claims.filter(column)["sample"], samples)
        for name, column in (("claims", "made"), *zip(_SAID, _SAID, strict=True))
    }
    neutral = pl.col("claims") - pl.col("entailed") - pl.col("contradicted")
    failures = _failures(judged, counts["claims"], of)
    outcomes = pl.col("entailed", "contradicted", "neutral")
    return (
        pl.DataFrame(counts)
        .with_columns(neutral=neutral, sample=pl.int_range(pl.len(), dtype=pl.UInt32))
        .join(failures, on="sample", how="left", maintain_order="left")
        .select(
            "claims", pl.when(pl.col("failure").is_null()).then(outcomes).name.keep(), "failure"
        )
    )


def _each_verdict(known: pl.DataFrame, verdicts: pl.DataFrame) -> pl.DataFrame:
    verdict = pl.col("verdict")
    return verdicts.select(
        "passage",
        "failure",
        claim=positions(verdicts["claim_id"], known["claim_id"]),
        entailed=verdict == "entailed",
        contradicted=verdict == "contradicted",
        judged=(pl.col("status") == "judged") & verdict.is_not_null(),
    ).filter(pl.col("claim").is_not_null())


def _having(column: str | pl.Expr, each: pl.DataFrame, known: pl.DataFrame) -> pl.Series:
    """How many verdicts with it there are on each claim."""
    return tally(each.filter(column)["claim"], known.height)


def _unjudged(each: pl.DataFrame, known: pl.DataFrame, premises: pl.Series) -> pl.Series:
    """Without a verdict on the whole text, or on every passage that is not blank."""
    passage = pl.col("passage")
    passages = _having(passage.is_not_null(), each, known)
    joined = _having(passage.is_null(), each, known)
    lost = _having(~pl.col("judged"), each, known)
    return ((joined == 0) & (passages < premises)) | (lost > 0)


def _failures(judged: Judged, claims: pl.Series, of: Side) -> pl.DataFrame:
    """`sample` and `failure` of every sample on which anything failed."""
    failed = judged.claims.with_row_index("claim").filter(~pl.col("made") | pl.col("unjudged"))
    lost = judged.verdicts.filter(pl.col("failure").is_not_null())
    undecomposed = (~pl.col("made")).any()
    kinds = pl.when(undecomposed).then("failure").otherwise("lost").drop_nulls()
    by_sample = (
        failed.join(lost.select("claim", lost="failure"), on="claim", how="left")
        .group_by("sample")
        .agg(
            undecomposed=undecomposed,
            unjudged=pl.col("claim").n_unique(),
            kinds=kinds.unique().sort().str.join(", "),
        )
    )
    of_claims = by_sample.with_columns(claims=claims.gather(by_sample["sample"]))
    return of_claims.select("sample", failure=_failure(of))


def _failure(of: Side) -> pl.Expr:
    unjudged = pl.format(f"{{}} of {{}} claims of the {of} have no verdict", "unjudged", "claims")
    undecomposed = pl.lit(f"the {of} could not be decomposed into claims")
    failure = pl.when("undecomposed").then(undecomposed).otherwise(unjudged)
    named = pl.format("{} ({})", failure, "kinds")
    return pl.when(pl.col("kinds") == "").then(failure).otherwise(named)


def _check(table: pl.DataFrame, column: str, wanted: str) -> None:
    strange = table[column].unique().drop_nulls().to_list()
    if any(value != wanted for value in strange):
        found = ", ".join(sorted(strange))
        raise TableError(f"expected rows with {column} {wanted}, found {found}")
