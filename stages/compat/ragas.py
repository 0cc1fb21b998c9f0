"""Scores of ragas 0.4.3 where its arithmetic differs from ours."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from claimflow.stages.rows import ClaimCompat, SampleField
from claimflow.stages.scores.claim_counts import Mode
from claimflow.stages.scores.finalize import CompatScore
from claimflow.stages.scores.formulas import fbeta, passes, share

_EPSILON: Final = 1e-8
"""Added by ragas to the divisor of precision and recall. It can change the second decimal."""

_EMPTY_FIELD: Final[Mapping[SampleField, str]] = {
    "user_input": "the question is empty",
    "response": "the response is empty",
    "reference": "the reference is empty",
    "retrieved_contexts": "there are no contexts",
}


def factual_correctness(
    tp: pl.Expr, fp: pl.Expr, fn: pl.Expr, *, mode: Mode, beta: float
) -> pl.Expr:
    """Rounded to two places, and 0 where there are no claims. The same in both APIs."""
    if mode == "f1":
        precision, recall = (share(tp, tp + other).fill_null(0.0) for other in (fp, fn))
        return _rounded(fbeta(precision, recall, beta))
    return _rounded(tp / (tp + (fp if mode == "precision" else fn) + _EPSILON))


def factuality(
    tp: pl.Expr,
    fp: pl.Expr,
    fn: pl.Expr,
    *,
    statements: tuple[pl.Expr, pl.Expr],
    beta: float,
    compat: ClaimCompat,
) -> pl.Expr:
    """The factual part of answer correctness; `statements` counts those of response and reference.

    In the older metrics it is 1 where both sides have no statements, and an undefined precision
    or recall counts as 0. In collections it is 1 where either side has none, an undefined
    precision is 1 when no reference claim was missed, and an undefined recall is 1 when no
    response claim was wrong.
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
    """The similarity part of answer correctness: in collections 0 where a vector is `zero`."""
    return cosine if compat == "ragas-0.4-legacy" else pl.when(zero).then(0.0).otherwise(cosine)


def semantic_similarity(cosine: pl.Expr, threshold: float | None, *, zero: pl.Expr) -> pl.Expr:
    """The cosine, or with a threshold 1 where it is reached, else 0. The same in both APIs.

    A threshold of 0.0 counts as none. A `zero` vector has no cosine and reaches no threshold.
    """
    if not threshold:
        return cosine
    return pl.when(zero).then(0.0).otherwise(passes(cosine, threshold))


def context_recall(attributed: pl.Expr, *, compat: ClaimCompat) -> pl.Expr:
    """Mean of the judge's list of integers; in the older metrics any but 0 counts as 1."""
    counted = attributed if compat == "ragas-0.4" else attributed.list.eval(pl.element() != 0)
    return share(counted.list.sum(), attributed.list.len())


def combined_attributions(votes: Sequence[Sequence[int]]) -> list[int]:
    """One list of integers from several replies of the judge, as in the older context recall.

    The most frequent integer at each position, of equally frequent ones the first. Lists of
    different lengths are not combined: the first is returned.
    """
    if len({len(one) for one in votes}) > 1:
        return list(votes[0])
    return [max(column, key=column.count) for column in zip(*votes, strict=True)]


def compat_score(
    compat: ClaimCompat | None, value: pl.Expr, *, undefined: pl.Expr | None = None
) -> CompatScore | None:
    """The score of ragas: `value`, but NULL where the column `raises` has an error.

    `undefined` is the reason where `value` is NULL. None without `compat`.
    """
    if compat is None:
        return None
    raised = pl.col("raises")
    reason = raised if undefined is None else pl.coalesce(raised, undefined)
    return CompatScore(compat, pl.when(raised.is_null()).then(value), reason)


def nan_reason(compat: ClaimCompat | None, undefined: pl.Expr) -> pl.Expr:
    """The reason where ragas gives NaN because of `undefined`."""
    return pl.format(f"{compat} gives NaN: {{}}", undefined)


def no_similarity_reason(
    compat: ClaimCompat | None, undefined: pl.Expr, *, zero: pl.Expr
) -> pl.Expr:
    """The reason where there is no similarity.

    ragas gives NaN for a `zero` vector, and embeds empty text, which is not done here.
    """
    embeds = pl.format(f"{compat} embeds empty text as well: {{}}", undefined)
    return pl.when(zero).then(nan_reason(compat, undefined)).otherwise(embeds)


def raised_errors(
    samples: pl.DataFrame, fields: Sequence[SampleField], *, compat: ClaimCompat | None
) -> pl.DataFrame:
    """One column `raises`, a row per sample: the error of collections for an empty field, or NULL.

    White space is not empty, nor is a list with one empty context. The older metrics raise no
    errors.
    """
    errors = [
        pl.when(_is_empty(field)).then(pl.lit(f"{compat} raises ValueError: {_EMPTY_FIELD[field]}"))
        for field in fields
        if compat == "ragas-0.4"
    ]
    raised = pl.coalesce(*errors, pl.lit(None, pl.String))
    return samples.with_columns(raises=raised).select("raises")


def refuse_whole_number(beta: Any, compat: ClaimCompat) -> None:
    """Raise `ValueError` for a beta that is a whole number, as ragas does."""
    if type(beta) is int:
        raise ValueError(f"write {beta}.0: {compat} takes no whole number")


def _rounded(score: pl.Expr) -> pl.Expr:
    # As numpy rounds: half to even.
    return score.round(2, mode="half_to_even")


def _is_empty(field: SampleField) -> pl.Expr:
    return pl.col(field).list.len() == 0 if field == "retrieved_contexts" else pl.col(field) == ""
