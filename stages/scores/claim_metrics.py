"""Claim metrics: factual correctness, faithfulness, context recall."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import polars as pl
from pydantic import ValidationInfo, field_validator

from claimflow.stages.compat import ragas
from claimflow.stages.rows import ClaimCompat, SampleField, Side
from claimflow.stages.scores.claim_counts import (
    AGREEMENT,
    BY_VERDICTS,
    ENTAILED,
    SUPPORT_DETAILS,
    VERDICT_DETAILS,
    Agreement,
    Count,
    Mode,
    count_both_sides,
    count_claims,
    score_details,
)
from claimflow.stages.scores.empty_cases import (
    NO_SCORE_OF_REFUSALS,
    EmptyCase,
    EmptyPolicy,
    ScoreStage,
)
from claimflow.stages.scores.finalize import finalize_scores
from claimflow.stages.scores.formulas import Beta, share
from claimflow.stages.tables import Claims, Samples, Scores, Verdicts

_NO_CLAIMS_IN: Final[Mapping[Mode, str]] = {
    "precision": "response",
    "recall": "reference",
    "f1": "response or the reference",
}


class FactualCorrectness(ScoreStage):
    """Agreement of the claims of the response with those of the reference, in [0, 1].

    TP and FP are response claims that the reference entails or not, FN reference claims
    that the response does not entail. P = TP/(TP+FP), and R = TP/(TP+FN); with
    `recall_of` reference R is the share of reference claims that the response entails.
    F-beta takes 0 for a side without claims and is undefined when both have none. With `count`
    probabilities an entailed claim counts as its verdict's support, from 0 to 1.
    """

    use = "factual_correctness"
    metrics = ("factual_correctness",)
    metric_range = (0.0, 1.0)
    version = 3
    cases: ClassVar[tuple[EmptyCase, ...]] = ("response", "refusal", "reference")
    own_settings: ClassVar = ("recall_of", "count")
    later_settings: ClassVar = frozenset({"count"})
    columns: ClassVar = {"samples": ("sample_id", "response", "reference")}
    expects: ClassVar = {
        "response_claims": {"of": "response"},
        "reference_claims": {"of": "reference"},
        "response_in_reference": {"claims": "response_claims", "against": "reference"},
        "reference_in_response": {"claims": "reference_claims", "against": "response"},
    }

    compat: ClaimCompat | None = None
    mode: Mode = "f1"
    beta: Beta = 1.0
    recall_of: Side = "response"
    count: Count = "verdicts"
    empty: EmptyPolicy = NO_SCORE_OF_REFUSALS

    @field_validator("beta", mode="before")
    @classmethod
    def _no_whole_number(cls, beta: Any, info: ValidationInfo) -> Any:
        if info.data.get("compat") == "ragas-0.4-legacy":
            ragas.refuse_whole_number(beta, "ragas-0.4-legacy")
        return beta

    def ignores(self) -> frozenset[str]:
        """Precision needs the response's claims alone, recall of the reference the others."""
        if self.mode == "precision":
            return frozenset({"reference_claims", "reference_in_response"})
        if self.mode == "recall" and self.recall_of == "reference":
            return frozenset({"response_claims", "response_in_reference"})
        return frozenset()

    def run(
        self,
        samples: Samples,
        response_claims: Claims | None = None,
        reference_claims: Claims | None = None,
        response_in_reference: Verdicts | None = None,
        reference_in_response: Verdicts | None = None,
    ) -> Scores:
        """One score per sample."""
        tables = self.needed(
            response_claims=response_claims,
            reference_claims=reference_claims,
            response_in_reference=response_in_reference,
            reference_in_response=reference_in_response,
        )
        errors = ragas.raised_errors(samples, ("response", "reference"), compat=self.compat)
        counts = count_both_sides(samples, **tables)
        counted = {count: self._value(by) for count, by in AGREEMENT.items()}
        chosen = AGREEMENT[self.count]
        # In the other modes a side may not have been verified, so that there is no F.
        f = counted[self.count] if self.mode == "f1" else pl.lit(None, pl.Float64)
        shares = {"precision": chosen.precision, "recall": chosen.recall(self.recall_of)}
        part, whole = chosen.pooled(self.mode, self.beta, recall_of=self.recall_of)
        ragas_value = ragas.factual_correctness(
            BY_VERDICTS.tp, BY_VERDICTS.fp, BY_VERDICTS.fn, mode=self.mode, beta=self.beta
        )
        return finalize_scores(
            pl.concat([self.empty_cases(samples), counts, errors], how="horizontal"),
            metric=self.use,
            value=counted[self.count],
            undefined=pl.lit(f"no claims in the {_NO_CLAIMS_IN[self.mode]}"),
            details={
                **VERDICT_DETAILS,
                **({} if self.compat else {**SUPPORT_DETAILS, **score_details(counted)}),
                **shares,
                "f_beta": f,
            },
            part=part,
            whole=whole,
            compat=ragas.compat_score(self.compat, ragas_value),
        )

    def _value(self, by: Agreement) -> pl.Expr:
        if self.mode == "precision":
            return by.precision
        if self.mode == "recall":
            return by.recall(self.recall_of)
        return by.f_score(self.beta, recall_of=self.recall_of)


