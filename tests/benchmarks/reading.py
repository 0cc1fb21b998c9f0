"""CPU seconds and peak memory of reading 10,000 and 100,000 samples of 3 KB.

    python -m tests.benchmarks.reading

Each figure is that of a process of its own, which reads a file, checks every sample and iterates
over the samples in shards of 2,000. Other processes write the files, since a process starts with
the peak memory of its parent.
"""

import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from claimflow.flows.samples.reader import read_samples

COUNTS = (10_000, 100_000)
ENDINGS = (".jsonl", ".json", ".csv", ".parquet")


def main() -> None:
    """Print one line per format and size."""
    print(f"{'file':<10}{'samples':>10}{'MB':>8}{'CPU s':>8}{'peak MB':>9}")
    for count in COUNTS:
        for ending in ENDINGS:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, f"samples{ending}")
                run("write", path, count)
                seconds, peak = run("measure", path).split()
                size = path.stat().st_size / 1e6
            print(f"{ending:<10}{count:>10,}{size:>8.0f}{float(seconds):>8.1f}{peak:>9}")


def run(*words: object) -> str:
    """The output of this program with the arguments `words`."""
    command = [sys.executable, __file__, *map(str, words)]
    return subprocess.check_output(command, text=True)


def measure(path: Path) -> None:
    """Print CPU seconds and peak resident megabytes of reading `path`."""
    start = time.process_time()
    source = read_samples(path.name, base=path.parent, rename={})
    count = sum(shard.height for shard in source.shards(2_000))
    if source.faults or count != source.count:
        sys.exit(f"read {count} of {source.count}: {source.faults[:3]}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(time.process_time() - start, peak)


def samples(count: int) -> Iterator[dict[str, Any]]:
    """Random samples of 3 KB: words of Latin letters, a few accents and emoji."""
    chance = random.Random(1)
    letters = "etaoinshrdlu"
    words = ["".join(chance.choices(letters, k=chance.randint(2, 9))) for _ in range(3000)]
    words += ["naïve", "Zürich", "🙂"]

    def text(length: int) -> str:
        return " ".join(chance.choices(words, k=length))

    for number in range(count):
        yield {
            "id": f"sample-{number}",
            "question": text(12),
            "answer": text(60),
            "ground_truth": text(60),
            "contexts": [text(100) for _ in range(3)],
            "model": "small",
            "rank": number % 7,
        }


def write(path: Path, count: int) -> None:
    """Write `count` samples to `path`, in the format its ending names."""
    if path.suffix in (".jsonl", ".json"):
        array = path.suffix == ".json"
        with path.open("w", encoding="utf-8") as file:
            file.write("[" if array else "")
            for number, sample in enumerate(samples(count)):
                file.write((",\n" if array else "\n") if number else "")
                file.write(json.dumps(sample, ensure_ascii=False))
            file.write("]\n" if array else "\n")
        return
    frame = pl.DataFrame(list(samples(count)))
    if path.suffix == ".parquet":
        frame.write_parquet(path, row_group_size=5_000)
    else:
        cell = pl.col("contexts").map_elements(lambda cells: json.dumps(list(cells)), pl.String)
        frame.with_columns(cell).write_csv(path)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["write", path, count]:
            write(Path(path), int(count))
        case ["measure", path]:
            measure(Path(path))
        case []:
            main()
        case _:
            print(__doc__)
