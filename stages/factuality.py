"""True and false positives and false negatives of a response's claims against a reference's."""

from collections.abc import Mapping
from typing import Final, Literal

import polars as pl

from claimflow.stages.formulas import fbeta, share
from claimflow.stages.outcomes import COUNTS, count_outcomes
from claimflow.stages.words import Side

Mode = Literal["f1", "precision", "recall"]

TP: Final = pl.col("response_entailed")
FP: Final = pl.col("response_claims") - TP
FN: Final = pl.col("reference_claims") - pl.col("reference_entailed")

PRECISION: Final = share(TP, TP + FP)
RECALL: Final[Mapping[Side, pl.Expr]] = {
    # 0 of 0 is 0 as long as the reference has claims: all are covered, none by a TP.
    "response": pl.when(TP + pl.col("reference_claims") > 0).then(
        share(TP, TP + FN).fill_null(0.0)
    ),
    "reference": share(pl.col("reference_entailed"), pl.col("reference_claims")),
}
"""Recall by whose claims count as found: the response's (ragas) or the reference's own."""

COUNT_DETAILS: Final[dict[str, pl.Expr]] = {
    f"{side}_{name}": pl.col(f"{side}_{name}")
    for side in ("response", "reference")
    for name in COUNTS
    if name != "failure"
} | {"tp": TP, "fp": FP, "fn": FN}


def f_score(beta: float, *, recall_of: Side = "response") -> pl.Expr:
    """F-beta of either side's counts; NULL when those of one side failed."""
    failed = pl.coalesce("response_failure", "reference_failure").is_not_null()
    return pl.when(~failed).then(fbeta(PRECISION, RECALL[recall_of], beta))


def ratio_of_counts(
    mode: Mode, beta: float, *, recall_of: Side
) -> tuple[pl.Expr, pl.Expr] | tuple[None, None]:
    """(part, whole) of a score; none for an F of the claims of both sides."""
    if mode == "precision":
        return TP, TP + FP
    if recall_of == "reference":
        by_reference = pl.col("reference_entailed"), pl.col("reference_claims")
        return by_reference if mode == "recall" else (None, None)
    if mode == "recall":
        return TP, TP + FN
    part = (1 + beta**2) * TP
    return part, part + beta**2 * FN + FP


def both_sides(
    samples: pl.DataFrame,
    *,
    response_claims: pl.DataFrame | None,
    reference_claims: pl.DataFrame | None,
    response_in_reference: pl.DataFrame | None,
    reference_in_response: pl.DataFrame | None,
) -> pl.DataFrame:
    """One row per sample, in order: the outcomes of either side, prefixed with it, and `failure`.

    The outcomes of a side whose tables are not given are NULL.
    """
    response = count_outcomes(
        samples, response_claims, response_in_reference, of="response", against="reference"
    )
    reference = count_outcomes(
        samples, reference_claims, reference_in_response, of="reference", against="response"
    )
    sides = (
        response.rename({name: f"response_{name}" for name in COUNTS}),
        reference.rename({name: f"reference_{name}" for name in COUNTS}),
    )
    return pl.concat(sides, how="horizontal").with_columns(
        failure=pl.coalesce("response_failure", "reference_failure")
    )
