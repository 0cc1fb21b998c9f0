import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import polars as pl
import pytest

from claimflow.flows.store import runs
from claimflow.flows.store.artifacts import ArtifactWriter, Provenance
from claimflow.flows.store.results import all_runs
from claimflow.flows.store.store import Store, now
from claimflow.stages.rows import Sample, content_key
from claimflow.stages.tables import build

ABOUT = {"pipeline": "p", "config_path": "p.yaml", "config": "name: p"}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "s.duckdb")


def pretend_process(store: Store, run_id: str, process: int, host: str | None = None) -> None:
    with store.writing() as connection:
        connection.execute(
            "UPDATE audit.runs SET process = $process, host = coalesce($host, host) "
            "WHERE run_id = $run",
            {"process": process, "host": host, "run": run_id},
        )


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_the_start_and_end_of_a_run_are_recorded(store: Store) -> None:
    run_id, killed = runs.start_run(store, **ABOUT)
    assert killed == []
    assert all_runs(store).select("run_id", "status").rows() == [(run_id, "running")]
    runs.end_run(store, run_id, "failed", "why")
    ended = all_runs(store).row(0, named=True)
    assert (ended["status"], ended["reason"]) == ("failed", "why")
    assert ended["ended_at"] >= ended["started_at"]


def test_run_ids_sort_by_start_within_a_second(store: Store) -> None:
    begun = [runs.start_run(store, **ABOUT)[0] for _ in range(5)]
    assert sorted(set(begun)) == begun


def test_a_run_starts_when_it_has_the_store_locked(store: Store) -> None:
    with ThreadPoolExecutor(2) as pool:
        with store.writing():
            both = [pool.submit(runs.start_run, store, **ABOUT) for _ in range(2)]
            wait(both, 0.1)
            let_go = now()
        ids = {future.result()[0] for future in both}
    assert len(ids) == 2
    assert all_runs(store)["started_at"].min() > let_go


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is not known")
def test_a_process_whose_parent_does_not_look_has_ended() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert runs.process_alive(child.pid)
        child.kill()
        deadline = time.monotonic() + 20
        while runs.process_alive(child.pid):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert Path(f"/proc/{child.pid}").exists()
    finally:
        child.communicate()
    assert not runs.process_alive(child.pid)


def test_a_run_whose_process_has_ended_is_killed_and_its_unfinished_tables_are_deleted(
    store: Store,
) -> None:
    run_id, _ = runs.start_run(store, **ABOUT)
    making = Provenance(run_id, content_key("t"), content_key("t"), {}, "samples", 1, {}, {})
    ArtifactWriter(store, Sample, making, shards=2).add(0, build(Sample, [{"sample_id": "a"}]))
    whole = ArtifactWriter(store, Sample, making, shards=1)
    whole.add(0, build(Sample, [{"sample_id": "b"}]))
    pretend_process(store, run_id, dead_process())
    _, killed = runs.start_run(store, **ABOUT)
    assert killed == [run_id]
    assert all_runs(store).filter(run_id=run_id)["status"].item() == "killed"
    with store.reading() as connection:
        rows = "SELECT sample_id FROM stored.samples JOIN audit.artifact_segments USING (segment)"
        assert connection.execute(rows).fetchall() == [("b",)]
        assert connection.execute("SELECT count(*) FROM audit.artifacts").fetchall() == [(1,)]


def test_a_run_in_progress_here_or_on_another_host_is_left_alone(store: Store) -> None:
    here, _ = runs.start_run(store, **ABOUT)
    elsewhere, _ = runs.start_run(store, **ABOUT)
    pretend_process(store, here, os.getppid())
    pretend_process(store, elsewhere, dead_process(), host="another machine")
    assert runs.start_run(store, **ABOUT)[1] == []


def test_the_newest_run_is_not_one_that_measures_noise(store: Store) -> None:
    runs.start_run(store, **ABOUT)
    second, _ = runs.start_run(store, **ABOUT)
    runs.start_run(store, **ABOUT | {"pipeline": "p" + runs.NOISE_SUFFIX})
    assert runs.newest_run(store) == second


def test_a_panic_of_a_library_is_a_failure_and_no_request_to_stop(store: Store) -> None:
    """Polars panics for a date that is too late; the class of the panic is no `Exception`."""
    stop = threading.Event()
    run_id, _ = runs.start_run(store, **ABOUT)
    with (
        pytest.raises(pl.exceptions.PanicException) as caught,
        runs.recording_end(store, run_id, stop),
    ):
        pl.select(pl.lit(2**31 - 1).cast(pl.Date).dt.month_end())
    assert not isinstance(caught.value, Exception)
    [(status, reason)] = all_runs(store).select("status", "reason").rows()
    assert (status, reason.partition(":")[0]) == ("failed", "PanicException")
    assert stop.is_set()
