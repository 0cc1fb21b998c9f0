"""Scores with compat against golden values of ragas 0.4.3, of both its APIs: every case.

What claims and verdicts can express goes through the stages; what only a judge that answers
badly gives (lists of other lengths, other integers than 0 and 1) goes to the arithmetic.
`corrected` is compared with ragas too, and every case in which it differs is accounted for.
"""

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pydantic import ValidationError

from claimflow.stages.compat import ragas
from claimflow.stages.rows import ClaimCompat, Sample, Score, Similarity
from claimflow.stages.scores.answer_metrics import AnswerCorrectness, SemanticSimilarity
from claimflow.stages.scores.claim_metrics import ContextRecall, FactualCorrectness, Faithfulness
from claimflow.stages.scores.formulas import weighted_mean
from claimflow.stages.scores.summaries import SummarizeScores
from claimflow.stages.tables import build

GOLDEN = Path(__file__).parents[1] / "golden" / "golden_aggregation.jsonl"
CASES = {case["id"]: case for case in map(json.loads, GOLDEN.read_text("utf-8").split("\n")[:-1])}
APIS: dict[ClaimCompat, str] = {"ragas-0.4": "collections", "ragas-0.4-legacy": "legacy"}

BY_ARITHMETIC = {
    "agg-0137": "an unknown mode, which ragas takes for f1",
    "agg-0141 agg-0142": "fewer verdicts than claims",
    "agg-0213 agg-0223": "lists that do not hold the statements",
    "agg-0257": "other integers than 0 and 1",
    "agg-0263 agg-0267 agg-0268 agg-0269": "several outputs of a judge",
}
REFUSED = {
    "agg-0217": "at least one of the weights must be above 0",
    "agg-0221": "write 1.0: ragas-0.4",
}
CORRECTED = {
    "agg-0006 agg-0012": "precision without response claims is undefined, not 0",
    "agg-0010": "recall without reference claims is undefined, not 0",
    "agg-0147 agg-0148 agg-0149 agg-0205 agg-0206": "no claims on either side is undefined, not 1",
    "agg-0281 agg-0299 agg-0303": "a threshold of 0.0 is a threshold",
    "agg-0292 agg-0294": "a vector of zeros has no similarity, it is not 0",
}
CORRECTED_IN_COLLECTIONS = {
    "agg-0145 agg-0244 agg-0245 agg-0259": "an empty text is no error",
    "agg-0154 agg-0155 agg-0157 agg-0159 agg-0207 agg-0209 agg-0215 agg-0216": (
        "claims on one side alone are worth 0, not 1"
    ),
}
SETTINGS = ("mode", "beta", "weights", "threshold")
Cases = dict[str, Any]
Outcomes = dict[str, dict[str, Any]]


def ids(*tables: dict[str, str]) -> set[str]:
    return {case for table in tables for cases in table for case in cases.split()}


def labels(verdicts: list[int]) -> list[str]:
    return ["entailed" if verdict else "neutral" for verdict in verdicts]


def samples(cases: Cases) -> pl.DataFrame:
    texts = {
        "user_input": "a question",
        "response": "a response",
        "reference": "a reference",
        "retrieved_contexts": ["c"],
    }
    own = {name: {f: case[f] for f in texts if f in case} for name, case in cases.items()}
    return build(Sample, [{"sample_id": name, **texts, **fields} for name, fields in own.items()])


def both_sides(judge: Any, response: Any, reference: Any) -> list[pl.DataFrame]:
    response_claims, in_reference = judge("response", "reference", response)
    reference_claims, in_response = judge("reference", "response", reference)
    return [response_claims, reference_claims, in_reference, in_response]


def cosine(vectors: Any) -> float | None:
    a, b = vectors
    norms = math.hypot(*a) * math.hypot(*b)
    return math.fsum(x * y for x, y in zip(a, b, strict=True)) / norms if norms else None


def similarities(cases: Cases) -> pl.DataFrame:
    found = {name: cosine(case["vectors"]) for name, case in cases.items()}
    rows = [
        {"sample_id": name, "left": "response", "right": "reference", "cosine": value}
        | ({"status": "undefined", "reason": "an embedding is zero"} if value is None else {})
        for name, value in found.items()
    ]
    return build(Similarity, rows)


