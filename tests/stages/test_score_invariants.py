"""What holds for the scores of any samples, claims, verdicts and settings."""

import itertools
import json
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from claimflow.stages.rows import ClaimCompat, Sample, SentenceMatch, Similarity
from claimflow.stages.scores.answer_metrics import AnswerCorrectness, SemanticSimilarity
from claimflow.stages.scores.claim_metrics import ContextRecall, FactualCorrectness, Faithfulness
from claimflow.stages.scores.empty_cases import EmptyPolicy
from claimflow.stages.scores.lexical_metrics import (
    MEASURES,
    DeterministicCorrectness,
    DeterministicFaithfulness,
)
from claimflow.stages.tables import build

few = settings(
    # Each is of many samples, which one run of a stage scores.
    max_examples=4,
    # To shrink a failing example would run every stage for minutes.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

label = st.sampled_from(["entailed", "neutral", "contradicted"])
judged = st.lists(label, max_size=4)
perhaps_judged: st.SearchStrategy[list[Any]] = st.lists(
    label | st.just([]) | st.tuples(label, label), max_size=4
)
text = st.sampled_from([None, "", " ", "I don't know.", "Paris is a city.", "\x00\ud7ff🗼"])
contexts = st.none() | st.lists(st.sampled_from(["", "a passage"]), max_size=2)
value = st.sampled_from(["formula", "undefined", 0, 1])
share = st.floats(0, 1)
cosine = st.none() | st.floats(-1, 1)
policies = st.fixed_dictionaries(dict.fromkeys(("response", "refusal", "reference"), value))
case = st.fixed_dictionaries(
    {
        "fields": st.fixed_dictionaries(
            {"response": text, "reference": text, "retrieved_contexts": contexts}
        ),
        "labels": st.tuples(perhaps_judged, perhaps_judged, perhaps_judged, perhaps_judged),
        "cosine": cosine,
        "sentences": st.lists(st.tuples(*[share] * len(MEASURES)), max_size=3),
    }
)
several = st.lists(case, min_size=8, max_size=16)
DIRECTIONS = [
    ("response", "reference"),
    ("reference", "response"),
    ("response", "retrieved_contexts"),
    ("reference", "retrieved_contexts"),
]


def similarities(cases: dict[str, Any]) -> pl.DataFrame:
    rows = [
        {
            "sample_id": name,
            "left": "response",
            "right": "reference",
            "cosine": case["cosine"],
            "status": "undefined" if case["cosine"] is None else "measured",
        }
        for name, case in cases.items()
    ]
    return build(Similarity, rows)


def matches(cases: dict[str, Any], against: str) -> pl.DataFrame:
    place = "position" if against == "retrieved_contexts" else "source"
    span = {"against": against, "sentence": "x", "start": 0, "end": 1}
    rows = [
        {"sample_id": name, **span, place: n, **dict(zip(MEASURES, values, strict=True))}
        for name, case in cases.items()
        for n, values in enumerate(case["sentences"])
    ]
    return build(SentenceMatch, rows)


def all_scores(cases: dict[str, Any], judge: Any, policy: Any, order: Any = None) -> pl.DataFrame:
    """Scores of every stage; `order` reorders the rows of every table."""
    reorder = order or (lambda table: table)
    samples = reorder(build(Sample, [{"sample_id": n, **c["fields"]} for n, c in cases.items()]))
    sides = [
        judge(of, against, {name: case["labels"][n] for name, case in cases.items()})
        for n, (of, against) in enumerate(DIRECTIONS)
    ]
    claims = {
        of: reorder(pl.concat([sides[n][0], sides[n + 2][0]]).unique("claim_id"))
        for n, of in enumerate(("response", "reference"))
    }
    in_reference, in_response, response_in, reference_in = (reorder(v) for _, v in sides)
    both = (claims["response"], claims["reference"], in_reference, in_response)
    similarity = reorder(similarities(cases))
    tables = [
        FactualCorrectness(empty=policy, recall_of="reference", beta=0).run(samples, *both),
        DeterministicFaithfulness().run(samples, reorder(matches(cases, "retrieved_contexts"))),
        DeterministicCorrectness(empty=policy).run(samples, reorder(matches(cases, "reference"))),
    ]
    compats: tuple[ClaimCompat | None, ...] = (None, "ragas-0.4", "ragas-0.4-legacy")
    for compat in compats:
        empty = EmptyPolicy() if compat else policy
        tables += [
            FactualCorrectness(compat=compat, empty=empty).run(samples, *both),
            AnswerCorrectness(compat=compat, empty=empty, weights=(0.1, 3)).run(
                samples, *both, similarity
            ),
            SemanticSimilarity(compat=compat, empty=empty).run(samples, similarity),
            Faithfulness(compat=compat).run(samples, claims["response"], response_in),
            ContextRecall(compat=compat).run(samples, claims["reference"], reference_in),
        ]
    return pl.concat(t.with_columns(step=pl.lit(n)) for n, t in enumerate(tables))


METRICS = 1 + 3 + len(MEASURES) + 3 * 5


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} in details")


