"""Scores against golden values of ragas 0.4.3, wherever it agrees with this project's defaults.

ragas rounds factual correctness to two decimals, after adding 1e-8 to a divisor: there a
difference of half a hundredth is agreement. Everywhere else numbers are compared closely.
"""

import json
import math
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stages.rows import Sample, Score, Similarity
from stages.score import ContextRecall, FactualCorrectness, Faithfulness
from stages.score_answers import AnswerCorrectness, SemanticSimilarity
from stages.summarize import SummarizeScores
from stages.tables import build

GOLDEN = Path(__file__).parents[1] / "golden" / "golden_aggregation.jsonl"
CASES = [json.loads(line) for line in GOLDEN.read_text("utf-8").split("\n") if line]

DIFFERENT = {
    "agg-0006 agg-0012": "precision without response claims is undefined, not 0",
    "agg-0010": "recall without reference claims is undefined, not 0",
    "agg-0137": "an unknown mode is refused, not taken for f1",
    "agg-0141 agg-0142 agg-0213": "claims without a verdict fail the score, they are not left out",
    "agg-0223": "there are never more verdicts than claims",
    "agg-0147 agg-0148 agg-0149 agg-0205 agg-0206": "no claims on either side is undefined, not 1",
    "agg-0221": "an integer beta is as good as a float",
    "agg-0259": "without contexts no claim can be supported",
    "agg-0292 agg-0294": "a vector of zeros has no similarity, it is not 0",
    "agg-0281 agg-0299 agg-0303": "a threshold of 0.0 is a threshold",
    "agg-0305": "an empty text has no similarity, it is not embedded as a blank",
    "agg-0263 agg-0267 agg-0268 agg-0269": "there is one verdict per claim, not several that vote",
}
REASONS = {case: reason for cases, reason in DIFFERENT.items() for case in cases.split()}

YES, NO = "entailed", "neutral"
SETTINGS = ("mode", "beta", "weights", "threshold")
Cases = dict[str, Any]


def labels(verdicts: list[int], claims: int = 0) -> list[Any]:
    """One label per verdict, and claims without a verdict up to the number of claims."""
    missing: list[Any] = [[]] * (claims - len(verdicts))
    return [YES if verdict else NO for verdict in verdicts] + missing


def samples(cases: Cases) -> pl.DataFrame:
    texts = {"response": "a response", "reference": "a reference", "retrieved_contexts": ["c"]}
    own = {name: {f: case[f] for f in texts if f in case} for name, case in cases.items()}
    return build(Sample, [{"sample_id": name, **texts, **fields} for name, fields in own.items()])


def both_sides(judge: Any, response: Any, reference: Any) -> list[pl.DataFrame]:
    response_claims, in_reference = judge("response", "reference", response)
    reference_claims, in_response = judge("reference", "response", reference)
    return [response_claims, reference_claims, in_reference, in_response]


def similarities(cases: Cases) -> pl.DataFrame:
    rows = []
    for name, case in cases.items():
        a, b = case["vectors"]
        norms = math.hypot(*a) * math.hypot(*b)
        dot = math.fsum(x * y for x, y in zip(a, b, strict=True))
        cosine = dot / norms if norms and case.get("response") != "" else None
        status = "undefined" if cosine is None else "measured"
        sides = {"sample_id": name, "left": "response", "right": "reference"}
        rows.append({**sides, "cosine": cosine, "status": status})
    return build(Similarity, rows)


def factual_correctness(cases: Cases, judge: Any, **settings: Any) -> pl.DataFrame:
    response = {
        name: labels(case["response_verdicts"], case.get("response_claims", 0))
        for name, case in cases.items()
    }
    reference = {name: labels(case["reference_verdicts"]) for name, case in cases.items()}
    stage = FactualCorrectness(**settings)
    return stage.run(samples(cases), *both_sides(judge, response, reference))


def answer_correctness(cases: Cases, judge: Any, **settings: Any) -> pl.DataFrame:
    response = {
        name: labels([1] * case["tp"] + [0] * case["fp"], case["n_response"])
        for name, case in cases.items()
    }
    reference = {
        name: labels([0] * case["fn"] + [1] * (case["n_reference"] - case["fn"]))
        for name, case in cases.items()
    }
    stage = AnswerCorrectness(**settings)
    sides = both_sides(judge, response, reference)
    return stage.run(samples(cases), *sides, similarities(cases))


