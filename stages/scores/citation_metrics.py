"""Citation metrics: recall and precision of citations, and misattribution."""

from typing import ClassVar, Final

import polars as pl

from claimflow.stages.sample_texts import count_texts
from claimflow.stages.scores.claim_counts import (
    JudgedClaims,
    check_passages,
    count_by_sample,
    join_verdicts,
    positions,
    tally,
)
from claimflow.stages.scores.empty_cases import EmptyCase, ScoreStage
from claimflow.stages.scores.finalize import finalize_scores
from claimflow.stages.scores.formulas import share
from claimflow.stages.tables import Citations, Claims, Samples, Scores, Verdicts

_UNDEFINED: Final = {
    "no_contexts": "no passages were retrieved",
    "no_claims": "no claims in the response",
    "no_citations": "no citations in the response",
}
"""What a sample may have none of, and the reason of a score that needs it."""


class CitationScores(ScoreStage):
    """Recall and precision of citations as in ALCE (Gao et al. 2023), and misattribution.

    `citation_recall`: claims that the passages they cite entail together / claims; a claim without
    citations is not supported. `citation_precision`: precise citations / citations. A citation is
    imprecise if the cited passages together do not entail its claim, or if its passage alone does
    not and the others together do. A marker that points to no passage is an imprecise citation.
    `citation_misattribution`: claims whose cited passages do not entail them and another passage
    does / claims with citations. Lower is better. A share of nothing is undefined.
    """

    use = "citations"
    metrics = ("citation_recall", "citation_precision", "citation_misattribution")
    metric_range = (0.0, 1.0)
    lower_is_better = frozenset({"citation_misattribution"})
    cases: ClassVar[tuple[EmptyCase, ...]] = ("response", "refusal", "contexts")
    columns: ClassVar = {"samples": ("sample_id", "response", "retrieved_contexts")}
    expects: ClassVar = {
        "response_claims": {"of": "response"},
        "response_citations": {"response_claims": "response_claims"},
        "response_in_passages": {
            "claims": "response_claims",
            "against": "retrieved_contexts",
            "premises": "each",
        },
        "response_in_cited": {
            "claims": "response_claims",
            "citations": "response_citations",
            "against": "retrieved_contexts",
            "premises": "cited",
        },
    }

    def run(
        self,
        samples: Samples,
        response_claims: Claims,
        response_citations: Citations,
        response_in_passages: Verdicts,
        response_in_cited: Verdicts,
    ) -> Scores:
        """Three scores per sample."""
        counts = count_citations(
            samples, response_claims, response_citations, response_in_passages, response_in_cited
        )
        frame = pl.concat([self.empty_cases(samples), counts], how="horizontal")
        return pl.concat(
            [
                _ratio_scores(frame, "recall", "supported", "claims", "cited_claims"),
                _ratio_scores(frame, "precision", "precise", "citations", "to_no_passage"),
                _ratio_scores(
                    frame, "misattribution", "misattributed", "cited_claims", "unsupported"
                ),
            ]
        )


def _ratio_scores(
    frame: pl.DataFrame, name: str, part: str, whole: str, *more: str
) -> pl.DataFrame:
    lacking = {
        "no_contexts": pl.col("no_contexts"),
        "no_claims": pl.col("claims") == 0,
        "no_citations": pl.col("citations") == 0 if name != "recall" else pl.lit(False),
    }
    failure = pl.col(f"{name}_failure")
    value = share(pl.col(part), pl.col(whole))
    return finalize_scores(
        frame.with_columns(failure=failure),
        metric=f"citation_{name}",
        value=pl.when(~pl.any_horizontal(lacking.values())).then(value),
        undefined=pl.coalesce(
            pl.when(condition).then(pl.lit(_UNDEFINED[need])) for need, condition in lacking.items()
        ),
        # Counts of the verdicts that did arrive would mislead.
        details={shown: pl.when(failure.is_null()).then(shown) for shown in (part, whole, *more)},
        part=pl.col(part),
        whole=pl.col(whole),
    )