@few
@given(cases=several, policies=policies)
@example(cases=[], policies={})
def test_every_sample_has_every_score_in_range_with_a_reason(
    judge: Any, cases: list[Any], policies: Any
) -> None:
    named = {str(n): case for n, case in enumerate(cases)}
    scores = all_scores(named, judge, EmptyPolicy(**policies))
    assert scores.height == METRICS * len(cases)
    assert scores.select("sample_id", "metric", "step").is_unique().all()
    for row in scores.iter_rows(named=True):
        assert (row["score"] is None) == (row["status"] != "scored")
        assert row["status"] == "scored" or row["reason"]
        low = -1.0 if row["metric"] in ("answer_correctness", "semantic_similarity") else 0.0
        assert row["score"] is None or low <= row["score"] <= 1.0
        assert row["whole"] is None or row["score"] == pytest.approx(row["part"] / row["whole"])
        details = json.loads(row["details"], parse_constant=no_constant)
        assert list(details) == sorted(details)


@few
@given(cases=several, seed=st.integers(0, 9))
@example(cases=[], seed=0)
def test_the_order_of_rows_does_not_matter(judge: Any, cases: list[Any], seed: int) -> None:
    named = {str(n): case for n, case in enumerate(cases)}

    def shuffled(table: pl.DataFrame) -> pl.DataFrame:
        return table.sample(fraction=1, shuffle=True, seed=seed)

    by = ["step", "metric", "sample_id"]
    scores = [all_scores(named, judge, EmptyPolicy(), order).sort(by) for order in (None, shuffled)]
    assert scores[0].equals(scores[1])


def factual(judge: Any, response: Any, reference: Any, **settings: Any) -> list[Any]:
    """Scores of samples with these labels of response and reference claims."""
    texts = {"response": "a", "reference": "b"}
    samples = build(Sample, [{"sample_id": str(n), **texts} for n in range(len(response))])
    left, in_right = judge("response", "reference", {str(n): v for n, v in enumerate(response)})
    right, in_left = judge("reference", "response", {str(n): v for n, v in enumerate(reference)})
    stage = FactualCorrectness(**settings)
    return stage.run(samples, left, right, in_right, in_left)["score"].to_list()


@few
@given(sides=st.lists(st.tuples(judged, judged), min_size=20, max_size=40))
def test_swapping_the_sides_swaps_precision_and_recall(judge: Any, sides: Any) -> None:
    ours, theirs = ([pair[n] for pair in sides] for n in (0, 1))
    by = {"recall_of": "reference"}
    precision = factual(judge, ours, theirs, mode="precision", **by)
    assert precision == factual(judge, theirs, ours, mode="recall", **by)
    assert factual(judge, ours, theirs, **by) == factual(judge, theirs, ours, **by)


def test_f1_is_the_closed_form_up_to_rounding(judge: Any) -> None:
    triples = [t for t in itertools.product(range(5), repeat=3) if any(t)]
    response = [["entailed"] * tp + ["neutral"] * fp for tp, fp, _ in triples]
    scores = factual(judge, response, [["neutral"] * fn for *_, fn in triples])
    assert scores == pytest.approx([tp / (tp + 0.5 * (fp + fn)) for tp, fp, fn in triples])


@few
@given(sides=st.lists(st.tuples(judged, judged), min_size=20, max_size=40))
def test_ragas_differs_by_rounding_where_both_sides_have_claims(judge: Any, sides: Any) -> None:
    response, reference = ([pair[n] or ["neutral"] for pair in sides] for n in (0, 1))
    for mode in ("precision", "recall", "f1"):
        ours = factual(judge, response, reference, mode=mode)
        theirs = factual(judge, response, reference, mode=mode, compat="ragas-0.4")
        # R of 0 of 0 is 0 with us; they divide by the 1e-8 that they add.
        assert theirs == pytest.approx(ours, abs=0.005 + 1e-8)
        assert theirs == [round(score, 2) for score in theirs]


@few
@given(cases=st.lists(st.lists(label, min_size=1, max_size=6), min_size=8, max_size=16))
def test_a_share_of_claims_is_the_same_in_ragas(judge: Any, cases: Any) -> None:
    samples = build(
        Sample,
        [
            {"sample_id": str(n), "user_input": "q", "response": "r", "retrieved_contexts": ["c"]}
            for n in range(len(cases))
        ],
    )
    tables = judge("response", "retrieved_contexts", {str(n): v for n, v in enumerate(cases)})
    ours, collections, legacy = (
        Faithfulness(compat=compat).run(samples, *tables)["score"].to_list()
        for compat in (None, "ragas-0.4", "ragas-0.4-legacy")
    )
    assert ours == collections == legacy


def test_claims_that_all_agree_score_1(judge: Any) -> None:
    every = [["entailed"] * n for n in range(1, 5)]
    for chosen in ({}, {"mode": "precision"}, {"mode": "recall"}, {"compat": "ragas-0.4"}):
        assert factual(judge, every, every, **chosen) == [1.0] * 4


def test_a_constant_in_details_would_be_seen() -> None:
    with pytest.raises(AssertionError, match="NaN in details"):
        json.loads('{"a": NaN}', parse_constant=no_constant)