def factual_correctness(cases: Cases, judge: Any, **settings: Any) -> pl.DataFrame:
    response, reference = (
        {name: labels(case[f"{side}_verdicts"]) for name, case in cases.items()}
        for side in ("response", "reference")
    )
    stage = FactualCorrectness(**settings)
    return stage.run(samples(cases), *both_sides(judge, response, reference))


def answer_correctness(cases: Cases, judge: Any, **settings: Any) -> pl.DataFrame:
    response, reference = {}, {}
    for name, case in cases.items():
        tp, fp, fn = case["tp"], case["fp"], case["fn"]
        assert tp + fp == case["n_response"]
        response[name] = labels([1] * tp + [0] * fp)
        reference[name] = labels([0] * fn + [1] * (case["n_reference"] - fn))
    stage = AnswerCorrectness(**settings)
    tables = [samples(cases), *both_sides(judge, response, reference), similarities(cases)]
    return stage.run(*tables)


def semantic_similarity(cases: Cases, _judge: Any, **settings: Any) -> pl.DataFrame:
    return SemanticSimilarity(**settings).run(samples(cases), similarities(cases))


def in_contexts(of: str, stage: Any, cases: Cases, judge: Any, **settings: Any) -> pl.DataFrame:
    judged = {
        name: labels(case["verdicts"] if of == "response" else case["votes"][0])
        for name, case in cases.items()
    }
    tables = judge(of, "retrieved_contexts", judged)
    scores: pl.DataFrame = stage(**settings).run(samples(cases), *tables)
    return scores


METRICS: dict[str, Any] = {
    "factual_correctness": factual_correctness,
    "answer_correctness": answer_correctness,
    "semantic_similarity": semantic_similarity,
    "faithfulness": partial(in_contexts, "response", Faithfulness),
    "context_recall": partial(in_contexts, "reference", ContextRecall),
}
BY_STAGE = {
    name: case
    for name, case in CASES.items()
    if case["metric"] in METRICS and name not in ids(BY_ARITHMETIC, REFUSED)
}


def settings_of(case: Any) -> dict[str, Any]:
    return {name: case[name] for name in SETTINGS if name in case}


def through_stages(compat: ClaimCompat | None, judge: Any) -> Outcomes:
    """The row of every case that goes through a stage."""
    groups: dict[str, Cases] = {}
    for name, case in BY_STAGE.items():
        groups.setdefault(json.dumps([case["metric"], settings_of(case)]), {})[name] = case
    rows: Outcomes = {}
    for same, cases in groups.items():
        metric, settings = json.loads(same)
        scores = METRICS[metric](cases, judge, compat=compat, **settings)
        rows |= {row["sample_id"]: row for row in scores.to_dicts()}
    return rows


@pytest.fixture(name="ours", scope="module")
def _ours(judge: Any) -> Outcomes:
    return through_stages(None, judge)


@pytest.fixture(name="theirs", scope="module", params=APIS)
def _theirs(request: pytest.FixtureRequest, judge: Any) -> tuple[ClaimCompat, Outcomes]:
    return request.param, through_stages(request.param, judge)


def close(score: Any, golden: float, *, slack: float = 1e-12) -> bool:
    return math.isclose(score, golden, rel_tol=1e-9, abs_tol=slack)


def agrees(row: Any, golden: Any, compat: str) -> bool:
    """Whether the row is what ragas gives; `undefined` says what it does instead."""
    if golden["status"] == "ok":
        scored: bool = row["status"] == "scored"
        return scored and close(row["score"], golden["score"])
    raised = golden.get("type") == "ValueError"
    says = f"{compat} raises ValueError: " if raised else f"{compat} gives NaN: "
    undefined: bool = row["status"] == "undefined"
    return undefined and str(row["reason"]).startswith(says)


def test_every_case_through_the_stages(theirs: tuple[ClaimCompat, Outcomes]) -> None:
    compat, found = theirs
    golden = {name: case["expected"][APIS[compat]] for name, case in BY_STAGE.items()}
    assert len(golden) + len(ids(BY_ARITHMETIC, REFUSED)) + 2 == len(CASES) == 156
    assert found.keys() == golden.keys()
    assert not [name for name, row in found.items() if not agrees(row, golden[name], compat)]


