"""Cost of the read copy, `verify` and `prune` on a store of many rows.

    python -m tests.benchmarks.store [ROWS] [--large]

600,000 rows of each kind make a store of 170 MB. Each task runs in a process of its own, whose peak
memory is printed. "copied" is all of `publish`; "with DuckDB" is COPY FROM DATABASE instead.

With `--large` the store has two runs of ROWS samples, each with ten claims and verdicts, whose rows
lie side by side. They are made by SQL, so that 700,000 samples, 2.3 GB, take some minutes. Rows
without digests cannot be verified: "copied", "compact" and "prune", which keeps one run, are shown.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from uuid import uuid4

import polars as pl

from claimflow.flows.store.artifacts import ArtifactWriter, Provenance
from claimflow.flows.store.integrity import check_store
from claimflow.flows.store.pruning import Retention, compact, prune
from claimflow.flows.store.read_copy import write_read_copy
from claimflow.flows.store.runs import end_run, start_run
from claimflow.flows.store.store import Store
from claimflow.stages.rows import Row, Sample, Score, content_key
from claimflow.stages.tables import conform

_PART: Final = 20_000
_NOTHING: Final = "00000000-0000-0000-0000-000000000000"


def fill(store: Store, rows: int) -> None:
    """Store a finished run with `rows` samples and as many scores."""
    run_id, _ = start_run(store, pipeline="p", config_path="p.yaml", config="")
    for row, step in ((Sample, "samples"), (Score, "scores")):
        shards = -(-rows // _PART)
        making = Provenance(run_id, content_key(step), _NOTHING, {}, step, 1, {}, {})
        draft = ArtifactWriter(store, row, making, shards=shards)
        for shard in range(shards):
            numbers = range(shard * _PART, min((shard + 1) * _PART, rows))
            draft.add(shard, frame(row, numbers))
        with store.writing() as connection:
            connection.execute(
                "INSERT INTO audit.run_steps (run_id, step, position, artifact_id, reused, seconds,"
                " ended_at) VALUES ($run, $step, 0, $id, false, 0, now()::TIMESTAMP)",
                {"run": run_id, "step": step, "id": draft.artifact().artifact_id},
            )
    end_run(store, run_id, "done")


def fill_by_sql(store: Store, samples: int) -> None:
    """Store two finished runs of `samples` samples each; one has the even segments."""
    runs = [start_run(store, pipeline="p", config_path="p.yaml", config="")[0] for _ in range(2)]
    for run_id in runs:
        end_run(store, run_id, "done")
    values = {"samples": 2 * samples, "rows": 20 * samples, "part": _PART}
    with store.writing() as connection:
        for statement in _LARGE:
            named = {name: value for name, value in values.items() if f"${name}" in statement}
            connection.execute(statement, named or None)
        for number, run_id in enumerate(runs):
            for kind in ("samples", "claims", "verdicts"):
                making = {"id": str(uuid4()), "run": run_id, "kind": kind}
                connection.execute(
                    "INSERT INTO audit.run_steps VALUES "
                    "($run, $kind, 0, $id, false, 0, now()::TIMESTAMP)",
                    making,
                )
                connection.execute(
                    "INSERT INTO audit.artifact_parts SELECT $id, $kind, part // 2, part, uuid() "
                    "FROM (SELECT DISTINCT part FROM audit.parts WHERE part % 2 = $number)",
                    {"id": making["id"], "kind": kind, "number": number},
                )


_LARGE: Final = (
    """
    INSERT INTO stored.samples BY NAME
    SELECT i AS segment, 's' || i AS sample_id,
           (SELECT string_agg(md5((100 * i + j)::VARCHAR), ' ') FROM range(20) r(j)) AS response
    FROM range($samples) t(i)
    """,
    """
    INSERT INTO stored.claims BY NAME
    SELECT i // 10 AS segment, md5(i::VARCHAR)::UUID AS claim_id, 's' || i // 10 AS sample_id,
           'response' AS "of", md5((i + 1)::VARCHAR) || md5((i + 2)::VARCHAR) AS claim,
           'made' AS status
    FROM range($rows) t(i)
    """,
    """
    INSERT INTO stored.verdicts BY NAME
    SELECT i // 10 AS segment, md5(i::VARCHAR)::UUID AS claim_id, 'retrieved_contexts' AS against,
           'entailed' AS verdict, 'judged' AS status, md5((i + 3)::VARCHAR) AS reason,
           random() AS p_entailed, random() AS p_contradicted, random() AS p_neutral
    FROM range($rows) t(i)
    """,
    "INSERT INTO audit.segments SELECT kind, i, uuid() FROM range($samples) t(i), "
    "(VALUES ('samples'), ('claims'), ('verdicts')) kinds(kind)",
    "INSERT INTO audit.parts SELECT i // 2 // $part * 2 + i % 2, i // 2 % $part, i, 1 "
    "FROM range($samples) t(i)",
)
"""The rows of two runs, by the number of the segment. Texts do not compress."""


def frame(row: type[Row], numbers: range) -> pl.DataFrame:
    """Rows with texts that do not compress."""
    names = [str(number) for number in numbers]
    texts = {"response": [content_key(name) * 8 for name in names]}
    scores = {"metric": "m", "score": 0.5, "status": "scored"}
    columns: Mapping[str, object] = texts if row is Sample else scores
    return conform(row, pl.DataFrame({"sample_id": names}).with_columns(**columns_of(columns)))


def columns_of(columns: Mapping[str, object]) -> dict[str, pl.Expr | pl.Series]:
    """Each as a column: a list unchanged, any other value repeated for every row."""
    return {
        name: pl.Series(value) if isinstance(value, list) else pl.lit(value)
        for name, value in columns.items()
    }


def with_duckdb(store: Store) -> None:
    """Publish without a file copy, for comparison."""
    with store.reading() as connection:
        other = store.path.with_name("other.duckdb")
        other.unlink(missing_ok=True)
        connection.execute("ATTACH $path AS other (READ_WRITE)", {"path": str(other)})
        (name,) = connection.execute("SELECT current_database()").fetchall()[0]
        connection.execute(f'COPY FROM DATABASE "{name}" TO other')


def checked(store: Store) -> None:
    """Verify the store, which has no faults."""
    assert check_store(store).faults == []


TASKS: Final[dict[str, Callable[[Store], object]]] = {
    "copied": write_read_copy,
    "with DuckDB": with_duckdb,
    "verify": checked,
    "compact": compact,
    "prune": lambda store: prune(store, Retention(runs=1)),
}
LARGE_TASKS: Final = ("copied", "compact", "prune")


def measure(task: str, path: Path) -> None:
    """Run a task and print its cost for this process and its children."""
    began = time.perf_counter()
    before = _cpu()
    TASKS[task](Store(path))
    wall = time.perf_counter() - began
    print(f"{task:12} {wall:6.2f} s, {_cpu() - before:6.2f} s of CPU, {_peak()} MB at most")


def _peak() -> int:
    """Peak memory of this process in MB; `getrusage` would include that of its parent."""
    status = Path("/proc/self/status").read_text("utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def _cpu() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def main(options: argparse.Namespace) -> None:
    """Make a store, then run each task in a process of its own."""
    if options.task:
        measure(options.task, options.store)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.duckdb"
        (fill_by_sql if options.large else fill)(Store(path), options.rows)
        print(f"{options.rows:,} samples of each run, {path.stat().st_size / 1e6:,.0f} MB")
        for task in LARGE_TASKS if options.large else TASKS:
            command = [sys.executable, "-m", "tests.benchmarks.store"]
            subprocess.run([*command, "--task", task, "--store", path], check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("rows", nargs="?", type=int, default=600_000)
    parser.add_argument("--large", action="store_true", help="make the store by SQL")
    parser.add_argument("--task", choices=TASKS, help="measure this task in this process")
    parser.add_argument("--store", type=Path)
    main(parser.parse_args())