def in_contexts(of: str, stage: Any, cases: Cases, judge: Any) -> pl.DataFrame:
    judged = {}
    for name, case in cases.items():
        verdicts = case["verdicts"] if of == "response" else case["votes"][0]
        # Without contexts the verifier has nothing to judge by.
        known = verdicts if case["retrieved_contexts"] else []
        judged[name] = labels(known, len(verdicts))
    scores: pl.DataFrame = stage.run(samples(cases), *judge(of, "retrieved_contexts", judged))
    return scores


def dataset_mean(cases: Cases, _judge: Any) -> pl.DataFrame:
    ((name, case),) = cases.items()
    rows = [
        {"sample_id": str(n), "score": score, "status": "undefined" if score is None else "scored"}
        for n, score in enumerate(case["column"])
    ]
    ids = build(Sample, [{"sample_id": row["sample_id"]} for row in rows])
    scores = build(Score, [{**row, "metric": "m"} for row in rows])
    means = SummarizeScores().run(ids, {"m": scores})
    return means.select(sample_id=pl.lit(name), score="mean", status=pl.lit("scored"))


METRICS: dict[str, Any] = {
    "factual_correctness": factual_correctness,
    "answer_correctness": answer_correctness,
    "semantic_similarity": lambda cases, judge, **settings: SemanticSimilarity(**settings).run(
        samples(cases), similarities(cases)
    ),
    "faithfulness": partial(in_contexts, "response", Faithfulness()),
    "context_recall": partial(in_contexts, "reference", ContextRecall()),
    "dataset_mean": dataset_mean,
}


def outcomes(cases: Cases, judge: Any) -> dict[str, tuple[float | None, str]]:
    """Score and status of cases with the same metric and settings."""
    first = next(iter(cases.values()))
    settings = {name: first[name] for name in SETTINGS if name in first}
    try:
        scores = METRICS[first["metric"]](cases, judge, **settings)
    except ValueError:
        return dict.fromkeys(cases, (None, "refused"))
    rows = scores.select("sample_id", "score", "status").rows()
    return {name: (score, status) for name, score, status in rows}


def agrees(case: Any, score: float | None, status: str) -> bool:
    """Whether a score is that of ragas, of either of its two interfaces."""
    slack = 0.005 if case["metric"] == "factual_correctness" else 0.0
    return any(
        outcome["status"] == {"scored": "ok", "undefined": "nan", "refused": "error"}.get(status)
        and (score is None or math.isclose(score, outcome["score"], abs_tol=slack + 1e-12))
        for outcome in case["expected"].values()
    )


@pytest.fixture(name="agreement", scope="module")
def _agreement(judge: Any) -> dict[str, bool]:
    groups: dict[str, Cases] = {}
    for case in CASES:
        invented = case.get("tp", 0) + case.get("fp", 0) > case.get("n_response", math.inf)
        if case["metric"] in METRICS and not invented:
            same = [case["metric"], *(case.get(name) for name in SETTINGS), case.get("column")]
            groups.setdefault(json.dumps(same), {})[case["id"]] = case
    found = {name: o for cases in groups.values() for name, o in outcomes(cases, judge).items()}
    return {case["id"]: agrees(case, *found.get(case["id"], (None, "none"))) for case in CASES}


def test_scores_agree_but_for_the_cases_that_ragas_decides_otherwise(
    agreement: dict[str, bool],
) -> None:
    assert {case for case, same in agreement.items() if not same} == set(REASONS)


def test_how_many_cases_agree(agreement: dict[str, bool]) -> None:
    metrics = {case["id"]: case["metric"] for case in CASES}
    assert Counter(metrics[case] for case, same in agreement.items() if same) == {
        "factual_correctness": 67,
        "answer_correctness": 32,
        "semantic_similarity": 12,
        "faithfulness": 10,
        "context_recall": 8,
        "dataset_mean": 2,
    }
