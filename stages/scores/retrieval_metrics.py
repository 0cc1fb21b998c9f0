"""Metrics of retrieval and generation from verdicts on every passage."""

from collections.abc import Mapping
from typing import ClassVar, Final, Literal

import polars as pl

from claimflow.stages.compat.ragchecker import (
    BOTH_SIDES,
    F1,
    LOWER_IS_BETTER,
    RATIOS,
    Ratio,
    compat_score,
)
from claimflow.stages.rows import PassageCompat, SampleField, Side
from claimflow.stages.scores.claim_counts import (
    JudgedClaims,
    check_passages,
    count_by_sample,
    join_verdicts,
    tally,
)
from claimflow.stages.scores.empty_cases import EmptyCase, ScoreStage
from claimflow.stages.scores.finalize import finalize_scores
from claimflow.stages.tables import Claims, Samples, Scores, Verdicts

DIRECTIONS: Final[Mapping[str, tuple[Side, SampleField]]] = {
    "response_in_reference": ("response", "reference"),
    "reference_in_response": ("reference", "response"),
    "response_in_passages": ("response", "retrieved_contexts"),
    "reference_in_passages": ("reference", "retrieved_contexts"),
}


def count_passages(
    samples: pl.DataFrame, claims: Mapping[Side, pl.DataFrame], verdicts: Mapping[str, pl.DataFrame]
) -> pl.DataFrame:
    """One row per sample, in order: counts from verdicts by the name of their direction.

    Both verdicts on passages and `response_in_reference` are needed. The columns are the `COUNTS`
    of each direction, prefixed with its name, and

    - `passages`, `relevant`: the retrieved contexts, blank ones too, and those that entail any
      claim of the reference;
    - `wrong`: response claims that the reference does not entail. A relevant passage entails
      `wrong_in_relevant` of them, other passages alone `wrong_in_irrelevant`, none
      `wrong_unbacked`, of which a passage contradicts `wrong_contradicted`;
    - `right_unbacked`: response claims that the reference entails and no passage does;
    - `recalled`: reference claims that both a passage and the response entail.

    Raises `TableError` for tables of another direction, for verdicts on all contexts at once
    and for verdicts on a passage that the sample does not have.
    """
    judged = {
        name: join_verdicts(samples, claims[of], verdicts[name], of=of, against=against)
        for name, (of, against) in DIRECTIONS.items()
        if name in verdicts
    }
    counts = [
        count_by_sample(one, samples.height, of=DIRECTIONS[name][0]).select(
            pl.all().name.prefix(f"{name}_")
        )
        for name, one in judged.items()
    ]
    return pl.concat([*counts, _counts_of_several(samples, judged)], how="horizontal")


def _counts_of_several(samples: pl.DataFrame, judged: Mapping[str, JudgedClaims]) -> pl.DataFrame:
    """The counts of `count_passages` that need the verdicts of more than one direction."""
    passages = samples["retrieved_contexts"].list.len().cast(pl.Int64).fill_null(0)
    found = _entailing(judged["reference_in_passages"], passages)
    response = _response_claims(judged, found["place"], passages)
    wrong, backed, in_relevant = ~pl.col("right"), pl.col("backed"), pl.col("in_relevant")
    conditions = {
        "wrong": wrong,
        "wrong_in_relevant": wrong & in_relevant,
        "wrong_in_irrelevant": wrong & backed & ~in_relevant,
        "wrong_unbacked": wrong & ~backed,
        "wrong_contradicted": wrong & pl.col("contradicted"),
        "right_unbacked": ~wrong & ~backed,
    }
    counted = {name: response.filter(claims)["sample"] for name, claims in conditions.items()}
    counted["relevant"] = found.unique("place")["sample"]
    if "reference_in_response" in judged:
        in_response = judged["reference_in_response"].claims["entailed"]
        claims = judged["reference_in_passages"].claims
        counted["recalled"] = claims.filter(claims["entailed"] & in_response)["sample"]
    counts = {name: tally(places, samples.height) for name, places in counted.items()}
    return pl.DataFrame({"passages": passages, **counts})


def _response_claims(
    judged: Mapping[str, JudgedClaims], relevant: pl.Series, passages: pl.Series
) -> pl.DataFrame:
    """`sample`, `right`, `backed`, `contradicted` and `in_relevant` of every response claim.

    `relevant` are the places of passages that entail a claim of the reference.
    """
    claims = judged["response_in_passages"].claims
    entailing = _entailing(judged["response_in_passages"], passages)
    is_relevant = tally(relevant, int(passages.sum())) > 0
    in_relevant = entailing["claim"].filter(is_relevant.gather(entailing["place"]))
    return claims.select(
        "sample",
        "contradicted",
        "made",
        backed="entailed",
        right=judged["response_in_reference"].claims["entailed"],
        in_relevant=tally(in_relevant, claims.height) > 0,
    ).filter("made")


def _entailing(judged: JudgedClaims, passages: pl.Series) -> pl.DataFrame:
    """`claim`, `sample` and `place` of every verdict that a passage entails a claim.

    `passages` is the number of passages of each sample; `place` numbers those of all samples.
    """
    sample = judged.claims["sample"].gather(judged.verdicts["claim"])
    check_passages(judged.verdicts["passage"], passages.gather(sample))
    before = (passages.cum_sum() - passages).gather(sample)
    place = judged.verdicts["passage"] + before
    return (
        judged.verdicts.select("claim", "entailed")
        .with_columns(sample, place.alias("place"))
        .filter("entailed")
    )