class Faithfulness(ScoreStage):
    """Share of the response's claims that the retrieved contexts entail, in [0, 1].

    With `count` probabilities it is the mean of their verdicts' support, each from 0 to 1; of
    several passages the greatest counts.
    """

    use = "faithfulness"
    metrics = ("faithfulness",)
    metric_range = (0.0, 1.0)
    version = 3
    cases: ClassVar[tuple[EmptyCase, ...]] = ("response", "refusal", "contexts")
    own_settings: ClassVar = ("count",)
    later_settings: ClassVar = frozenset({"count"})
    columns: ClassVar = {"samples": ("sample_id", "user_input", "response", "retrieved_contexts")}
    expects: ClassVar = {
        "response_claims": {"of": "response"},
        "response_in_contexts": {
            "claims": "response_claims",
            "against": "retrieved_contexts",
            "premises": ("joined", "each"),
        },
    }

    compat: ClaimCompat | None = None
    count: Count = "verdicts"
    empty: EmptyPolicy = NO_SCORE_OF_REFUSALS

    def run(
        self, samples: Samples, response_claims: Claims, response_in_contexts: Verdicts
    ) -> Scores:
        """One score per sample."""
        return _share_in_contexts(
            self,
            samples,
            response_claims,
            response_in_contexts,
            of="response",
            count=self.count,
            compat=self.compat,
        )


class ContextRecall(ScoreStage):
    """Share of the reference's claims that the retrieved contexts entail, in [0, 1].

    With `count` probabilities it is the mean of their verdicts' support, each from 0 to 1; of
    several passages the greatest counts.
    """

    use = "context_recall"
    metrics = ("context_recall",)
    metric_range = (0.0, 1.0)
    version = 2
    cases: ClassVar[tuple[EmptyCase, ...]] = ("reference", "contexts")
    own_settings: ClassVar = ("count",)
    later_settings: ClassVar = frozenset({"count"})
    columns: ClassVar = {"samples": ("sample_id", "user_input", "reference", "retrieved_contexts")}
    expects: ClassVar = {
        "reference_claims": {"of": "reference"},
        "reference_in_contexts": {"claims": "reference_claims", "against": "retrieved_contexts"},
    }

    compat: ClaimCompat | None = None
    count: Count = "verdicts"

    def run(
        self, samples: Samples, reference_claims: Claims, reference_in_contexts: Verdicts
    ) -> Scores:
        """One score per sample."""
        return _share_in_contexts(
            self,
            samples,
            reference_claims,
            reference_in_contexts,
            of="reference",
            count=self.count,
            compat=self.compat,
        )


def _share_in_contexts(
    stage: ScoreStage,
    samples: pl.DataFrame,
    claims: pl.DataFrame,
    verdicts: pl.DataFrame,
    *,
    of: Side,
    count: Count,
    compat: ClaimCompat | None,
) -> pl.DataFrame:
    fields: tuple[SampleField, ...] = (of, "user_input", "retrieved_contexts")
    errors = ragas.raised_errors(samples, fields, compat=compat)
    counts = count_claims(samples, claims, verdicts, of=of, against="retrieved_contexts")
    part, whole = pl.col(ENTAILED[count]), pl.col("claims")
    counted = {by: share(pl.col(entailed), whole) for by, entailed in ENTAILED.items()}
    by_count = {} if compat else {"support": pl.col("support"), **score_details(counted)}
    undefined = pl.lit(f"no claims in the {of}")
    return finalize_scores(
        pl.concat([stage.empty_cases(samples), counts, errors], how="horizontal"),
        metric=stage.use,
        value=counted[count],
        undefined=undefined,
        details={
            **{name: pl.col(name) for name in ("claims", "entailed", "contradicted", "neutral")},
            **by_count,
        },
        part=part,
        whole=whole,
        compat=ragas.compat_score(
            compat, counted[count], undefined=ragas.nan_reason(compat, undefined)
        ),
    )
