"""`rag_checker` with compat against golden values of ragchecker 0.1.9: every case of them.

The tables go through the stage. The public way to a corpus score is the mean of
`summarize_scores`, times 100 and rounded to one decimal, half to even.
"""

import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from claimflow.stages.rows import Sample
from claimflow.stages.scores.retrieval_metrics import NoiseSensitivity, RagChecker
from claimflow.stages.scores.summaries import SummarizeScores
from claimflow.stages.tables import TableError, build

GOLDEN = Path(__file__).parents[1] / "golden" / "golden_ragchecker.jsonl"
CASES = [json.loads(line) for line in GOLDEN.read_text("utf-8").split("\n") if line]
SOUND = {case["id"]: case for case in CASES if case["kind"] not in ("corpus", "malformed")}
MALFORMED = {case["id"]: case for case in CASES if case["kind"] == "malformed"}
CORPORA = [case for case in CASES if case["kind"] == "corpus"]

COMPAT = "ragchecker-0.1"
LABELS = {"Entailment": "entailed", "Neutral": "neutral", "Contradiction": "contradicted"}
DIRECTIONS = {
    "answer2response": ("response", "reference"),
    "response2answer": ("reference", "response"),
    "retrieved2response": ("response", "retrieved_contexts"),
    "retrieved2answer": ("reference", "retrieved_contexts"),
}


def translated(labels: Any) -> Any:
    return LABELS[labels] if isinstance(labels, str) else [translated(label) for label in labels]


def passages_of(case: Any) -> int:
    """As many as the tables have columns; without claims, as the note says."""
    tables = case["retrieved2response"] + case["retrieved2answer"]
    noted = case.get("note", "").removesuffix(" contexts").rpartition(", ")[2]
    return max((len(row) for row in tables), default=int(noted) if noted.isdigit() else 0)


def tables(cases: dict[str, Any], judge: Any) -> list[pl.DataFrame]:
    """The seven tables that the stage reads."""
    texts = {"response": "a response", "reference": "a reference"}
    samples = build(
        Sample,
        [
            {"sample_id": name, **texts, "retrieved_contexts": ["x"] * passages_of(case)}
            for name, case in cases.items()
        ],
    )
    judged = {
        field: judge(of, against, {name: padded(case, field) for name, case in cases.items()})
        for field, (of, against) in DIRECTIONS.items()
    }
    claims = [judged[field][0] for field in ("answer2response", "response2answer")]
    return [samples, *claims, *(verdicts for _, verdicts in judged.values())]


def padded(case: Any, field: str) -> Any:
    """The labels of a field; claims that only another field knows have none."""
    side = {"answer2response": "retrieved2response", "response2answer": "retrieved2answer"}
    other = {**side, **{b: a for a, b in side.items()}}[field]
    return translated(case[field]) + [[]] * (len(case[other]) - len(case[field]))


def scores(cases: dict[str, Any], judge: Any, compat: Any = COMPAT) -> dict[tuple[str, str], Any]:
    """Row by (sample, metric)."""
    rows = RagChecker(compat=compat).run(*tables(cases, judge)).iter_rows(named=True)
    return {(row["sample_id"], row["metric"]): row for row in rows}


def expected(cases: dict[str, Any]) -> dict[tuple[str, str], Any]:
    return {
        (name, metric): outcome.get("score")
        for name, case in cases.items()
        for metric, outcome in case["expected"].items()
    }


def close(score: float | None, golden: float) -> bool:
    return score is not None and math.isclose(score, golden, rel_tol=1e-9, abs_tol=1e-12)


def test_every_metric_of_every_case(judge: Any) -> None:
    found, golden = scores(SOUND, judge), expected(SOUND)
    assert found.keys() == golden.keys()
    assert len(golden) == 11 * 73
    assert not {key for key, row in found.items() if not close(row["score"], golden[key])}


def test_corrected_differs_only_where_the_whole_is_zero(judge: Any) -> None:
    ours, theirs = scores(SOUND, judge, None), scores(SOUND, judge)
    for key, row in theirs.items():
        details = json.loads(row["details"])
        assert (details["corrected"], details["compat"]) == (ours[key]["score"], COMPAT)
        assert (row["part"], row["whole"]) == (None, None)
        without = json.loads(ours[key]["details"])
        assert without == {k: v for k, v in details.items() if k not in ("corrected", "compat")}
    different = {key for key, row in ours.items() if row["score"] != theirs[key]["score"]}
    undefined = {key for key, row in ours.items() if row["status"] == "undefined"}
    assert {theirs[key]["score"] for key in undefined} == {0.0}
    # Without passages ragchecker has neither hallucination nor self-knowledge.
    assert {metric for _, metric in different - undefined} == {"hallucination", "self_knowledge"}


def test_noise_sensitivity_is_the_same(judge: Any) -> None:
    given = tables(SOUND, judge)
    del given[4]
    ours = scores(SOUND, judge, None)
    for mode in ("relevant", "irrelevant"):
        rows = NoiseSensitivity(mode=mode).run(*given).iter_rows(named=True)
        metric = f"noise_sensitivity_in_{mode}"
        named = {row["sample_id"]: {**row, "metric": metric} for row in rows}
        assert named == {name: ours[name, metric] for name in SOUND}


def test_malformed_tables_fail_the_metrics_that_need_them(judge: Any) -> None:
    """Only where the reference reads a table that is not whole, and then it says so or errs."""
    found = scores({name: MALFORMED[name] for name in ("rc-0145", "rc-0147")}, judge)
    golden = expected(MALFORMED)
    needs_response = {
        "noise_sensitivity_in_relevant",
        "noise_sensitivity_in_irrelevant",
        "hallucination",
        "self_knowledge",
        "faithfulness",
    }
    needs_reference = {"recall", "f1", "context_utilization"}
    for lacking, name, reason in (
        (needs_response, "rc-0145", "3 of 3 claims of the response have no verdict"),
        (needs_reference, "rc-0147", "1 of 2 claims of the reference have no verdict"),
    ):
        rows = {metric: row for (sample, metric), row in found.items() if sample == name}
        failed = {metric for metric, row in rows.items() if row["status"] == "failed"}
        assert failed == lacking
        assert {rows[metric]["reason"] for metric in failed} == {reason}
        assert all(close(rows[m]["score"], golden[name, m]) for m in rows.keys() - failed)


def test_tables_that_disagree_on_the_passages(judge: Any) -> None:
    case = {"rc-0149": MALFORMED["rc-0149"]}
    reasons = {row["reason"] for row in scores(case, judge).values() if row["status"] == "failed"}
    assert reasons == {"4 of 4 claims of the reference have no verdict"}
    fewer = tables(case, judge)
    fewer[0] = fewer[0].with_columns(pl.col("retrieved_contexts").list.head(2))
    with pytest.raises(TableError, match="a verdict on passage 2 of a sample with 2 contexts"):
        RagChecker().run(*fewer)


@pytest.mark.parametrize("corpus", CORPORA, ids=lambda corpus: corpus["id"])
def test_means_over_a_corpus(corpus: Any, judge: Any) -> None:
    given = tables({str(n): result for n, result in enumerate(corpus["results"])}, judge)
    rows = RagChecker(compat=COMPAT).make(dict(zip(RagChecker.inputs, given, strict=True)), {})
    summaries = SummarizeScores().run(given[0], {"rag_checker": rows})
    shown = (100 * pl.col("mean")).round(1, mode="half_to_even")
    groups = corpus["expected"].values()
    golden = {metric: mean for group in groups for metric, mean in group.items()}
    assert dict(summaries.select("metric", shown).rows()) == pytest.approx(golden, abs=1e-12)
