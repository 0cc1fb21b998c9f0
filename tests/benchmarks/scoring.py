"""Wall time, CPU time and memory of all score steps, computed from stored verdicts.

    python -m tests.benchmarks.scoring [SAMPLES ...]

A first run of `configs/quickstart.yaml` and `rag_checker` stores the tables of stand-ins for
decomposition, verification, embedding and matching: five claims per side, their verdicts and four
sentences per sample. Then a setting of every score step is changed, and an
ordinary `claimflow run` in a process of its own is measured: it reads the samples, reuses those
tables, makes every score, and summarises them with intervals and slices. Its limits are 30
seconds and 2 GiB for 100,000 samples, and growth must be linear.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import polars as pl
import yaml

from claimflow.flows.cli.main import main as claimflow
from claimflow.stages.decompose import DecomposeClaims
from claimflow.stages.lexical import LexicalMatch
from claimflow.stages.registry import STAGES
from claimflow.stages.rows import SentenceMatch
from claimflow.stages.scores.empty_cases import ScoreStage
from claimflow.stages.scores.summaries import SummarizeScores
from claimflow.stages.similarity import EmbeddingSimilarity
from claimflow.stages.verify import VerifyClaims

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs"
FIRST = "import sys; from tests.benchmarks import scoring; sys.exit(scoring.first_run())"
MAIN = "import sys; from claimflow.__main__ import main; sys.exit(main())"
CLAIMS, SENTENCES = 5, 4
VERIFY = {"use": "verify_claims", "against": "retrieved_contexts", "premises": "each"}
BY_PASSAGE = {
    "response_in_passages": {**VERIFY, "claims": "response_claims"},
    "reference_in_passages": {**VERIFY, "claims": "reference_claims"},
    "rag_checker": {"use": "rag_checker"},
}


def repeated(frame: pl.DataFrame, times: int, name: str) -> pl.DataFrame:
    return frame.join(pl.DataFrame({name: range(times)}), how="cross", maintain_order="left")


def claims(stage: DecomposeClaims, samples: pl.DataFrame, **_: object) -> pl.DataFrame:
    of_samples = repeated(samples.select("sample_id"), CLAIMS, "n")
    seed = [*samples["sample_id"][0].encode(), *stage.of.encode()]
    bits = np.random.default_rng(seed).bytes(16 * of_samples.height)
    keys = [str(UUID(bytes=bits[at : at + 16])) for at in range(0, len(bits), 16)]
    return of_samples.select(
        "sample_id",
        claim_id=pl.Series(keys),
        of=pl.lit(stage.of),
        claim=pl.format("Claim number {} of sample {} says this and that.", "n", "sample_id"),
    )


def verdicts(
    stage: VerifyClaims, samples: pl.DataFrame, claims: pl.DataFrame, **_: object
) -> pl.DataFrame:
    one = claims.select("claim_id", against=pl.lit(stage.against))
    if stage.premises == "each":
        contexts = samples.select("sample_id", passages=pl.col("retrieved_contexts").list.len())
        one = (
            claims.select("claim_id", "sample_id", against=pl.lit(stage.against))
            .join(contexts, on="sample_id", maintain_order="left")
            .select("claim_id", "against", passage=pl.int_ranges("passages"))
            .explode("passage", empty_as_null=False)
        )
    label = pl.col("claim_id").str.slice(0, 2).str.to_integer(base=16) % 3
    words = {0: "entailed", 1: "neutral", 2: "contradicted"}
    return one.with_columns(verdict=label.replace_strict(words, return_dtype=pl.String))


def similarities(stage: EmbeddingSimilarity, samples: pl.DataFrame, **_: object) -> pl.DataFrame:
    sides = {"left": pl.lit(stage.left), "right": pl.lit(stage.right)}
    return samples.select("sample_id", **sides, cosine=1 / (1 + pl.int_range(pl.len()) % 7))


def matches(stage: LexicalMatch, samples: pl.DataFrame) -> pl.DataFrame:
    one = samples.select("sample_id", against=pl.lit(stage.against))
    if stage.against == "reference":
        one = one.with_columns(source=pl.lit(0))
    if stage.unit == "sentence":
        one = repeated(one, SENTENCES, "position")
    value = 1 / (1 + pl.int_range(pl.len()) % 5)
    measures = {
        name: value
        for name, field in SentenceMatch.model_fields.items()
        if field.annotation in (float, float | None)
    }
    text = {"sentence": pl.lit("A sentence of it."), "start": pl.lit(0), "end": pl.lit(17)}
    return one.with_columns(**text, **measures)


def first_run() -> int:
    """`claimflow run p.yaml` with stand-ins for the stages that would ask a tool or read text."""
    stand_ins: dict[Any, object] = {
        DecomposeClaims: claims,
        VerifyClaims: verdicts,
        EmbeddingSimilarity: similarities,
        LexicalMatch: matches,
    }
    for stage, stand_in in stand_ins.items():
        stage.run, stage.by_row = stand_in, False
    return claimflow(["run", "p.yaml"])


def write_samples(path: Path, count: int) -> None:
    """Demo samples of 3 KB, each with a response of its own."""
    rows = [json.loads(line) for line in (CONFIGS / "demo.jsonl").read_text("utf-8").splitlines()]
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            row = rows[number % len(rows)]
            changed = {"id": f"sample-{number}", "response": f"{number}. {row['response']}"}
            file.write(json.dumps(row | changed) + "\n")


def write_pipeline(path: Path, *, changed: bool) -> None:
    pipeline = yaml.safe_load((CONFIGS / "quickstart.yaml").read_text("utf-8"))
    pipeline |= {"samples": {"path": "samples.jsonl"}, "store": "store.duckdb"}
    pipeline["steps"] = BY_PASSAGE | pipeline["steps"]
    for step in pipeline["steps"].values():
        kind = STAGES[step["use"]]
        if changed and issubclass(kind, ScoreStage):
            step["empty"] = dict.fromkeys(kind.cases[:1], "undefined")
        elif kind is SummarizeScores and not changed:
            del step["slices"]
    path.write_text(yaml.safe_dump(pipeline, sort_keys=False), "utf-8")


def timed(code: str, *arguments: str, folder: Path) -> tuple[float, float, float, str]:
    """(wall seconds, CPU seconds, peak MB, standard error) of a Python process."""
    before = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / '.package'}"},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(errors)
    wall = time.monotonic() - before
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, errors


def main(counts: list[int]) -> None:
    print(" samples  store MB  wall s   CPU s  peak MB  wall s per 1,000 samples")
    for count in counts:
        with tempfile.TemporaryDirectory() as folder:
            room = Path(folder)
            write_samples(room / "samples.jsonl", count)
            write_pipeline(room / "p.yaml", changed=False)
            timed(FIRST, folder=room)
            write_pipeline(room / "p.yaml", changed=True)
            wall, cpu, peak, errors = timed(MAIN, "run", "p.yaml", folder=room)
            store = (room / "store.duckdb").stat().st_size / 1e6
            each = 1_000 * wall / count
            print(f"{count:>8,} {store:>9.0f} {wall:>7.1f} {cpu:>7.1f} {peak:>8.0f}  {each:.3f}")
            if count == counts[-1]:
                print(errors)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("samples", nargs="*", type=int, default=[1_000, 10_000, 100_000])
    main(parser.parse_args().samples)
