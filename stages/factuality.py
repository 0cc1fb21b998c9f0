"""True and false positives and false negatives of a response's claims against a reference's."""

from collections.abc import Mapping
from typing import Final

import polars as pl

from stages.formulas import fbeta, share
from stages.outcomes import COUNTS, count_outcomes
from stages.words import Side

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


def both_sides(
    samples: pl.DataFrame,
    *,
    response_claims: pl.DataFrame | None,
    reference_claims: pl.DataFrame | None,
    response_in_reference: pl.DataFrame | None,
    reference_in_response: pl.DataFrame | None,
) -> pl.DataFrame:
    """One row per sample: the outcomes of either side, prefixed with it, and `failure`.

    The outcomes of a side whose tables are not given are NULL.
    """
    response = count_outcomes(
        samples, response_claims, response_in_reference, of="response", against="reference"
    )
    reference = count_outcomes(
        samples, reference_claims, reference_in_response, of="reference", against="response"
    )
    return (
        response.rename({name: f"response_{name}" for name in COUNTS})
        .join(
            reference.rename({name: f"reference_{name}" for name in COUNTS}),
            on="sample_id",
            maintain_order="left",
        )
        .with_columns(failure=pl.coalesce("response_failure", "reference_failure"))
    )