class RagChecker(ScoreStage):
    """The eleven claim metrics of RAGChecker (Ru et al. 2024), each in [0, 1].

    Overall `precision`, `recall` and their `f1`: response claims that the reference entails,
    and the reverse. Of the retriever `claim_recall`, reference claims that a passage entails, and
    `context_precision`, passages that entail a reference claim, which are the relevant ones.
    Of the generator `context_utilization`, found reference claims that the response states;
    and as shares of the response's claims `faithfulness`, backed by a passage,
    `self_knowledge`, right and not backed, `hallucination`, wrong and not backed,
    `noise_sensitivity_in_relevant`, wrong and in a relevant passage, and
    `noise_sensitivity_in_irrelevant`, wrong and in other passages alone. A share of nothing is
    undefined; without passages nothing is backed. Blank passages count and entail nothing.
    """

    use = "rag_checker"
    metrics = (*RATIOS, "f1")
    metric_range = (0.0, 1.0)
    version = 2
    lower_is_better = LOWER_IS_BETTER
    cases: ClassVar[tuple[EmptyCase, ...]] = ("response", "refusal", "reference", "contexts")
    columns: ClassVar = {"samples": ("sample_id", "response", "reference", "retrieved_contexts")}
    expects: ClassVar = {
        "response_claims": {"of": "response"},
        "reference_claims": {"of": "reference"},
        "response_in_reference": {"claims": "response_claims", "against": "reference"},
        "reference_in_response": {"claims": "reference_claims", "against": "response"},
        "response_in_passages": {
            "claims": "response_claims",
            "against": "retrieved_contexts",
            "premises": "each",
        },
        "reference_in_passages": {
            "claims": "reference_claims",
            "against": "retrieved_contexts",
            "premises": "each",
        },
    }

    compat: PassageCompat | None = None

    def run(
        self,
        samples: Samples,
        response_claims: Claims,
        reference_claims: Claims,
        response_in_reference: Verdicts,
        reference_in_response: Verdicts,
        response_in_passages: Verdicts,
        reference_in_passages: Verdicts,
    ) -> Scores:
        """Eleven scores per sample."""
        counts = count_passages(
            samples,
            {"response": response_claims, "reference": reference_claims},
            {
                "response_in_reference": response_in_reference,
                "reference_in_response": reference_in_response,
                "response_in_passages": response_in_passages,
                "reference_in_passages": reference_in_passages,
            },
        )
        some = {ratio.cases for ratio in RATIOS.values()}
        frames = {
            cases: pl.concat([empty_cases, counts], how="horizontal")
            for cases, empty_cases in self.empty_cases_among(samples, some).items()
        }
        tables = [
            _ratio_scores(frames[ratio.cases], metric, ratio, self.compat)
            for metric, ratio in RATIOS.items()
        ]
        return pl.concat([*tables, _f1_scores(frames[BOTH_SIDES], self.compat)])


class NoiseSensitivity(ScoreStage):
    """Share of the response's claims that are wrong and stand in the passages, in [0, 1].

    Noise sensitivity of ragas, by the formulas of RAGChecker: wrong is what the reference does
    not entail, and `mode` says in which passages: in a relevant one, which entails any claim of
    the reference, or in irrelevant ones alone. Lower is better.
    """

    use = "noise_sensitivity"
    metrics = ("noise_sensitivity",)
    metric_range = (0.0, 1.0)
    version = 2
    lower_is_better = frozenset(metrics)
    cases: ClassVar[tuple[EmptyCase, ...]] = RagChecker.cases
    columns: ClassVar = RagChecker.columns
    expects: ClassVar = {
        name: wanted
        for name, wanted in RagChecker.expects.items()
        if name != "reference_in_response"
    }

    mode: Literal["relevant", "irrelevant"] = "relevant"

    def run(
        self,
        samples: Samples,
        response_claims: Claims,
        reference_claims: Claims,
        response_in_reference: Verdicts,
        response_in_passages: Verdicts,
        reference_in_passages: Verdicts,
    ) -> Scores:
        """One score per sample."""
        counts = count_passages(
            samples,
            {"response": response_claims, "reference": reference_claims},
            {
                "response_in_reference": response_in_reference,
                "response_in_passages": response_in_passages,
                "reference_in_passages": reference_in_passages,
            },
        )
        frame = pl.concat([self.empty_cases(samples), counts], how="horizontal")
        return _ratio_scores(frame, self.use, RATIOS[f"noise_sensitivity_in_{self.mode}"], None)


def _ratio_scores(
    frame: pl.DataFrame, metric: str, ratio: Ratio, compat: PassageCompat | None
) -> pl.DataFrame:
    failure = pl.coalesce(f"{name}_failure" for name in ratio.directions)
    return finalize_scores(
        frame.with_columns(failure=failure),
        metric=metric,
        value=ratio.value(),
        undefined=ratio.undefined(),
        details={
            # Counts of the verdicts that did arrive would mislead.
            name: pl.when(pl.col("failure").is_null()).then(column)
            for name, column in ratio.shown.items()
        },
        part=pl.col(ratio.part),
        whole=pl.col(ratio.whole),
        compat=compat_score(compat, metric, ratio.value()) if compat else None,
    )


def _f1_scores(frame: pl.DataFrame, compat: PassageCompat | None) -> pl.DataFrame:
    parts = {name: RATIOS[name] for name in ("precision", "recall")}
    directions = [name for ratio in parts.values() for name in ratio.directions]
    return finalize_scores(
        frame.with_columns(failure=pl.coalesce(f"{name}_failure" for name in directions)),
        metric="f1",
        value=F1,
        undefined=pl.lit("no claims in the response or the reference"),
        details={name: ratio.value() for name, ratio in parts.items()},
        compat=compat_score(compat, "f1", F1) if compat else None,
    )