def count_citations(
    samples: pl.DataFrame,
    claims: pl.DataFrame,
    citations: pl.DataFrame,
    in_passages: pl.DataFrame,
    in_cited: pl.DataFrame,
) -> pl.DataFrame:
    """One row per sample, in order: counts of claims and citations, and what failed.

    - `no_contexts`: whether the sample has no context with any text;
    - `claims`, of which `cited_claims` have citations; their cited passages entail `supported`
      of them together and do not entail `unsupported`, of which another passage entails
      `misattributed`;
    - `citations`, of which `to_no_passage` point to none and `precise` are precise;
    - `recall_failure`, `precision_failure`, `misattribution_failure`: NULL, or which verdicts that
      the metric needs are not there.

    Raises `TableError` for claims of the reference, for verdicts against other texts, and for
    verdicts by passage that are not.
    """
    claims = claims.filter(pl.col("status") != "not_a_claim")
    claims = claims.join(samples, on="sample_id", how="semi", maintain_order="left")
    each, cited, rest = (
        join_verdicts(samples, claims, table, of="response", against="retrieved_contexts")
        for table in (
            in_passages,
            in_cited.filter(pl.col("passage").is_null()),
            in_cited.filter(pl.col("passage").is_not_null()),
        )
    )
    contexts = samples["retrieved_contexts"].list.len().cast(pl.Int64).fill_null(0)
    sample = each.claims["sample"]
    check_passages(each.verdicts["passage"], contexts.gather(sample.gather(each.verdicts["claim"])))
    marks = citations.select(
        "passage", claim=positions(citations["claim_id"], claims["claim_id"])
    ).filter(pl.col("claim").is_not_null())
    by_claim = _by_claim(marks, each, cited, rest)
    by_mark = _by_citation(marks, by_claim, each, rest)
    conditions = {
        "supported": pl.col("together"),
        "cited_claims": pl.col("cites"),
        "unsupported": pl.col("cites") & ~pl.col("together"),
        "misattributed": pl.col("cites") & ~pl.col("together") & pl.col("elsewhere"),
    }
    counted = {name: by_claim.filter(condition)["sample"] for name, condition in conditions.items()}
    for name, condition in {
        "citations": pl.lit(True),
        "to_no_passage": pl.col("passage").is_null(),
        "precise": pl.col("precise"),
    }.items():
        counted[name] = sample.gather(by_mark.filter(condition)["claim"])
    counts = {name: tally(found, samples.height) for name, found in counted.items()}
    of_cited, of_each, of_rest = (
        _failures(judged, by_claim[f"lacks_{name}"], samples.height)
        for name, judged in (("together", cited), ("alone", each), ("rest", rest))
    )
    return (
        pl.DataFrame(
            {
                "no_contexts": samples.select(
                    (count_texts("retrieved_contexts") == 0).fill_null(False)
                ).to_series(),
                "claims": of_cited["claims"],
                **counts,
            }
        )
        .with_columns(
            recall_failure=of_cited["failure"],
            misattribution_failure=of_cited["failure"].zip_with(
                of_cited["failure"].is_not_null(), of_each["failure"]
            ),
        )
        .with_columns(
            precision_failure=pl.coalesce("misattribution_failure", pl.lit(of_rest["failure"]))
        )
    )


def _by_claim(
    marks: pl.DataFrame, each: JudgedClaims, cited: JudgedClaims, rest: JudgedClaims
) -> pl.DataFrame:
    """One row per claim, in order.

    `sample`; whether it `cites` anything; whether the cited passages entail it `together`, and
    whether a passage that is not cited does (`elsewhere`); the number of `passages` that it cites;
    and which of the verdicts that its citations need are not there (`lacks_...`).
    """
    size = each.claims.height
    entailing = each.verdicts.filter("entailed").select("claim", "passage")
    elsewhere = entailing.join(marks, on=["claim", "passage"], how="anti")
    frame = pl.DataFrame(
        {
            "sample": each.claims["sample"],
            "cites": tally(marks["claim"], size) > 0,
            "together": cited.claims["entailed"],
            "elsewhere": tally(elsewhere["claim"], size) > 0,
            "passages": tally(marks.drop_nulls()["claim"], size),
            "without_one": tally(rest.verdicts.filter("judged")["claim"], size),
        }
    )
    return frame.with_columns(
        lacks_together=pl.col("cites") & cited.claims["unjudged"],
        lacks_alone=pl.col("cites") & each.claims["unjudged"],
        lacks_rest=(pl.col("passages") > 2) & (pl.col("without_one") < pl.col("passages")),
    )


def _by_citation(
    marks: pl.DataFrame, by_claim: pl.DataFrame, each: JudgedClaims, rest: JudgedClaims
) -> pl.DataFrame:
    """`claim`, `passage` and `precise` of every citation.

    Where a claim cites two passages, the rest is the other one, on which there is a verdict alone.
    """
    key = ["claim", "passage"]
    alone, without = (
        judged.verdicts.filter("entailed").select(*key, pl.lit(True).alias(name)).unique()
        for judged, name in ((each, "alone"), (rest, "rest"))
    )
    together, passages = (
        by_claim[name].gather(marks["claim"]) for name in ("together", "passages")
    )
    others = pl.col("alone").sum().over("claim") - pl.col("alone")
    by_rest = pl.when(pl.col("passages") == 2).then(others > 0).otherwise("rest")
    return (
        marks.with_columns(together, passages)
        .join(alone, on=key, how="left", maintain_order="left")
        .join(without, on=key, how="left", maintain_order="left")
        .with_columns(pl.col("alone", "rest").fill_null(False))
        .select(
            *key,
            precise=pl.col("passage").is_not_null()
            & pl.col("together")
            & (pl.col("alone") | ~by_rest),
        )
    )


def _failures(judged: JudgedClaims, lacking: pl.Series, samples: int) -> pl.DataFrame:
    """The counts of `count_by_sample`, where only the claims that are `lacking` need a verdict."""
    claims = judged.claims.with_columns(unjudged=pl.col("made") & lacking)
    return count_by_sample(judged._replace(claims=claims), samples, of="response")
