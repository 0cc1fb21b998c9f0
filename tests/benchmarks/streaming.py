"""Speed, cores and memory of lexical matching and deterministic faithfulness over many samples.

    python -m tests.benchmarks.streaming [SAMPLES ...]

A sample is a response of about 120 words against three contexts of 100, of English web
sentences. `claimflow run` reads the samples, matches, scores and summarises them. Shown are
samples per second of wall time and of CPU time, busy cores, and the peak memory of the run and
its workers together. It must stay below 4 GiB for any number of samples, since a run holds a few
parts of each table only. Linux only.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.benchmarks.measuring import process_memory, process_tree

SENTENCES = Path(__file__).parents[1] / "data" / "sentence_split" / "ud_ewt.test.jsonl"
DISTINCT = 2_000
PIPELINE = """
name: streaming
samples: {path: samples.jsonl}
store: store.duckdb
steps:
  context_matches: {use: lexical_match, against: retrieved_contexts}
  deterministic_faithfulness: {use: deterministic_faithfulness}
  summary: {use: summarize_scores}
"""
MAIN = "import sys; from claimflow.__main__ import main; sys.exit(main())"


def write_samples(path: Path, count: int) -> None:
    chance = random.Random(0)
    with SENTENCES.open(encoding="utf-8") as lines:
        sentences = [sentence for line in lines for sentence in json.loads(line)["sentences"]]

    def passage(words: int) -> str:
        chosen: list[str] = []
        while sum(len(sentence.split()) for sentence in chosen) < words:
            chosen.append(chance.choice(sentences))
        return " ".join(chosen)

    rows = [(passage(120), [passage(100) for _ in range(3)]) for _ in range(min(count, DISTINCT))]
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            response, contexts = rows[number % len(rows)]
            sample = {"response": f"Answer {number}. {response}", "retrieved_contexts": contexts}
            file.write(json.dumps({"id": str(number), **sample}) + "\n")


def tree_memory(process: int) -> int:
    """Bytes of memory of a process and its descendants."""
    total = 0
    for one in process_tree(process):
        with suppress(OSError):  # it may have ended
            total += process_memory(one)
    return total


def measure(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder)
        write_samples(room / "samples.jsonl", count)
        (room / "p.yaml").write_text(PIPELINE, "utf-8")
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        run = subprocess.Popen(
            [sys.executable, "-c", MAIN, "run", "p.yaml"],
            cwd=room,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / ".package")},
        )
        peak = 0
        while run.poll() is None:
            peak = max(peak, tree_memory(run.pid))
            time.sleep(0.2)
        wall, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        if run.returncode:
            raise SystemExit("the run failed")
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        store = (room / "store.duckdb").stat().st_size / 1e6
        print(
            f"{count:>9,} {wall:>8.1f} {cpu:>8.1f} {cpu / wall:>6.2f} {count / wall:>10,.0f} "
            f"{count / cpu:>13,.0f} {peak / 2**20:>9,.0f} {store:>9,.0f}",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("samples", nargs="*", type=int, default=[1_000, 10_000, 100_000])
    options = parser.parse_args()
    print("  samples   wall s    CPU s  cores  samples/s samples/CPU s  peak MiB  store MB")
    for count in options.samples:
        measure(count)
