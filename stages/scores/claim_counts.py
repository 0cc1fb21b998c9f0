"""Counts of claims per sample: by verdict or probability, and as true and false positives."""

from collections.abc import Mapping
from math import fsum
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
    "support": pl.Float64,
    "failure": pl.String,
}
"""Counts of a side's claims; `support` is the sum of the claims' support, the expected number of
entailed ones."""

Count = Literal["verdicts", "probabilities"]
"""What a claim adds to the number of entailed ones: 1 where its verdict is entailed, else 0; or its
support, a number from 0 to 1."""

ENTAILED: Final[Mapping[Count, str]] = {"verdicts": "entailed", "probabilities": "support"}
"""The number among `COUNTS` that a way of counting takes for that of entailed claims."""

_DECIDED: Final = ("entailed", "contradicted")


class JudgedClaims(NamedTuple):
    """The claims of one side with their verdicts.

    `claims` has one row per row of the claims table about these samples, in order: `sample`, the
    position of its sample, `made`, `failure`, and `entailed`, `contradicted`, `unjudged`.
    `verdicts` has one row per verdict on them: `claim`, the position of its claim in `claims`,
    `passage`, `entailed`, `contradicted`, `support`, `judged` and `failure`.
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
    support = pl.lit(_sum_support(judged, samples.height))
    return (
        count_by_sample(judged, samples.height, of=of)
        .with_columns(support=pl.when(pl.col("failure").is_null()).then(support))
        .select(*COUNTS)
    )


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

    Raises `TableError` for claims of the other side, for verdicts against other texts, and for a
    support beyond 0 and 1.
    """
    claims = claims.filter(pl.col("status") != "not_a_claim")
    _check(claims, "of", of)
    _check(verdicts, "against", against)
    _check_support(verdicts["support"])
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
    """One row per sample: the `COUNTS` of its claims but `support`.

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
        support=pl.coalesce("support", (verdict == "entailed").cast(pl.Float64)),
        judged=(pl.col("status") == "judged") & verdict.is_not_null(),
    ).filter(pl.col("claim").is_not_null())


def _sum_support(judged: JudgedClaims, samples: int) -> pl.Series:
    """The sum of the support of each sample's claims; that of a claim is its verdicts' greatest.

    It is rounded once: by plain additions the last digit would depend on the order of the rows.
    """
    of_claims = np.zeros(judged.claims.height)
    support = judged.verdicts["support"].fill_null(0.0)
    np.maximum.at(of_claims, judged.verdicts["claim"].to_numpy(), support.to_numpy())
    made = judged.claims.select("sample", "made", support=pl.lit(pl.Series(of_claims)))
    by_sample = made.filter("made").group_by("sample").agg("support")
    sums = np.zeros(samples)
    sums[by_sample["sample"].to_numpy()] = [fsum(each) for each in by_sample["support"].to_list()]
    return pl.Series(sums, dtype=pl.Float64)


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


def _check_support(support: pl.Series) -> None:
    beyond = support.filter((support < 0) | (support > 1))
    if len(beyond):
        raise TableError(f"found a verdict with support {beyond[0]:g}, which is not from 0 to 1")


Mode = Literal["f1", "precision", "recall"]


class Agreement(NamedTuple):
    """How far the claims of both sides agree, as expressions of the columns of `count_both_sides`.

    `tp` is the number of response claims that the reference entails, `found` that of reference
    claims that the response entails.
    """

    tp: pl.Expr
    found: pl.Expr

    @property
    def fp(self) -> pl.Expr:
        """The response claims that the reference does not entail."""
        return pl.col("response_claims") - self.tp

    @property
    def fn(self) -> pl.Expr:
        """The reference claims that the response does not entail."""
        return pl.col("reference_claims") - self.found

    @property
    def precision(self) -> pl.Expr:
        """TP / (TP + FP); undefined without response claims."""
        return share(self.tp, pl.col("response_claims"))

    def recall(self, of: Side) -> pl.Expr:
        """Recall by the side whose claims count as found: the response's (as ragas) or reference's.

        0 / 0 counts as 0 when the reference has claims: none is missed, and there is no TP.
        """
        if of == "reference":
            return share(self.found, pl.col("reference_claims"))
        some = self.tp + pl.col("reference_claims") > 0
        return pl.when(some).then(share(self.tp, self.tp + self.fn).fill_null(0.0))

    def f_score(self, beta: float, *, recall_of: Side) -> pl.Expr:
        """F-beta of the counts of both sides; NULL when those of one side failed."""
        failed = pl.coalesce("response_failure", "reference_failure").is_not_null()
        f = fbeta(self.precision, self.recall(recall_of), beta)
        # Rounding can take the F of two numbers just below 1 to the next number above it.
        return pl.when(~failed).then(f.clip(upper_bound=1.0))

    def pooled(
        self, mode: Mode, beta: float, *, recall_of: Side
    ) -> tuple[pl.Expr, pl.Expr] | tuple[None, None]:
        """(part, whole) of a score, to pool over samples; None for an F of both sides' claims."""
        if mode == "precision":
            return self.tp, pl.col("response_claims")
        if recall_of == "reference":
            by_reference = self.found, pl.col("reference_claims")
            return by_reference if mode == "recall" else (None, None)
        if mode == "recall":
            return self.tp, self.tp + self.fn
        part = (1 + beta**2) * self.tp
        return part, part + beta**2 * self.fn + self.fp


AGREEMENT: Final[Mapping[Count, Agreement]] = {
    count: Agreement(pl.col(f"response_{entailed}"), pl.col(f"reference_{entailed}"))
    for count, entailed in ENTAILED.items()
}
BY_VERDICTS: Final = AGREEMENT["verdicts"]

VERDICT_DETAILS: Final[Mapping[str, pl.Expr]] = {
    f"{side}_{name}": pl.col(f"{side}_{name}")
    for side in ("response", "reference")
    for name in ("claims", "entailed", "contradicted", "neutral")
} | {"tp": BY_VERDICTS.tp, "fp": BY_VERDICTS.fp, "fn": BY_VERDICTS.fn}
SUPPORT_DETAILS: Final[Mapping[str, pl.Expr]] = {
    f"{side}_support": pl.col(f"{side}_support") for side in ("response", "reference")
}
"""Counts for the details of a score: by verdict, and by probability."""


def score_details(scores: Mapping[Count, pl.Expr]) -> dict[str, pl.Expr]:
    """A score by each way of counting, for its details: `score_by_verdicts` and the other.

    NULL where a field is missing or a step failed.
    """
    arrived = pl.col("missing").is_null() & pl.col("failure").is_null()
    return {f"score_by_{count}": pl.when(arrived).then(score) for count, score in scores.items()}


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
