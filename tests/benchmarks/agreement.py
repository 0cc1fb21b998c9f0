"""What `claimflow calibrate` says of the embedded judge beside people, on public data.

    python -m tests.benchmarks.agreement [ROWS] [FOLDER]

First the pairs of tests/data/verification, at most ROWS of each data set (100): does the judge
call entailed what people do? With FOLDER then the answers in FOLDER/*.jsonl (samples with
`human_score`, at most ROWS of each): do the metrics put them in the order that people do? Each
figure with its 95 % interval. The weights were fitted on many of these pairs: see verification.py
for figures on data that they have not seen.
"""

import json
import random
import sys
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from flows.cli import main as claimflow
from flows.commands.calibrate_tables import figure_words
from flows.engine.calibration.agreement import agreement
from flows.engine.calibration.ranks import ranks
from flows.engine.store import Store, read_table
from tests.benchmarks.entailment_rows import Labelled, read_labelled

METRICS = {
    "evouna_nq": ("factual_correctness", "human_score"),
    "evouna_tq": ("factual_correctness", "human_score"),
    "factscore_bio": ("faithfulness", "human_score"),
    "mtrag_human": ("faithfulness", "faithfulness"),
    "openqa_nq301": ("factual_correctness", "human_score"),
    "qa_feedback": ("faithfulness", "human_score"),
    "ragtruth_qa": ("faithfulness", "human_score"),
    "realsumm": ("factual_correctness", "human_score"),
    "squality_human": ("factual_correctness", "human_score"),
}
"""The metric that is held against a human score, by data set."""

STEPS = {
    "verdicts": """
  response_claims: {use: supplied_claims, of: response}
  response_in_reference: {use: verify_claims, claims: response_claims, against: reference}
""",
    "factual_correctness": """
  response_claims: {use: decompose_claims, of: response}
  reference_claims: {use: decompose_claims, of: reference}
  response_in_reference: {use: verify_claims, claims: response_claims, against: reference}
  reference_in_response: {use: verify_claims, claims: reference_claims, against: response}
  factual_correctness: {use: factual_correctness}
""",
    "faithfulness": """
  response_claims: {use: decompose_claims, of: response}
  response_in_contexts: {use: verify_claims, claims: response_claims, against: retrieved_contexts}
  faithfulness: {use: faithfulness}
""",
}

LABELS = ("entailed", "not entailed")

Row = TypeVar("Row")


def main(most: int, answers: Path | None) -> None:
    """Print a line for each data set."""
    print(f"{'pairs':22}{'n':>5}{'entailed':>10}" + "".join(f"{name:>26}" for name in MEASURES))
    by_family: dict[str, list[Labelled]] = {}
    for row in read_labelled():
        if not row.rule:
            by_family.setdefault(row.family, []).append(row)
    for family, rows in by_family.items():
        print_pairs(family, thinned(rows, most))
    if answers is None:
        return
    print(f"\n{'answers':22}{'n':>5}  {'metric':22}{'Spearman':>26}{'Kendall':>26}")
    for path in sorted(answers.glob("*.jsonl")):
        if path.stem in METRICS:
            answered = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
            print_answers(path.stem, thinned(answered, most))


MEASURES = ("accuracy", "balanced accuracy", "kappa", "alpha")


def print_pairs(family: str, rows: list[Labelled]) -> None:
    samples = [
        {
            "sample_id": str(n),
            "response": row.pair.claim,
            "response_claims": [row.pair.claim],
            "reference": row.pair.premise,
        }
        for n, row in enumerate(rows)
    ]
    query = "SELECT sample_id, verdict FROM latest.verdicts JOIN latest.claims USING (claim_id)"
    said = dict(found(samples, "verdicts", query))
    known = [row for n, row in enumerate(rows) if said.get(str(n))]
    judge = [LABELS[said[str(n)] != "entailed"] for n in range(len(rows)) if said.get(str(n))]
    one = agreement([LABELS[not row.entailed] for row in known], judge, LABELS)
    figures = (one.accuracy, one.balanced_accuracy, one.kappa, one.alpha)
    cells = "".join(f"{figure_words(figure):>26}" for figure in figures)
    print(f"{family:22}{one.n:5}{one.base_rates[0].value or 0:10.3f}{cells}", flush=True)


def print_answers(name: str, rows: list[dict[str, Any]]) -> None:
    metric, human = METRICS[name]
    wanted = ("user_input", "response", "reference", "retrieved_contexts")
    samples = [
        {"sample_id": str(n)} | {key: row[key] for key in wanted if key in row}
        for n, row in enumerate(rows)
    ]
    query = "SELECT sample_id, score FROM latest.scores WHERE status = 'scored'"
    scores = dict(found(samples, metric, query))
    rated = {
        str(n): row["human_scores"][human] if human in row.get("human_scores", {}) else row[human]
        for n, row in enumerate(rows)
    }
    both = sorted(scores)
    one = ranks([rated[key] for key in both], [scores[key] for key in both])
    cells = f"{figure_words(one.spearman):>26}{figure_words(one.kendall):>26}"
    print(f"{name:22}{one.n:5}  {metric:22}{cells}", flush=True)


def found(samples: list[dict[str, Any]], steps: str, query: str) -> Iterator[tuple[Any, ...]]:
    """What a query answers after a run over `samples`."""
    quiet = StringIO()
    with TemporaryDirectory() as folder, chdir(folder), redirect_stdout(quiet):
        lines = (json.dumps(sample) + "\n" for sample in samples)
        Path("samples.jsonl").write_text("".join(lines), "utf-8")
        pipeline = (
            f"name: p\nsamples: {{path: samples.jsonl}}\nstore: s.duckdb\nsteps:{STEPS[steps]}"
        )
        Path("p.yaml").write_text(pipeline, "utf-8")
        with redirect_stderr(quiet):
            claimflow(["run", "p.yaml"])
        with Store(Path("s.duckdb")).reading() as connection:
            yield from read_table(connection, query).iter_rows()


def thinned(rows: list[Row], most: int) -> list[Row]:
    """At most `most` of `rows`, the same ones each time."""
    return random.Random(0).sample(rows, min(most, len(rows)))


if __name__ == "__main__":
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    main(rows, Path(sys.argv[2]) if len(sys.argv) > 2 else None)
