"""Scores of whole answers, by pipelines without a large language model, against human scores.

Run as `python -m tests.benchmarks.answers`. Takes a few CPU minutes. Rank correlations are
Spearman's, in per cent, with the central 95 % of 2,000 bootstrap samples: over pairs, and for
MT-RAG over conversations, since the turns of one conversation are similar.

- RAGChecker pairs: the difference of two responses' scores against human preference.
  Published: RAGChecker with a large model 60.9, ragas answer similarity 57.2.
- MT-RAG: faithfulness to the passages. Published: ragas faithfulness 63.5.
- NQ-301: short answers, correct or not, in accuracy; the threshold of a metric is the one
  that is best on the other four fifths of the questions. Published: GPT-4 84.8, string
  containment 75.0.
"""

import gzip
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from claimflow.flows.cli.main import main as claimflow

Row = dict[str, Any]
Numbers = NDArray[np.float64]

FOLDER = Path(__file__).parents[1] / "data" / "answers"
BOOTSTRAPS, FOLDS = 2_000, 5

CORRECTNESS = """
name: answers
samples: {path: samples.jsonl}
store: answers.duckdb
steps:
  response_claims: {use: decompose_claims, of: response}
  reference_claims: {use: decompose_claims, of: reference}
  response_in_reference: {use: verify_claims, claims: response_claims, against: reference}
  reference_in_response: {use: verify_claims, claims: reference_claims, against: response}
  similarity: {use: embedding_similarity, left: response, right: reference}
  reference_matches: {use: lexical_match, against: reference, unit: text}
  factual_correctness: {use: factual_correctness}
  answer_correctness: {use: answer_correctness}
  factual_by_reference: {use: factual_correctness, recall_of: reference}
  answer_by_reference: {use: answer_correctness, recall_of: reference}
  answer_recall: {use: factual_correctness, mode: recall, recall_of: reference}
  semantic_similarity: {use: semantic_similarity}
  deterministic_correctness: {use: deterministic_correctness}
"""

FAITHFULNESS = """
name: answers
samples: {path: samples.jsonl}
store: answers.duckdb
steps:
  response_claims: {use: decompose_claims, of: response}
  response_in_contexts: {use: verify_claims, claims: response_claims, against: retrieved_contexts}
  context_matches: {use: lexical_match, against: retrieved_contexts}
  faithfulness: {use: faithfulness}
  deterministic_faithfulness: {use: deterministic_faithfulness}
"""

FIELDS = ("user_input", "response", "reference", "retrieved_contexts")


def rows_of(name: str) -> list[Row]:
    """The rows of one data set."""
    with gzip.open(FOLDER / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return list(map(json.loads, lines))


def scored(pipeline: str, samples: Sequence[Row]) -> dict[str, Numbers]:
    """Metric -> scores of `samples`, in their order; NaN where there is no score."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder), redirect_stdout(StringIO()):
        lines = [
            json.dumps({"id": str(n), **{f: row[f] for f in FIELDS if f in row}})
            for n, row in enumerate(samples)
        ]
        Path("samples.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        Path("answers.yaml").write_text(pipeline, encoding="utf-8")
        claimflow(["run", "answers.yaml"])
        with duckdb.connect("answers.duckdb", read_only=True) as store:
            found = store.execute(
                "SELECT sample_id, if(min(metric) OVER of = max(metric) OVER of, step, metric), "
                "score FROM scores WINDOW of AS (PARTITION BY step)"
            ).fetchall()
    scores: dict[str, Numbers] = {}
    for sample_id, name, score in found:
        numbers = scores.setdefault(name, np.full(len(samples), np.nan))
        numbers[int(sample_id)] = np.nan if score is None else score
    return scores


def correlation(scores: Numbers, human: Numbers, groups: Sequence[str]) -> str:
    """Spearman's correlation and its interval, over the rows that have a score."""
    members: dict[str, list[int]] = {}
    for row, group in enumerate(groups):
        if np.isfinite(scores[row]):
            members.setdefault(group, []).append(row)
    rows = [np.array(one) for one in members.values()]
    whole = np.concatenate(rows)
    random = np.random.default_rng(0)
    drawn = []
    for _ in range(BOOTSTRAPS):
        some = np.concatenate([rows[n] for n in random.integers(0, len(rows), len(rows))])
        if np.ptp(scores[some]) and np.ptp(human[some]):
            drawn.append(spearmanr(scores[some], human[some]).statistic)
    low, high = np.percentile(drawn, [2.5, 97.5])
    found = 100 * spearmanr(scores[whole], human[whole]).statistic
    return f"{found:6.1f}  ({100 * low:.1f} to {100 * high:.1f}), {len(whole)} of {len(human)}"


def accuracy(scores: Numbers, human: Numbers, questions: Sequence[str]) -> str:
    """Share of answers classified correctly, each by the threshold of the other folds."""
    scores = np.nan_to_num(scores, nan=0.0)
    number = {question: place for place, question in enumerate(dict.fromkeys(questions))}
    fold = np.array([number[question] % FOLDS for question in questions])
    right = 0
    for one in range(FOLDS):
        other = fold != one
        steps = np.unique(scores[other])
        best = max(steps, key=lambda s: float(((scores[other] >= s) == human[other]).mean()))
        right += int(((scores[~other] >= best) == human[~other]).sum())
    return f"{100 * right / len(human):6.1f}  of {len(human)}"


def show(title: str, scores: Mapping[str, Numbers], figure: Callable[[Numbers], str]) -> None:
    """A line per metric."""
    print(f"\n{title}")
    for name in sorted(scores):
        if np.nanstd(scores[name]):
            print(f"  {name:44}{figure(scores[name])}")


def main() -> None:
    """All three data sets."""
    pairs = rows_of("ragchecker_pairs")
    sides = [pairs, [{**row, "response": row["response_b"]} for row in pairs]]
    first, second = (scored(CORRECTNESS, side) for side in sides)
    differences = {name: second[name] - first[name] for name in first}
    for wanted in ("correctness", "completeness", "overall"):
        human = np.array([row["human_scores"][wanted] for row in pairs])
        groups = [row["id"] for row in pairs]
        show(
            f"RAGChecker pairs, {wanted}: Spearman",
            differences,
            partial(correlation, human=human, groups=groups),
        )
    turns = rows_of("mtrag_human")
    human = np.array([row["human_scores"]["faithfulness"] for row in turns])
    conversations = [row["id"].partition("<::>")[0] for row in turns]
    show(
        "MT-RAG, faithfulness: Spearman",
        scored(FAITHFULNESS, turns),
        lambda scores: correlation(scores, human, conversations),
    )
    answers = rows_of("openqa_nq301")
    correct = np.array([row["human_score"] >= 0.5 for row in answers])
    questions = [row["user_input"] for row in answers]
    show(
        "NQ-301: accuracy",
        scored(CORRECTNESS, answers),
        lambda scores: accuracy(scores, correct, questions),
    )


if __name__ == "__main__":
    main()
