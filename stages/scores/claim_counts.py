"""Counts of claims per sample: by verdict, and as true and false positives."""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

import numpy as np
import polars as pl

from claimflow.stages.rows import SampleField, Side
from claimflow.stages.sample_texts import count_texts
from claimflow.stages.scores.formulas import fbeta, share
from claimflow.stages.tables import TableError


def positions(keys: pl.Series, among: pl.Series) -> pl.Series:
    """The position of each of `keys` in `among`, whose keys are distinct; NULL where it is absent.

    Runs of equal keys, such as the verdicts on one claim, are looked up once.
    """
    first = (keys != keys.shift(1)).fill_null(True)
    sought = keys.filter(first).alias("key").to_frame()
    places = among.alias("key").to_frame().with_row_index("place")
    found = sought.join(places, on="key", how="left", maintain_order="left")["place"]
    return found.gather(first.cum_sum() - 1)


def tally(places: pl.Series, size: int) -> pl.Series:
    """How often each position below `size` occurs in `places`, which holds no NULL."""
    return pl.Series(np.bincount(places.to_numpy(), minlength=size), dtype=pl.Int64)


COUNTS: Final = {
    "claims": pl.Int64,
    "entailed": pl.Int64,
    "contradicted": pl.Int64,
    "neutral": pl.Int64,
    "failure": pl.String,
}

_DECIDED: Final = ("entailed", "contradicted")


class JudgedClaims(NamedTuple):
    """The claims of one side with their verdicts.

    `claims` has one row per row of the claims table about these samples, in order: `sample`, the
    position of its sample, `made`, `failure`, and `entailed`, `contradicted`, `unjudged`.
    `verdicts` has one row per verdict on them: `claim`, the position of its claim in `claims`,
    `passage`, `entailed`, `contradicted`, `judged` and `failure`.
    """

    claims: pl.DataFrame
    verdicts: pl.DataFrame


def count_claims(
    samples: pl.DataFrame,
    claims: pl.DataFrame | None,
    verdicts: pl.DataFrame | None,
    *,
    of: Side,
    against: SampleField,
) -> pl.DataFrame:
    """One row per sample, in order: the `COUNTS` of its claims; NULL where a table is None."""
    if claims is None or verdicts is None:
        return pl.DataFrame(schema=COUNTS).clear(samples.height)
    judged = join_verdicts(samples, claims, verdicts, of=of, against=against)
    return count_by_sample(judged, samples.height, of=of)


def join_verdicts(
    samples: pl.DataFrame,
    claims: pl.DataFrame,
    verdicts: pl.DataFrame,
    *,
    of: Side,
    against: SampleField,
) -> JudgedClaims:
    """The claims about `samples`, each with its verdicts combined.

    A claim is entailed when any passage entails it, contradicted when any contradicts it and
    none entails it. A blank premise needs no verdict: it entails nothing.

    Raises `TableError` for claims of the other side and for verdicts against other texts.
    """
    claims = claims.filter(pl.col("status") != "not_a_claim")
    _check(claims, "of", of)
    _check(verdicts, "against", against)
    known = claims.select(
        "claim_id",
        "failure",
        sample=positions(claims["sample_id"], samples["sample_id"]),
        made=pl.col("status") == "made",
    ).filter(pl.col("sample").is_not_null())
    each = _each_verdict(known, verdicts)
    premises = samples.select(count_texts(against).fill_null(1)).to_series()
    entailed, contradicted = (pl.lit(_count_verdicts(label, each, known) > 0) for label in _DECIDED)
    counted = known.select(
        "sample",
        "made",
        "failure",
        entailed=pl.col("made") & entailed,
        contradicted=pl.col("made") & contradicted & ~entailed,
        unjudged=pl.col("made") & _unjudged(each, known, premises.gather(known["sample"])),
    )
    return JudgedClaims(counted, each)


def count_by_sample(judged: JudgedClaims, samples: int, *, of: Side) -> pl.DataFrame:
    """One row per sample: the `COUNTS` of its claims.

    When the decomposition failed or a claim lacks a verdict, `failure` says so and the counts of
    verdicts are NULL, because a share of the verdicts that arrived would be another score.
    """
    counts = {
        name: tally(judged.claims.filter(column)["sample"], samples)
        for name, column in (("claims", "made"), *zip(_DECIDED, _DECIDED, strict=True))
    }
    neutral = pl.col("claims") - pl.col("entailed") - pl.col("contradicted")
    failures = _failures(judged, counts["claims"], of)
    verdicts = pl.col("entailed", "contradicted", "neutral")
    return (
        pl.DataFrame(counts)
        .with_columns(neutral=neutral, sample=pl.int_range(pl.len(), dtype=pl.UInt32))
        .join(failures, on="sample", how="left", maintain_order="left")
        .select(
            "claims", pl.when(pl.col("failure").is_null()).then(verdicts).name.keep(), "failure"
        )
    )


