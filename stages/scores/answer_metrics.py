"""Answer metrics: semantic similarity and answer correctness."""

from typing import Annotated, Any, ClassVar, Final, Literal

import polars as pl
from pydantic import Field, ValidationInfo, field_validator

from claimflow.stages.compat import ragas
from claimflow.stages.rows import ClaimCompat, Side
from claimflow.stages.sample_texts import count_texts
from claimflow.stages.scores.claim_counts import (
    AGREEMENT,
    BY_VERDICTS,
    SUPPORT_DETAILS,
    VERDICT_DETAILS,
    Agreement,
    Count,
    count_both_sides,
    score_details,
)
from claimflow.stages.scores.claim_metrics import FactualCorrectness
from claimflow.stages.scores.empty_cases import (
    NO_SCORE_OF_REFUSALS,
    EmptyCase,
    EmptyPolicy,
    ScoreStage,
)
from claimflow.stages.scores.finalize import CompatScore, finalize_scores
from claimflow.stages.scores.formulas import Beta, passes, weighted_mean
from claimflow.stages.tables import Claims, Samples, Scores, Similarities, TableError, Verdicts

_ZERO: Final = pl.col("zero")
_NO_SIMILARITY: Final = pl.col("similarity_undefined")


def with_similarity(
    frame: pl.DataFrame, samples: pl.DataFrame, similarity: pl.DataFrame | None
) -> pl.DataFrame:
    """`frame` with `cosine`, `similarity_failure`, `similarity_undefined`, `zero` and `raises`.

    `zero` is true where an embedding is the zero vector: the texts are not blank, but there is no
    similarity. Raises `TableError` for similarities of other texts.
    """
    blank = (count_texts("response") == 0) | (count_texts("reference") == 0)
    frame = frame.with_columns(samples.select(blank=blank), raises=pl.lit(None, pl.String))
    if similarity is None:
        return frame.with_columns(
            cosine=pl.lit(None, pl.Float64),
            similarity_failure=pl.lit(None, pl.String),
            similarity_undefined=pl.lit(None, pl.String),
            zero=pl.lit(False),
        )
    if similarity.filter((pl.col("left") != "response") | (pl.col("right") != "reference")).height:
        raise TableError("expected similarities of response and reference, found others")
    status = pl.col("status")
    reason = pl.concat_str(
        pl.format("similarity {}", status), "reason", separator=": ", ignore_nulls=True
    )
    measured = similarity.select(
        "sample_id",
        "cosine",
        arrived=pl.lit(True),
        similarity_failure=pl.when(status == "failed").then(reason),
        similarity_undefined=pl.when(status == "undefined").then(reason),
    )
    lost = pl.when(pl.col("arrived").is_null()).then(pl.lit("no similarity was measured"))
    return frame.join(measured, on="sample_id", how="left", maintain_order="left").with_columns(
        similarity_failure=pl.coalesce("similarity_failure", lost),
        zero=_NO_SIMILARITY.is_not_null() & ~pl.col("blank"),
    )


Weight = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Threshold = Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)]


class SemanticSimilarity(ScoreStage):
    """Cosine of the embeddings of response and reference, in [-1, 1].

    `range` clipped raises negative cosines to 0. With a `threshold`, 0.0 included, the
    score is 1.0 where the cosine reaches it and 0.0 below.
    """

    use = "semantic_similarity"
    metrics = ("semantic_similarity",)
    metric_range = (-1.0, 1.0)
    version = 2
    cases: ClassVar[tuple[EmptyCase, ...]] = ("response", "refusal", "reference")
    own_settings: ClassVar = ("range",)
    columns: ClassVar = {
        "samples": ("sample_id", "response", "reference"),
        "similarity": ("sample_id", "left", "right", "cosine", "status", "reason"),
    }
    expects: ClassVar = {"similarity": {"left": "response", "right": "reference"}}

    compat: ClaimCompat | None = None
    threshold: Threshold | None = None
    range: Literal["raw", "clipped"] = "raw"

    def run(self, samples: Samples, similarity: Similarities) -> Scores:
        """One score per sample."""
        frame = with_similarity(self.empty_cases(samples), samples, similarity)
        cosine = pl.col("cosine")
        ranged = cosine if self.range == "raw" else cosine.clip(lower_bound=0.0)
        ragas_value = ragas.semantic_similarity(cosine, self.threshold, zero=_ZERO)
        return finalize_scores(
            frame.with_columns(failure=pl.col("similarity_failure")),
            metric=self.use,
            value=passes(ranged, self.threshold),
            undefined=_NO_SIMILARITY,
            details={"cosine": cosine},
            compat=ragas.compat_score(
                self.compat,
                ragas_value,
                undefined=ragas.no_similarity_reason(self.compat, _NO_SIMILARITY, zero=_ZERO),
            ),
        )


