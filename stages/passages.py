"""Passages: which of the retrieved contexts hold the claims of either side."""

from collections.abc import Mapping
from typing import Final

import polars as pl

from claimflow.stages.outcomes import Judged, count_judged, judge_claims
from claimflow.stages.positions import tally
from claimflow.stages.tables import TableError
from claimflow.stages.words import SampleField, Side

DIRECTIONS: Final[Mapping[str, tuple[Side, SampleField]]] = {
    "response_in_reference": ("response", "reference"),
    "reference_in_response": ("reference", "response"),
    "response_in_passages": ("response", "retrieved_contexts"),
    "reference_in_passages": ("reference", "retrieved_contexts"),
}


def count_passages(
    samples: pl.DataFrame, claims: Mapping[Side, pl.DataFrame], verdicts: Mapping[str, pl.DataFrame]
) -> pl.DataFrame:
    """One row per sample, in order: what the verdicts of these `DIRECTIONS` say together.

    The `COUNTS` of each direction, prefixed with its name, and

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
        name: judge_claims(samples, claims[of], verdicts[name], of=of, against=against)
        for name, (of, against) in DIRECTIONS.items()
        if name in verdicts
    }
    counts = [
        count_judged(one, samples.height, of=DIRECTIONS[name][0]).select(
            pl.all().name.prefix(f"{name}_")
        )
        for name, one in judged.items()
    ]
    return pl.concat([*counts, _crossed(samples, judged)], how="horizontal")


def _crossed(samples: pl.DataFrame, judged: Mapping[str, Judged]) -> pl.DataFrame:
    passages = samples["retrieved_contexts"].list.len().cast(pl.Int64).fill_null(0)
    holding = _entailing(judged["reference_in_passages"], passages)
    response = _response_claims(judged, holding["place"], passages)
    wrong, backed, in_relevant = ~pl.col("right"), pl.col("backed"), pl.col("in_relevant")
    counted = {
        "wrong": wrong,
        "wrong_in_relevant": wrong & in_relevant,
        "wrong_in_irrelevant": wrong & backed & ~in_relevant,
        "wrong_unbacked": wrong & ~backed,
        "wrong_contradicted": wrong & pl.col("contradicted"),
        "right_unbacked": ~wrong & ~backed,
    }
    each = {name: response.filter(claims)["sample"] for name, claims in counted.items()}
    each["relevant"] = holding.unique("place")["sample"]
    if "reference_in_response" in judged:
        stated = judged["reference_in_response"].claims["entailed"]
        found = judged["reference_in_passages"].claims
        each["recalled"] = found.filter(found["entailed"] & stated)["sample"]
    tallies = {name: tally(places, samples.height) for name, places in each.items()}
    return pl.DataFrame({"passages": passages, **tallies})


def _response_claims(
    judged: Mapping[str, Judged], relevant: pl.Series, passages: pl.Series
) -> pl.DataFrame:
    """`sample`, `right`, `backed`, `contradicted` and `in_relevant` of every claim."""
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


def _entailing(judged: Judged, passages: pl.Series) -> pl.DataFrame:
    """`claim`, `sample` and `place` of every verdict that a passage entails a claim.

    `place` counts the passages of all samples, of which each has so many `passages`.
    """
    sample = judged.claims["sample"].gather(judged.verdicts["claim"])
    _check(judged.verdicts["passage"], passages.gather(sample))
    before = (passages.cum_sum() - passages).gather(sample)
    place = judged.verdicts["passage"] + before
    return (
        judged.verdicts.select("claim", "entailed")
        .with_columns(sample, place.alias("place"))
        .filter("entailed")
    )


def _check(passage: pl.Series, passages: pl.Series) -> None:
    if passage.null_count():
        raise TableError("expected verdicts by passage (premises: each), found some on all joined")
    beyond = (passage >= passages).arg_true()
    if len(beyond):
        row = beyond[0]
        raise TableError(
            f"found a verdict on passage {passage[row]} of a sample with {passages[row]} contexts"
        )
