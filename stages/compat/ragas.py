"""The arithmetic of ragas 0.4.3 where it differs from ours."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from claimflow.stages.rows import ClaimCompat, SampleField
from claimflow.stages.scores.claim_counts import Mode
from claimflow.stages.scores.finalize import CompatScore
from claimflow.stages.scores.formulas import fbeta, passes, share

EPSILON: Final = 1e-8
"""Added to the divisor of precision and recall; rounding to two places lets it show."""

EMPTY: Final[Mapping[SampleField, str]] = {
    "user_input": "the question is empty",
    "response": "the response is empty",
    "reference": "the reference is empty",
    "retrieved_contexts": "there are no contexts",
}


def factual_correctness(
    tp: pl.Expr, fp: pl.Expr, fn: pl.Expr, *, mode: Mode, beta: float
) -> pl.Expr:
    """Rounded to two places, and 0 where there is nothing to score. The same in both APIs."""
    if mode == "f1":
        precision, recall = (share(tp, tp + other).fill_null(0.0) for other in (fp, fn))
        return _rounded(fbeta(precision, recall, beta))
    return _rounded(tp / (tp + (fp if mode == "precision" else fn) + EPSILON))


def factuality(
    tp: pl.Expr,
    fp: pl.Expr,
    fn: pl.Expr,
    *,
    statements: tuple[pl.Expr, pl.Expr],
    beta: float,
    compat: ClaimCompat,
) -> pl.Expr:
    """The factual part of answer correctness; `statements` counts those of either side.

    1 where both sides have none, in collections where either has none. There an undefined
    precision is 1 as long as nothing was missed, and an undefined recall as long as nothing
    was made up; in the older metrics both are 0.
    """
    response, reference = (count == 0 for count in statements)
    if compat == "ragas-0.4-legacy":
        precision, recall = (share(tp, tp + other).fill_null(0.0) for other in (fp, fn))
        perfect = response & reference
    else:
        precision = pl.coalesce(share(tp, tp + fp), (fn == 0).cast(pl.Float64))
        recall = pl.coalesce(share(tp, tp + fn), (fp == 0).cast(pl.Float64))
        perfect = response | reference
    return pl.when(perfect).then(1.0).otherwise(fbeta(precision, recall, beta))


def answer_similarity(cosine: pl.Expr, *, zero: pl.Expr, compat: ClaimCompat) -> pl.Expr:
    """The similarity in answer correctness: in collections 0 where a vector is `zero`."""
    return cosine if compat == "ragas-0.4-legacy" else pl.when(zero).then(0.0).otherwise(cosine)


def semantic_similarity(cosine: pl.Expr, threshold: float | None, *, zero: pl.Expr) -> pl.Expr:
    """The cosine, or 1 where it reaches a threshold and else 0. The same in both APIs.

    A threshold of 0.0 is none. A `zero` vector has no cosine and reaches no threshold.
    """
    if not threshold:
        return cosine
    return pl.when(zero).then(0.0).otherwise(passes(cosine, threshold))


def context_recall(attributed: pl.Expr, *, compat: ClaimCompat) -> pl.Expr:
    """Mean of a list of the judge's integers; in the older metrics any but 0 counts as 1."""
    counted = attributed if compat == "ragas-0.4" else attributed.list.eval(pl.element() != 0)
    return share(counted.list.sum(), attributed.list.len())


def combined_attributions(votes: Sequence[Sequence[int]]) -> list[int]:
    """One list of the judge's integers out of several, as the older context recall makes it.

    The most frequent integer at each place, of equally frequent ones the first seen. Lists of
    different lengths are not combined: the first stands.
    """
    if len({len(one) for one in votes}) > 1:
        return list(votes[0])
    return [max(place, key=place.count) for place in zip(*votes, strict=True)]


def compat_score(
    compat: ClaimCompat | None, value: pl.Expr, *, nothing: pl.Expr | None = None
) -> CompatScore | None:
    """What ragas states of samples that have `raises`: `value`, or why it gives none."""
    if compat is None:
        return None
    raised = pl.col("raises")
    reason = raised if nothing is None else pl.coalesce(raised, nothing)
    return CompatScore(compat, pl.when(raised.is_null()).then(value), reason)


def nan_reason(compat: ClaimCompat | None, nothing: pl.Expr) -> pl.Expr:
    """That ragas gives NaN for `nothing`."""
    return pl.format(f"{compat} gives NaN: {{}}", nothing)


def no_similarity_reason(compat: ClaimCompat | None, nothing: pl.Expr, *, zero: pl.Expr) -> pl.Expr:
    """That a `zero` vector gives NaN, or that ragas embeds empty text, which is not done here."""
    embeds = pl.format(f"{compat} embeds empty text as well: {{}}", nothing)
    return pl.when(zero).then(nan_reason(compat, nothing)).otherwise(embeds)


def raised_errors(
    samples: pl.DataFrame, fields: Sequence[SampleField], *, compat: ClaimCompat | None
) -> pl.DataFrame:
    """`raises`, one row per sample: what collections say when a field is empty, else NULL.

    White space is not empty, and nor is a list that holds one empty context. The older
    metrics mind nothing.
    """
    says = [
        pl.when(_is_empty(field)).then(pl.lit(f"{compat} raises ValueError: {EMPTY[field]}"))
        for field in fields
        if compat == "ragas-0.4"
    ]
    raised = pl.coalesce(*says, pl.lit(None, pl.String))
    return samples.with_columns(raises=raised).select("raises")


def refuse_whole_number(beta: Any, compat: ClaimCompat) -> None:
    """Raise `ValueError` for a beta that is a whole number, as ragas does."""
    if type(beta) is int:
        raise ValueError(f"write {beta}.0: {compat} takes no whole number")


def _rounded(score: pl.Expr) -> pl.Expr:
    # As numpy rounds: half to even, after the shift by two places.
    return score.round(2, mode="half_to_even")


def _is_empty(field: SampleField) -> pl.Expr:
    return pl.col(field).list.len() == 0 if field == "retrieved_contexts" else pl.col(field) == ""