class AnswerCorrectness(ScoreStage):
    """Weighted mean of factuality, in [0, 1], and semantic similarity, in [-1, 1].

    Factuality is F-beta of precision TP/(TP+FP) and recall TP/(TP+FN), which for beta 1
    is TP/(TP + 0.5 (FP+FN)). With `recall_of` reference, recall is the share of reference claims
    that the response entails. Factuality is 0 when one side has no claims and undefined when both
    have none. `weights` (factuality, similarity) need not sum to 1; the inputs of a part
    of weight 0 are not needed. With `count` probabilities an entailed claim counts as its verdict's
    support, from 0 to 1. With a `threshold` the score is 1.0 where the mean reaches it, else 0.0.
    """

    use = "answer_correctness"
    metrics = ("answer_correctness",)
    metric_range = (-1.0, 1.0)
    version = 2
    cases: ClassVar[tuple[EmptyCase, ...]] = ("response", "refusal", "reference")
    own_settings: ClassVar = ("threshold", "recall_of", "count")
    later_settings: ClassVar = frozenset({"recall_of", "count"})
    columns: ClassVar = SemanticSimilarity.columns
    expects: ClassVar = FactualCorrectness.expects | SemanticSimilarity.expects

    compat: ClaimCompat | None = None
    weights: tuple[Weight, Weight] = (0.75, 0.25)
    beta: Beta = 1.0
    threshold: Threshold | None = None
    recall_of: Side = "response"
    count: Count = "verdicts"
    empty: EmptyPolicy = NO_SCORE_OF_REFUSALS

    @field_validator("beta", mode="before")
    @classmethod
    def _no_whole_number(cls, beta: Any, info: ValidationInfo) -> Any:
        if info.data.get("compat"):
            ragas.refuse_whole_number(beta, info.data["compat"])
        return beta

    @field_validator("weights")
    @classmethod
    def _not_both_zero(cls, weights: tuple[float, float]) -> tuple[float, float]:
        if sum(weights) == 0:
            raise ValueError("at least one of the weights must be above 0")
        return weights

    def ignores(self) -> frozenset[str]:
        """The inputs of the part that has weight 0."""
        factuality, similarity = self.weights
        if factuality == 0:
            return frozenset(FactualCorrectness.expects)
        return frozenset({"similarity"}) if similarity == 0 else frozenset()

    def run(
        self,
        samples: Samples,
        response_claims: Claims | None = None,
        reference_claims: Claims | None = None,
        response_in_reference: Verdicts | None = None,
        reference_in_response: Verdicts | None = None,
        similarity: Similarities | None = None,
    ) -> Scores:
        """One score per sample."""
        tables = self.needed(
            response_claims=response_claims,
            reference_claims=reference_claims,
            response_in_reference=response_in_reference,
            reference_in_response=reference_in_response,
            similarity=similarity,
        )
        frame = with_similarity(self.empty_cases(samples), samples, tables.pop("similarity"))
        frame = pl.concat(
            [frame, count_both_sides(samples, **tables)], how="horizontal"
        ).with_columns(failure=pl.coalesce("failure", "similarity_failure"))
        factualities = {
            count: _factuality(by, self.beta, self.recall_of) for count, by in AGREEMENT.items()
        }
        means = {
            count: weighted_mean(factuality, pl.col("cosine"), self.weights)
            for count, factuality in factualities.items()
        }
        scores = {count: passes(mean, self.threshold) for count, mean in means.items()}
        chosen, factuality = AGREEMENT[self.count], factualities[self.count]
        shares = {"precision": chosen.precision, "recall": chosen.recall(self.recall_of)}
        return finalize_scores(
            frame,
            metric=self.use,
            value=scores[self.count],
            undefined=self._undefined(factuality),
            details={
                **VERDICT_DETAILS,
                **({} if self.compat else {**SUPPORT_DETAILS, **score_details(scores)}),
                **shares,
                "f_beta": factuality,
                "similarity": pl.col("cosine"),
                "weighted_mean": means[self.count],
            },
            compat=self._ragas_score(self.compat) if self.compat else None,
        )

    def _undefined(self, factuality: pl.Expr) -> pl.Expr:
        no_claims = pl.lit("no claims in the response or the reference")
        if not self.weights[0]:
            return _NO_SIMILARITY
        return pl.when(factuality.is_null()).then(no_claims).otherwise(_NO_SIMILARITY)

    def _ragas_score(self, compat: ClaimCompat) -> CompatScore | None:
        statements = pl.col("response_claims"), pl.col("reference_claims")
        factuality = ragas.factuality(
            BY_VERDICTS.tp,
            BY_VERDICTS.fp,
            BY_VERDICTS.fn,
            statements=statements,
            beta=self.beta,
            compat=compat,
        )
        similarity = ragas.answer_similarity(pl.col("cosine"), zero=_ZERO, compat=compat)
        return ragas.compat_score(
            compat,
            weighted_mean(factuality, similarity, self.weights),
            undefined=ragas.no_similarity_reason(compat, _NO_SIMILARITY, zero=_ZERO),
        )


def _factuality(by: Agreement, beta: float, recall_of: Side) -> pl.Expr:
    response, reference = pl.col("response_claims"), pl.col("reference_claims")
    one_side_empty = (response == 0) != (reference == 0)
    f = by.f_score(beta, recall_of=recall_of)
    return pl.when(f.is_not_null() & one_side_empty).then(0.0).otherwise(f)
