"""The metrics of RAGChecker as ratios of counts, and its own value where that differs from ours."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import polars as pl

from claimflow.stages.rows import PassageCompat
from claimflow.stages.scores.empty_cases import EmptyCase
from claimflow.stages.scores.finalize import CompatScore
from claimflow.stages.scores.formulas import fbeta, share

RIGHT, RECALLED = "response_in_reference", "reference_in_response"
BACKED, FOUND = "response_in_passages", "reference_in_passages"

RESPONSE: Final[tuple[EmptyCase, ...]] = ("response", "refusal")
BOTH_SIDES: Final[tuple[EmptyCase, ...]] = (*RESPONSE, "reference")
ALL_CASES: Final[tuple[EmptyCase, ...]] = (*BOTH_SIDES, "contexts")

_EMPTY: Final[Mapping[str, tuple[pl.Expr, str]]] = {
    "response": (pl.col(f"{BACKED}_claims") == 0, "no claims in the response"),
    "reference": (pl.col(f"{FOUND}_claims") == 0, "no claims in the reference"),
    "passages": (pl.col("passages") == 0, "no passages were retrieved"),
    "found": (pl.col(f"{FOUND}_entailed") == 0, "no claim of the reference is in a passage"),
}
"""What a sample may have none of: the condition, and the reason of a score that needs it."""


class Ratio(NamedTuple):
    """`part` / `whole` of the columns of `count_passages`.

    It is undefined where a sample has none of one of its `needs`, names in `_EMPTY`, and failed
    where one of its `directions` is. `cases` are the empty cases that matter to it, `shown` the
    names of its details and their columns.
    """

    part: str
    whole: str
    directions: tuple[str, ...]
    needs: tuple[str, ...]
    cases: tuple[EmptyCase, ...]
    shown: Mapping[str, str]

    def value(self) -> pl.Expr:
        """The ratio; NULL where it is undefined."""
        lacking = pl.any_horizontal(_EMPTY[need][0] for need in self.needs)
        return pl.when(~lacking).then(share(pl.col(self.part), pl.col(self.whole)))

    def undefined(self) -> pl.Expr:
        """The reason where it is undefined: the first of its needs that is empty."""
        return pl.coalesce(
            pl.when(lacking).then(pl.lit(reason))
            for lacking, reason in (_EMPTY[need] for need in self.needs)
        )


def _of_claims(direction: str, need: str, cases: tuple[EmptyCase, ...]) -> Ratio:
    names = ("claims", "entailed", "contradicted", "neutral")
    shown = {name: f"{direction}_{name}" for name in names}
    part, whole = shown["entailed"], shown["claims"]
    return Ratio(part, whole, (direction,), (need,), cases, shown)


def _of_response(part: str, *shown: str, directions: tuple[str, ...]) -> Ratio:
    needs = ("response", "reference") if FOUND in directions else ("response",)
    columns = {name: name for name in (*shown, part)} | {"claims": f"{BACKED}_claims"}
    return Ratio(part, columns["claims"], directions, needs, ALL_CASES, columns)


RATIOS: Final[Mapping[str, Ratio]] = {
    "precision": _of_claims(RIGHT, "response", BOTH_SIDES),
    "recall": _of_claims(RECALLED, "reference", BOTH_SIDES),
    "claim_recall": _of_claims(FOUND, "reference", ("reference", "contexts")),
    "context_precision": Ratio(
        "relevant",
        "passages",
        (FOUND,),
        ("reference", "passages"),
        ("reference", "contexts"),
        {"passages": "passages", "relevant": "relevant"},
    ),
    "context_utilization": Ratio(
        "recalled",
        f"{FOUND}_entailed",
        (FOUND, RECALLED),
        ("reference", "found"),
        ALL_CASES,
        {"found": f"{FOUND}_entailed", "recalled": "recalled"},
    ),
    "noise_sensitivity_in_relevant": _of_response(
        "wrong_in_relevant", "wrong", directions=(RIGHT, BACKED, FOUND)
    ),
    "noise_sensitivity_in_irrelevant": _of_response(
        "wrong_in_irrelevant", "wrong", directions=(RIGHT, BACKED, FOUND)
    ),
    "hallucination": _of_response(
        "wrong_unbacked", "wrong", "wrong_contradicted", directions=(RIGHT, BACKED)
    ),
    "self_knowledge": _of_response("right_unbacked", directions=(RIGHT, BACKED)),
    "faithfulness": _of_claims(BACKED, "response", (*RESPONSE, "contexts")),
}
"""By metric. `F1` alone is no ratio of counts: precision and recall are of different claims."""

LOWER_IS_BETTER: Final = frozenset(
    {"noise_sensitivity_in_relevant", "noise_sensitivity_in_irrelevant", "hallucination"}
)

F1: Final = fbeta(RATIOS["precision"].value(), RATIOS["recall"].value(), 1.0)

_ZERO_WITHOUT_PASSAGES: Final = ("hallucination", "self_knowledge", "faithfulness")


def compat_score(compat: PassageCompat, metric: str, value: pl.Expr) -> CompatScore:
    """The score of ragchecker 0.1.9 for a metric of this `value`: 0 where it is undefined."""
    if metric in _ZERO_WITHOUT_PASSAGES:
        value = pl.when(pl.col("passages") > 0).then(value)
    return CompatScore(compat, value.fill_null(0.0), pl.lit(None, pl.String))
