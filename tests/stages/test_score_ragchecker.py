"""Scores against golden values of ragchecker 0.1.9, wherever it agrees with our defaults.

Precision, recall, F1, claim recall and faithfulness are computed from the same claims,
with one verdict per passage. ragchecker gives 0 for a share of nothing.
"""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stages.rows import Sample
from stages.score import ContextRecall, FactualCorrectness, Faithfulness
from stages.tables import build

GOLDEN = Path(__file__).parents[1] / "golden" / "golden_ragchecker.jsonl"
CASES = [json.loads(line) for line in GOLDEN.read_text("utf-8").split("\n") if line]
SINGLE = [case for case in CASES if case["kind"] != "corpus"]
CORPORA = [case for case in CASES if case["kind"] == "corpus"]

LABELS = {"Entailment": "entailed", "Neutral": "neutral", "Contradiction": "contradicted"}
METRICS = ("precision", "recall", "f1", "claim_recall", "faithfulness")

# Cases, metrics in which this project's score is another, and why.
DIFFERENT = [
    (
        ["rc-0000", "rc-0002"],
        METRICS,
        "no claims on either side: undefined, not 0",
    ),
    (
        ["rc-0003", "rc-0005", "rc-0008"],
        ("precision", "faithfulness"),
        "no response claims: undefined, not 0",
    ),
    (
        ["rc-0009", "rc-0011", "rc-0018"],
        ("recall", "claim_recall"),
        "no reference claims: undefined, not 0 (so too in one sample of corpus rc-0158)",
    ),
    (["rc-0145"], ("faithfulness",), "claims without verdicts: failed, not unsupported"),
    (["rc-0147"], ("recall", "f1"), "a claim without a verdict: failed, not left out"),
    (["rc-0149"], ("claim_recall",), "a passage without verdicts: failed, not left out"),
]


def translated(labels: Any) -> Any:
    return LABELS[labels] if isinstance(labels, str) else [translated(label) for label in labels]


def scores(cases: dict[str, Any], judge: Any) -> pl.DataFrame:
    """`sample_id`, `metric`, `score` and `status` of all cases and metrics."""
    texts = {"response": "a response", "reference": "a reference"}
    passages = {name: passages_of(case) for name, case in cases.items()}
    samples = build(
        Sample,
        [
            {"sample_id": name, **texts, "retrieved_contexts": ["passage"] * count}
            for name, count in passages.items()
        ],
    )
    read = {
        field: {name: padded(case, field) for name, case in cases.items()}
        for field in (
            "answer2response",
            "response2answer",
            "retrieved2response",
            "retrieved2answer",
        )
    }
    response, in_reference = judge("response", "reference", read["answer2response"])
    reference, in_response = judge("reference", "response", read["response2answer"])
    _, response_in = judge("response", "retrieved_contexts", read["retrieved2response"])
    _, reference_in = judge("reference", "retrieved_contexts", read["retrieved2answer"])
    both = (response, reference, in_reference, in_response)
    tables = {
        "precision": FactualCorrectness(mode="precision").run(samples, *both),
        "recall": FactualCorrectness(mode="recall", recall_of="reference").run(samples, *both),
        "f1": FactualCorrectness(recall_of="reference").run(samples, *both),
        "claim_recall": ContextRecall().run(samples, reference, reference_in),
        "faithfulness": Faithfulness().run(samples, response, response_in),
    }
    return pl.concat(
        table.select("sample_id", "score", "status", metric=pl.lit(metric))
        for metric, table in tables.items()
    )


def passages_of(case: Any) -> int:
    return max(
        (len(row) for row in case["retrieved2response"] + case["retrieved2answer"]), default=0
    )


def padded(case: Any, field: str) -> Any:
    """The labels of a field; claims that only another field knows have none."""
    side = {"answer2response": "retrieved2response", "response2answer": "retrieved2answer"}
    other = {**side, **{b: a for a, b in side.items()}}[field]
    return translated(case[field]) + [[]] * (len(case[other]) - len(case[field]))


def compared(cases: dict[str, Any], judge: Any) -> dict[tuple[str, str], bool]:
    """Whether each (case, metric) agrees."""
    found = scores(cases, judge).select("sample_id", "metric", "score").rows()
    expected = {
        (name, metric): outcome["score"]
        for name, case in cases.items()
        for metric, outcome in case["expected"].items()
        if metric in METRICS
    }
    return {
        (name, metric): score is not None
        and math.isclose(score, expected[name, metric], abs_tol=1e-12)
        for name, metric, score in found
    }


def test_cases_agree_but_for_shares_of_nothing_and_missing_verdicts(judge: Any) -> None:
    same = compared({case["id"]: case for case in SINGLE}, judge)
    assert {key for key, agree in same.items() if not agree} == {
        (case, metric) for cases, metrics, _ in DIFFERENT for case in cases for metric in metrics
    }
    assert Counter(same.values()) == {True: 354, False: 26}


@pytest.mark.parametrize("corpus", CORPORA, ids=lambda corpus: corpus["id"])
def test_means_over_a_corpus(corpus: Any, judge: Any) -> None:
    results = {str(n): result for n, result in enumerate(corpus["results"])}
    means = dict(scores(results, judge).group_by("metric").agg(pl.col("score").mean()).rows())
    groups = corpus["expected"].values()
    expected = {m: mean for group in groups for m, mean in group.items() if m in METRICS}
    different = {"recall", "claim_recall"} if corpus["id"] == "rc-0158" else set()
    for metric in METRICS:
        # The reference shows hundredfold means, rounded to one decimal.
        close = abs(100 * means[metric] - expected[metric]) <= 0.05 + 1e-9
        assert close == (metric not in different), metric
