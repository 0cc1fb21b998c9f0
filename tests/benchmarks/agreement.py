"""Agreement and calibration of the embedded judge with human labels, on public data.

    python -m tests.benchmarks.agreement [ROWS]

First the pairs of tests/data/verification (all, or at most ROWS of each data set): agreement of
the judge with people, and calibration of its probabilities. Then the answers of
tests/data/answers: rank correlation of the metrics with human scores. Each figure has its 95 %
interval. The judge's weights were fitted on these pairs; verification.py has figures with each
data set left out. Takes about ten CPU minutes.
"""

import argparse
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

import numpy as np

from claimflow.flows.cli.main import main as claimflow
from claimflow.flows.quality.agreement import agreement, rank_correlations
from claimflow.flows.quality.corrected_rates import reliability_diagram
from claimflow.flows.report.run_text import format_estimate
from claimflow.flows.store.arrow import read_table
from claimflow.flows.store.store import Store
from tests.benchmarks.answers import SETS, rows_of, score_set
from tests.benchmarks.labelled_pairs import LabelledPair, read_labelled

PIPELINE = """
name: agreement
samples: {path: samples.jsonl}
store: s.duckdb
steps:
  response_claims: {use: supplied_claims, of: response}
  response_in_reference: {use: verify_claims, claims: response_claims, against: reference}
"""

LABELS = ("entailed", "not entailed")
MEASURES = ("accuracy", "balanced accuracy", "kappa", "alpha")

Row = TypeVar("Row")


class Judged(NamedTuple):
    """A labelled pair, the judge's verdict and its probability of entailed."""

    row: LabelledPair
    entailed: bool
    probability: float


def main(most: int | None) -> None:
    """Print a line for each data set, a table of probabilities, and a line for each metric."""
    by_family: dict[str, list[LabelledPair]] = {}
    for row in read_labelled():
        by_family.setdefault(row.family, []).append(row)
    print(f"{'pairs':22}{'n':>6}{'entailed':>10}" + "".join(f"{name:>24}" for name in MEASURES))
    all_judged: list[Judged] = []
    for family, rows in by_family.items():
        judgements = judged(thinned(rows, most))
        print_agreement(family, judgements)
        all_judged += judgements
    print_agreement("all", all_judged)
    print_reliability(all_judged)
    print(f"\n{'answers':32}{'metric':68}{'n':>5}{'Spearman':>24}{'Kendall':>24}")
    print_answers(most)


def print_agreement(family: str, judgements: Sequence[Judged]) -> None:
    people = [LABELS[not one.row.entailed] for one in judgements]
    found = agreement(people, [LABELS[not one.entailed] for one in judgements], LABELS)
    figures = (found.accuracy, found.balanced_accuracy, found.kappa, found.alpha)
    cells = "".join(f"{format_estimate(figure):>24}" for figure in figures)
    print(f"{family:22}{found.n:6}{found.base_rates[0].value or 0:10.3f}{cells}", flush=True)


def print_reliability(judgements: Sequence[Judged]) -> None:
    found = reliability_diagram(
        np.array([one.probability for one in judgements]),
        np.array([one.row.entailed for one in judgements]),
    )
    assert found is not None
    print(f"\n{'p entailed':14}{'n':>6}{'mean':>8}{'entailed by people':>24}")
    for one in found.bins:
        width = f"{one.low:.1f} to {one.high:.1f}"
        print(f"{width:14}{one.n:6}{one.mean:8.3f}{format_estimate(one.entailed):>24}")
    print(f"off by {found.off:.3f} on average, Brier score {found.brier:.3f}, {found.n:,} pairs")


def print_answers(most: int | None) -> None:
    for name, title, target in (
        ("openqa_nq301", "NQ-301, correct or not", 0),
        ("mtrag_human", "MT-RAG, faithfulness", 0),
        ("ragchecker_pairs", "RAGChecker, which is better", 2),
    ):
        rows = thinned(rows_of(name), most)
        judgement = SETS[name].targets[target]
        people = np.array([judgement.human(row) for row in rows])
        for metric, found in sorted(score_set(name, rows)[0][judgement.direction].items()):
            known = np.isfinite(found)
            if known.any() and np.ptp(found[known]):
                one = rank_correlations(people[known].tolist(), found[known].tolist())
                cells = f"{format_estimate(one.spearman):>24}{format_estimate(one.kendall):>24}"
                print(f"{title:32}{metric:68}{one.n:5}{cells}", flush=True)


def judged(rows: Sequence[LabelledPair]) -> list[Judged]:
    """The verdicts of a run on `rows`, without rows that have no verdict."""
    lines = map(json.dumps, samples_of(rows))
    return [
        Judged(rows[int(sample)], verdict == "entailed", probability)
        for sample, verdict, probability in _verdicts(lines)
    ]


def samples_of(rows: Sequence[LabelledPair]) -> Iterator[dict[str, Any]]:
    """A sample of each pair, with its number as the id: the claim is all that is claimed."""
    for number, row in enumerate(rows):
        yield {
            "sample_id": str(number),
            "response": row.pair.claim,
            "response_claims": [row.pair.claim],
            "reference": row.pair.premise,
        }


def _verdicts(lines: Iterable[str]) -> Iterator[tuple[str, str, float]]:
    quiet = StringIO()
    with TemporaryDirectory() as folder, chdir(folder), redirect_stdout(quiet):
        Path("samples.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
        Path("p.yaml").write_text(PIPELINE, "utf-8")
        with redirect_stderr(quiet):
            claimflow(["run", "p.yaml"])
        with Store(Path("s.duckdb")).reading() as connection:
            yield from read_table(
                connection,
                "SELECT sample_id, verdict, p_entailed FROM latest.verdicts "
                "JOIN latest.claims USING (claim_id) WHERE verdict IS NOT NULL "
                "ORDER BY sample_id::INT",
            ).iter_rows()


def thinned(rows: list[Row], most: int | None) -> list[Row]:
    """All of `rows`, or a fixed random selection of at most `most`."""
    return rows if most is None else random.Random(0).sample(rows, min(most, len(rows)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("rows", nargs="?", type=int, help="of each data set, at most")
    main(parser.parse_args().rows)
