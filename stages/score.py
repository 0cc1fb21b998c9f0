"""Claim metrics: what share of a text's claims another text entails."""

from typing import ClassVar, Literal

import polars as pl

from stages.factuality import COUNT_DETAILS, PRECISION, RECALL, both_sides, f_score
from stages.formulas import Beta, share
from stages.nothing import Case, ScoreStage
from stages.outcomes import count_outcomes
from stages.settle import settle
from stages.tables import Claims, Samples, Scores, Verdicts
from stages.words import Side


class FactualCorrectness(ScoreStage):
    """Agreement of the claims of the response with those of the reference, in [0, 1].

    TP and FP are response claims that the reference entails or not, FN reference claims
    that the response does not entail. P = TP/(TP+FP), and R = TP/(TP+FN); with
    `recall_of` reference R is the share of reference claims that the response entails.
    F-beta takes 0 for a side without claims and is undefined when both have none.
    """

    use = "factual_correctness"
    cases: ClassVar[tuple[Case, ...]] = ("response", "refusal", "reference")
    columns: ClassVar = {"samples": ("sample_id", "response", "reference")}
    expects: ClassVar = {
        "response_claims": {"of": "response"},
        "reference_claims": {"of": "reference"},
        "response_in_reference": {"claims": "response_claims", "against": "reference"},
        "reference_in_response": {"claims": "reference_claims", "against": "response"},
    }

    mode: Literal["f1", "precision", "recall"] = "f1"
    beta: Beta = 1.0
    recall_of: Side = "response"

    def ignores(self) -> frozenset[str]:
        """Precision looks at the response's claims alone, `recall_of` reference at the others."""
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
        given = self.needed(
            response_claims=response_claims,
            reference_claims=reference_claims,
            response_in_reference=response_in_reference,
            reference_in_response=reference_in_response,
        )
        frame = self.situation(samples).join(
            both_sides(samples, **given), on="sample_id", maintain_order="left"
        )
        recall = RECALL[self.recall_of]
        f = f_score(self.beta, recall_of=self.recall_of)
        values = {"precision": PRECISION, "recall": recall, "f1": f}
        # In the other modes a side may not have been looked at, and F would be of half the facts.
        shown = f if self.mode == "f1" else pl.lit(None, pl.Float64)
        lacking = {
            "precision": "response",
            "recall": "reference",
            "f1": "response or the reference",
        }
        return settle(
            frame,
            metric=self.use,
            value=values[self.mode],
            nothing=pl.lit(f"no claims in the {lacking[self.mode]}"),
            details=COUNT_DETAILS | {"precision": PRECISION, "recall": recall, "f_beta": shown},
        )


class Faithfulness(ScoreStage):
    """Share of the response's claims that the retrieved contexts entail, in [0, 1]."""

    use = "faithfulness"
    cases: ClassVar[tuple[Case, ...]] = ("response", "refusal", "contexts")
    columns: ClassVar = {"samples": ("sample_id", "response", "retrieved_contexts")}
    expects: ClassVar = {
        "response_claims": {"of": "response"},
        "response_in_contexts": {"claims": "response_claims", "against": "retrieved_contexts"},
    }

    def run(
        self, samples: Samples, response_claims: Claims, response_in_contexts: Verdicts
    ) -> Scores:
        """One score per sample."""
        return _share_in_contexts(self, samples, response_claims, response_in_contexts, "response")


class ContextRecall(ScoreStage):
    """Share of the reference's claims that the retrieved contexts entail, in [0, 1]."""

    use = "context_recall"
    cases: ClassVar[tuple[Case, ...]] = ("reference", "contexts")
    columns: ClassVar = {"samples": ("sample_id", "reference", "retrieved_contexts")}
    expects: ClassVar = {
        "reference_claims": {"of": "reference"},
        "reference_in_contexts": {"claims": "reference_claims", "against": "retrieved_contexts"},
    }

    def run(
        self, samples: Samples, reference_claims: Claims, reference_in_contexts: Verdicts
    ) -> Scores:
        """One score per sample."""
        return _share_in_contexts(
            self, samples, reference_claims, reference_in_contexts, "reference"
        )


def _share_in_contexts(
    stage: ScoreStage, samples: pl.DataFrame, claims: pl.DataFrame, verdicts: pl.DataFrame, of: Side
) -> pl.DataFrame:
    counts = count_outcomes(samples, claims, verdicts, of=of, against="retrieved_contexts")
    return settle(
        stage.situation(samples).join(counts, on="sample_id", maintain_order="left"),
        metric=stage.use,
        value=share(pl.col("entailed"), pl.col("claims")),
        nothing=pl.lit(f"no claims in the {of}"),
        details={name: pl.col(name) for name in ("claims", "entailed", "contradicted", "neutral")},
    )
