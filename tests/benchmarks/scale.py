"""Speed of one process, local processes and a Dask cluster, and the cost of Prefect.

    python -m tests.benchmarks.scale [ROWS] [--work WORK ...] [--by ENGINE ...] [--prefect]
        [--folder [PLACE]] [--rounds N]

Lexical: deterministic faithfulness over ROWS samples (20,000 when left out) as in
streaming.py. Embedding: the similarity of two texts of about 12 words, all distinct. Brief: the
similarity of a distinct text of four words and a constant one, so that 1,000,000 samples take
less than an hour. Each is one `claimflow run`: with `count: 1`, with a process per core, and on a
Dask cluster on this machine with one single-threaded worker per core. Shown are seconds of wall
time, CPU seconds of the process that runs the pipeline and of its workers, the peak memory of
that process, its samples per second of wall time relative to one process, and of Dask the MB that
went over the loopback network of this machine, which nothing else should use meanwhile: to the
scheduler and from it.

With `--folder` engines with workers run a second time with `workers: {folder: PLACE}`, an absolute
path or an address, by default a temporary folder. `--rounds N` repeats all, so that they take
turns.

With `--prefect` a pipeline of ten small steps runs with and without a Prefect server that was
started before: CPU seconds of the run and of the server, per run and per task run.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from tests.benchmarks.measuring import process_cpu, process_memory, process_tree
from tests.benchmarks.streaming import MAIN, SENTENCES, write_samples

ROOT = Path(__file__).parents[2]
CORES = len(os.sched_getaffinity(0))
LEXICAL = """
  context_matches: {use: lexical_match, against: retrieved_contexts}
  deterministic_faithfulness: {use: deterministic_faithfulness}
"""
EMBEDDING = """
  similarity: {use: embedding_similarity, left: response, right: reference}
