"""Memory and CPU seconds of a run over 10,000 and over 100,000 samples of 3 KB.

    python tests/benchmarks/streaming.py [COUNT ...]

Memory must not grow with the number of samples: a run holds one part of each table.
"""

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

DEMO = Path(__file__).parents[2] / "configs/demo.jsonl"
PIPELINE = """
name: streaming
samples: {path: samples.jsonl}
store: store.duckdb
steps:
  response_claims: {use: decompose_claims, of: response, coverage: high}
  reference_claims: {use: decompose_claims, of: reference, coverage: high}
"""
MAIN = "import sys; from flows.cli import main; sys.exit(main(sys.argv[1:]))"


def write_samples(path: Path, count: int) -> None:
    rows = [json.loads(line) for line in DEMO.read_text("utf-8").splitlines()]
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            row = rows[number % len(rows)]
            response = f"Answer {number} says this. {row['response']}"
            changed = {"id": f"sample-{number}", "response": response}
            file.write(json.dumps(row | changed) + "\n")


def measure(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder)
        write_samples(room / "samples.jsonl", count)
        (room / "p.yaml").write_text(PIPELINE, "utf-8")
        command = [sys.executable, "-c", MAIN, "run", "p.yaml"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, cwd=room, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        megabytes = (room / "samples.jsonl").stat().st_size / 1e6
        store = (room / "store.duckdb").stat().st_size / 1e6
        peak = after.ru_maxrss / 1024
        print(f"{count:>8,} {megabytes:>9.0f} {store:>9.0f} {cpu:>7.1f} {peak:>8.0f}", flush=True)


if __name__ == "__main__":
    print(" samples  input MB  store MB   CPU s  peak MB")
    for word in sys.argv[1:] or ["10000", "100000"]:
        measure(int(word.replace(",", "")))