def test_corrected_is_the_score_without_compat(
    theirs: tuple[ClaimCompat, Outcomes], ours: Outcomes
) -> None:
    compat, found = theirs
    different = set()
    for name, row in found.items():
        details = json.loads(row["details"])
        corrected, golden = details["corrected"], BY_STAGE[name]["expected"][APIS[compat]]
        assert (details["compat"], corrected) == (compat, ours[name]["score"])
        assert (row["part"], row["whole"]) == (None, None)
        # ragas rounds factual correctness to two places.
        slack = 0.005 + 1e-9 if row["metric"] == "factual_correctness" else 1e-12
        nothing = corrected is None and golden["status"] == "nan"
        same = corrected is not None and golden["status"] == "ok"
        if not (nothing or (same and close(corrected, golden["score"], slack=slack))):
            different.add(name)
    assert different == ids(CORRECTED, CORRECTED_IN_COLLECTIONS if compat == "ragas-0.4" else {})


@pytest.mark.parametrize("compat", APIS)
def test_settings_that_ragas_refuses_are_refused(compat: ClaimCompat, judge: Any) -> None:
    for name, message in REFUSED.items():
        case = CASES[name]
        assert {case["expected"][api]["type"] for api in APIS.values()} == {"ValueError"}
        with pytest.raises(ValidationError, match=message):
            answer_correctness({name: case}, judge, compat=compat, **settings_of(case))


def value(expression: pl.Expr, **columns: Any) -> Any:
    return (
        pl.DataFrame({name: [given] for name, given in columns.items()}).select(expression).item()
    )


TP, FP, FN = pl.col("tp"), pl.col("fp"), pl.col("fn")


def by_arithmetic(case: Any, compat: ClaimCompat) -> Any:
    if case["metric"] == "factual_correctness":
        supported, missed = case["response_verdicts"], case["reference_verdicts"]
        counts = {"tp": sum(supported), "fp": supported.count(0), "fn": missed.count(0)}
        score = ragas.factual_correctness(TP, FP, FN, mode="f1", beta=case["beta"])
        return value(score, **counts)
    if case["metric"] == "answer_correctness":
        counts = {name: case[name] for name in ("tp", "fp", "fn", "n_response", "n_reference")}
        statements = pl.col("n_response"), pl.col("n_reference")
        factuality = ragas.factuality(
            TP, FP, FN, statements=statements, beta=case["beta"], compat=compat
        )
        mean = weighted_mean(factuality, pl.col("cosine"), tuple(case["weights"]))
        return value(mean, cosine=case["cosine"], **counts)
    votes = ragas.combined_attributions(case["votes"])
    return value(ragas.context_recall(pl.col("v").cast(pl.List(pl.Int64)), compat=compat), v=votes)


@pytest.mark.parametrize(
    ("name", "compat"),
    [
        (name, compat)
        for name in sorted(ids(BY_ARITHMETIC))
        for compat, api in APIS.items()
        if api in CASES[name]["expected"]
    ],
)
def test_arithmetic_that_no_table_reaches(name: str, compat: ClaimCompat) -> None:
    golden = CASES[name]["expected"][APIS[compat]]
    found = by_arithmetic(CASES[name], compat)
    if golden["status"] == "nan":
        assert found is None
    else:
        assert found is not None
        assert close(found, golden["score"])


def test_an_unknown_mode_is_refused() -> None:
    assert CASES["agg-0137"]["mode"] == "F1"
    with pytest.raises(ValidationError, match="Input should be 'f1', 'precision' or 'recall'"):
        FactualCorrectness.model_validate({"mode": "F1"})


@pytest.mark.parametrize(
    "case", [case for case in CASES.values() if case["metric"] == "dataset_mean"]
)
def test_means_over_a_data_set(case: Any) -> None:
    """The mean of `summarize_scores`, which tells the rows that ragas leaves out in silence."""
    rows = [
        {"sample_id": str(n), "score": score, "status": "undefined" if score is None else "scored"}
        for n, score in enumerate(case["column"])
    ]
    samples = build(Sample, [{"sample_id": row["sample_id"]} for row in rows])
    scores = build(Score, [{**row, "metric": "m"} for row in rows])
    (summary,) = SummarizeScores().run(samples, {"m": scores}).to_dicts()
    assert close(summary["mean"], case["expected"]["legacy"]["score"])
    assert summary["n_undefined"] == case["column"].count(None)