"""
WORK = {"lexical": LEXICAL, "embedding": EMBEDDING, "brief": EMBEDDING}
ENGINES = ["one", "local", "dask"]
PIPELINE = """
name: scale
samples: {path: samples.jsonl}
store: store.duckdb
read_copy: false
workers: {WORKERS}
steps:STEPS
"""
PREFECT_STEPS = "\n" + "".join(
    f"  matches_{n}: {{use: lexical_match, against: retrieved_contexts, bleu_unit: {unit}, "
    f"tokens: {tokens}, unit: {part}}}\n"
    for n, (unit, tokens, part) in enumerate(
        (unit, tokens, part)
        for unit in ("character", "word")
        for tokens in ("treebank", "content", "unicode")
        for part in ("sentence", "text")
    )
)


def all_cpu(root: int) -> dict[int, float]:
    """CPU seconds of `root` and every descendant that still runs."""
    times = {}
    for process in process_tree(root):
        try:
            times[process] = process_cpu(process)
        except OSError:
            continue
    return times


def loopback() -> int:
    """Bytes that went over the loopback network since the machine started."""
    return int(Path("/sys/class/net/lo/statistics/tx_bytes").read_text())


def run(folder: Path, steps: str, workers: str, cluster: int | None = None) -> list[float]:
    """Wall s, CPU s of the run and of its workers, peak MiB of the run, MB of traffic."""
    written = PIPELINE.replace("WORKERS", workers).replace("STEPS", steps)
    (folder / "p.yaml").write_text(written, "utf-8")
    (folder / "store.duckdb").unlink(missing_ok=True)
    before = sum(all_cpu(cluster).values()) if cluster else 0.0
    sent = loopback()
    started, peak, times = time.monotonic(), 0, dict[int, float]()
    going = subprocess.Popen(
        [sys.executable, "-c", MAIN, "run", "p.yaml"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(ROOT / ".package")},
    )
    while going.poll() is None:
        times |= all_cpu(going.pid)
        try:
            peak = max(peak, process_memory(going.pid))
        except OSError:
            break
        # Seldom: to measure memory, the kernel walks through all of it.
        time.sleep(0.5)
    wall = time.monotonic() - started
    if going.wait():
        raise SystemExit("the run failed")
    apart = sum(all_cpu(cluster).values()) - before if cluster else 0.0
    apart += sum(seconds for process, seconds in times.items() if process != going.pid)
    return [wall, times[going.pid], apart, peak / 2**20, (loopback() - sent) / 1e6]


def write_texts(path: Path, count: int, *, brief: bool) -> None:
    """Samples of two distinct texts; `brief`: of one short distinct text and a constant one."""
    chance = random.Random(0)
    with SENTENCES.open(encoding="utf-8") as lines:
        words = [w for line in lines for s in json.loads(line)["sentences"] for w in s.split()]
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            start = chance.randrange(len(words) - 30)
            left, right = words[start : start + 12], words[start + 6 : start + 18]
            sample = {"response": f"{number} {' '.join(left)}", "reference": " ".join(right)}
            if brief:
                sample = {"response": f"{number} {' '.join(left[:3])}", "reference": "As it was."}
            file.write(json.dumps({"id": str(number), **sample}) + "\n")


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, int]]:
    """Address and process of a scheduler that is the parent of its workers."""
    known = folder / "scheduler.json"
    known.unlink(missing_ok=True)  # that of the cluster before
    dask = f"{sys.executable} -m dask"
    where = f"--host 127.0.0.1 --no-dashboard --scheduler-file {known}"
    command = (
        f"{dask} worker {where} --nworkers {CORES} --nthreads 1 --memory-limit 0 & "
        f"{dask} scheduler --port 0 {where}; wait"
    )
    with (folder / "dask.log").open("w") as log:
        shell = subprocess.Popen(
            ["sh", "-c", command],
            cwd=folder,
            stdout=log,
            stderr=log,
            env=os.environ
            | {
                "PYTHONPATH": str(ROOT / ".package"),
                "POLARS_MAX_THREADS": "1",
                # Loop and work share an interpreter, which a tick interrupts 50 times a second.
                "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
                # Nor by Dask's profiler, which looks at the stack 100 times a second.
                "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
                # Dask sets 64 KB, so that memory goes back to the system and is asked for again.
                "MALLOC_TRIM_THRESHOLD_": "134217728",
            },
            process_group=0,
        )
        try:
            while not (known.exists() and known.read_text("utf-8").endswith("}")):
                if shell.poll() is not None:
                    raise SystemExit("Dask does not start: pip install 'claimflow[dask]'")
                time.sleep(0.2)
            time.sleep(5)
            yield json.loads(known.read_text("utf-8"))["address"], shell.pid
        finally:
            os.killpg(shell.pid, 9)
            shell.wait()


def compare(
    folder: Path, name: str, steps: str, rows: int, engines: Sequence[str], shared: str | None
) -> None:
    """Print a line for each engine, and one for each whose workers use the folder `shared`."""
    ways = {
        "one": ("one process", "count: 1"),
        "local": (f"{CORES} local processes", f"count: {CORES}"),
        "dask": (f"Dask, {CORES} workers", "engine: dask, address: 'ADDRESS'"),
    }
    first = 0.0
    turns = [
        (engine, uses_folder)
        for engine in engines
        for uses_folder in (False, True)
        if not uses_folder or (shared is not None and engine != "one")
    ]
    for engine, uses_folder in turns:
        way, workers = ways[engine]
        if uses_folder:
            way, workers = f"{way}, folder", f"{workers}, folder: '{shared}'"
        # An idle cluster takes CPU time from the other runs.
        with cluster(folder) if engine == "dask" else nullcontext(("", None)) as (address, apart):
            found = run(folder, steps, workers.replace("ADDRESS", address), apart)
        wall, ours, theirs, peak, traffic = found
        sent = f"{traffic:>7,.0f}" if engine == "dask" else f"{'':7}"
        first = first or wall
        print(
            f"{name:10} {way:25} {rows:>10,} {wall:>8.1f} {ours:>9.1f} {theirs:>9.1f} "
            f"{peak:>9,.0f} {rows / wall:>10,.0f} {first / wall:>6.2f} {sent}",
            flush=True,
        )


def prefect(folder: Path) -> None:
    """Print what a run costs with and without Prefect."""
    from tests.flows.prefect_server import environment, shared_server

    write_samples(folder / "samples.jsonl", 10)
    home = folder / "prefect"
    with shared_server(home) as url:
        server = json.loads((home / "server.json").read_text("utf-8"))["process"]
        os.environ.update(environment(home))
        costs = {}
        for way, address in {"without Prefect": "", "with Prefect": url}.items():
            os.environ.pop("PREFECT_API_URL", None)
            if address:
                os.environ["PREFECT_API_URL"] = address
            run(folder, PREFECT_STEPS, "count: 1")  # a first run compiles modules
            before = sum(all_cpu(server).values())
            wall, ours, *_ = run(folder, PREFECT_STEPS, "count: 1")
            time.sleep(10)  # the server goes on writing
            costs[way] = ours, sum(all_cpu(server).values()) - before
            print(f"{way:20} {wall:>8.1f} {ours:>9.2f} {costs[way][1]:>9.2f}", flush=True)
    tasks = PREFECT_STEPS.count("use:") + 1
    client, of_server = (b - a for a, b in zip(*costs.values(), strict=True))
    print(
        f"a run of {tasks} task runs costs {client:.2f} CPU s here and {of_server:.2f} in the "
        f"server, an idle server's 10 s included"
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="?", type=int, default=20_000)
    parser.add_argument("--work", nargs="+", choices=WORK, default=["lexical", "embedding"])
    parser.add_argument("--by", nargs="+", choices=ENGINES, default=ENGINES)
    parser.add_argument(
        "--prefect", action="store_true", help="measure the cost of Prefect instead"
    )
    parser.add_argument(
        "--folder",
        nargs="?",
        const="",
        help="measure workers with a folder as well, by default a temporary one",
    )
    parser.add_argument("--rounds", type=int, default=1, help="repeat all")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as room:
        folder = Path(room)
        if options.prefect:
            print("run                    wall s CPU s run CPU s server")
            prefect(folder)
            return
        print(
            "work       by                           samples   wall s CPU s run CPU s wkr  "
            "peak MiB  samples/s  ratio net MB"
        )
        shared = options.folder
        if shared == "":
            shared = str(folder / "shared")
            Path(shared).mkdir()
        for work in options.work * options.rounds:
            if work == "lexical":
                write_samples(folder / "samples.jsonl", options.rows)
            else:
                write_texts(folder / "samples.jsonl", options.rows, brief=work == "brief")
            compare(folder, work, WORK[work], options.rows, options.by, shared)


if __name__ == "__main__":
    main()
