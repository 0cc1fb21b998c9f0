"""Growth of a store over nights in which a few samples change.

    python -m tests.benchmarks.growth [--samples 10000] [--nights 30] [--changed 0.01]

Claims by rules and lexical scores, which ask no model. Each night other samples get a new response,
drawn from the share `--changed`; all others are as the night before. Columns:

- `store`, `copy`: MB of the store and of its read copy; `of first`: the store by that of the first
  night; `added`: what a further night added in the mean, as a share of the first night;
- `run`, `verify`: CPU seconds of the night and of `claimflow verify` after it;
- `views`: CPU milliseconds of a query that joins all samples, claims and scores of the newest run.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from claimflow.flows.store.read_copy import read_copy_path
from claimflow.flows.store.store import Store
from tests.benchmarks.judge import PLACES
from tests.benchmarks.measuring import fastest_of_three

PIPELINE: Final = """
name: growth
samples: {path: samples.jsonl}
store: store.duckdb
steps:
  response_claims: {use: decompose_claims, of: response, judge: embedded}
  reference_matches: {use: lexical_match, against: reference, unit: text}
  deterministic_correctness: {use: deterministic_correctness}
  summary: {use: summarize_scores}
"""

VIEWS: Final = """
SELECT count(*), count(claim), avg(score) FROM latest.samples
LEFT JOIN latest.claims USING (run_id, sample_id) LEFT JOIN latest.scores USING (run_id, sample_id)
"""

SHOWN: Final = {1, 2, 3, 5, 10, 20, 30}


def text(drawn: random.Random) -> str:
    """Three sentences of eleven words."""
    return " ".join(
        f"The {drawn.choice(PLACES)} {drawn.randint(1, 999)} of the old town was opened in "
        f"{drawn.randint(1800, 2020)}."
        for _ in range(3)
    )


def write_samples(path: Path, samples: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(one) + "\n" for one in samples), "utf-8")


def claimflow(folder: Path, *arguments: str) -> float:
    """CPU seconds of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "claimflow", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def read_views(store: Store) -> None:
    with store.reading() as connection:
        connection.execute(VIEWS).fetchall()


def megabytes(path: Path) -> float:
    return path.stat().st_size / 1e6


def main(options: argparse.Namespace) -> None:
    drawn = random.Random(0)
    samples = [
        {"sample_id": f"s{number}", "response": text(drawn), "reference": text(drawn)}
        for number in range(options.samples)
    ]
    print(
        f"{options.samples:,} samples, {options.changed:.0%} changed a night\n"
        f"{'night':>5}{'store':>8}{'copy':>8}{'of first':>10}{'added':>8}"
        f"{'run':>7}{'verify':>8}{'views':>8}"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = Store(folder / "store.duckdb")
        (folder / "p.yaml").write_text(PIPELINE, "utf-8")
        first = 0.0
        for night in range(1, options.nights + 1):
            if night > 1:
                for sample in drawn.sample(samples, round(options.samples * options.changed)):
                    sample["response"] = text(drawn)
            write_samples(folder / "samples.jsonl", samples)
            run = claimflow(folder, "run", "p.yaml")
            now = megabytes(store.path)
            first = first or now
            if night in SHOWN or night == options.nights:
                verify = claimflow(folder, "verify", "--store", "store.duckdb")
                copy = megabytes(read_copy_path(store.path))
                views = fastest_of_three(lambda: read_views(store)) * 1000
                print(
                    f"{night:>5}{now:>8.1f}{copy:>8.1f}{now / first:>10.2f}"
                    f"{(now / first - 1) / max(night - 1, 1):>8.1%}{run:>7.1f}{verify:>8.1f}"
                    f"{views:>8.0f}",
                    flush=True,
                )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--changed", type=float, default=0.01, help="share of the samples")
    main(parser.parse_args())
