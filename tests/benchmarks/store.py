"""Cost of the read copy, `verify` and `prune` on a store of many rows.

    python -m tests.benchmarks.store [ROWS]

600,000 rows of each kind make a store of 170 MB. Each task runs in a process of its own, whose peak
memory is printed. "copied" is all of `publish`; "with DuckDB" is COPY FROM DATABASE instead.
"""

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import polars as pl

from claimflow.flows.store.artifacts import ArtifactWriter, Provenance
from claimflow.flows.store.integrity import check_store
from claimflow.flows.store.pruning import compact
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
}


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


def main() -> None:
    """Make a store, then run each task in a process of its own."""
    if len(sys.argv) == 3:
        measure(sys.argv[1], Path(sys.argv[2]))
        return
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 600_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.duckdb"
        fill(Store(path), rows)
        print(f"{2 * rows:,} rows, {path.stat().st_size / 1e6:,.0f} MB")
        for task in TASKS:
            subprocess.run([sys.executable, "-m", "tests.benchmarks.store", task, path], check=True)


if __name__ == "__main__":
    main()