def check_passages(passage: pl.Series, passages: pl.Series) -> None:
    """Raise `TableError` for verdicts on no single passage, or on one that the sample lacks.

    `passages` has for each verdict the number of contexts of its sample.
    """
    if passage.null_count():
        raise TableError("expected verdicts by passage (premises: each), found some on all joined")
    beyond = (passage >= passages).arg_true()
    if len(beyond):
        row = beyond[0]
        raise TableError(
            f"found a verdict on passage {passage[row]} of a sample with {passages[row]} contexts"
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


def _count_verdicts(condition: str | pl.Expr, each: pl.DataFrame, known: pl.DataFrame) -> pl.Series:
    """The number of verdicts on each claim for which the condition holds."""
    return tally(each.filter(condition)["claim"], known.height)


def _unjudged(each: pl.DataFrame, known: pl.DataFrame, premises: pl.Series) -> pl.Series:
    """Whether each claim lacks a verdict: on the whole text, or on a passage that is not blank."""
    passage = pl.col("passage")
    passages = _count_verdicts(passage.is_not_null(), each, known)
    joined = _count_verdicts(passage.is_null(), each, known)
    lost = _count_verdicts(~pl.col("judged"), each, known)
    return ((joined == 0) & (passages < premises)) | (lost > 0)


def _failures(judged: JudgedClaims, claims: pl.Series, of: Side) -> pl.DataFrame:
    """`sample` and `failure` of every sample with a failed decomposition or a missing verdict."""
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


Mode = Literal["f1", "precision", "recall"]

TP: Final = pl.col("response_entailed")
FP: Final = pl.col("response_claims") - TP
FN: Final = pl.col("reference_claims") - pl.col("reference_entailed")

PRECISION: Final = share(TP, TP + FP)
RECALL: Final[Mapping[Side, pl.Expr]] = {
    # 0 / 0 counts as 0 when the reference has claims: none is missed, and there is no TP.
    "response": pl.when(TP + pl.col("reference_claims") > 0).then(
        share(TP, TP + FN).fill_null(0.0)
    ),
    "reference": share(pl.col("reference_entailed"), pl.col("reference_claims")),
}
"""Recall by the side whose claims count as found: the response's (as ragas) or the reference's."""

COUNT_DETAILS: Final[dict[str, pl.Expr]] = {
    f"{side}_{name}": pl.col(f"{side}_{name}")
    for side in ("response", "reference")
    for name in COUNTS
    if name != "failure"
} | {"tp": TP, "fp": FP, "fn": FN}


def f_score(beta: float, *, recall_of: Side = "response") -> pl.Expr:
    """F-beta of the counts of both sides; NULL when those of one side failed."""
    failed = pl.coalesce("response_failure", "reference_failure").is_not_null()
    return pl.when(~failed).then(fbeta(PRECISION, RECALL[recall_of], beta))


def pooled_counts(
    mode: Mode, beta: float, *, recall_of: Side
) -> tuple[pl.Expr, pl.Expr] | tuple[None, None]:
    """(part, whole) of a score, to pool over samples; None for an F of the claims of both sides."""
    if mode == "precision":
        return TP, TP + FP
    if recall_of == "reference":
        by_reference = pl.col("reference_entailed"), pl.col("reference_claims")
        return by_reference if mode == "recall" else (None, None)
    if mode == "recall":
        return TP, TP + FN
    part = (1 + beta**2) * TP
    return part, part + beta**2 * FN + FP


def count_both_sides(
    samples: pl.DataFrame,
    *,
    response_claims: pl.DataFrame | None,
    reference_claims: pl.DataFrame | None,
    response_in_reference: pl.DataFrame | None,
    reference_in_response: pl.DataFrame | None,
) -> pl.DataFrame:
    """One row per sample, in order: the `COUNTS` of each side, prefixed with it, and `failure`.

    The counts of a side whose tables are None are NULL.
    """
    response = count_claims(
        samples, response_claims, response_in_reference, of="response", against="reference"
    )
    reference = count_claims(
        samples, reference_claims, reference_in_response, of="reference", against="response"
    )
    sides = (
        response.rename({name: f"response_{name}" for name in COUNTS}),
        reference.rename({name: f"reference_{name}" for name in COUNTS}),
    )
    return pl.concat(sides, how="horizontal").with_columns(
        failure=pl.coalesce("response_failure", "reference_failure")
    )
