"""Workers that exchange tables by a folder, on a disk or in object storage."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import chdir, closing, suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from claimflow.flows import object_storage
from claimflow.flows.api import run_pipeline
from claimflow.flows.cli.main import main
from claimflow.flows.errors import InputError, StoppedError, WorkersError
from claimflow.flows.object_storage import Bucket, parse_address
from claimflow.flows.runner import table_builder
from claimflow.flows.runner.observer import RunObserver
from claimflow.flows.runner.prepare import prepare
from claimflow.flows.runner.workers import local, sub_folder
from claimflow.flows.runner.workers.dask import DaskWorkers
from claimflow.flows.runner.workers.folder import FolderWorkers, SharedTables, _problem
from claimflow.flows.runner.workers.local import LocalWorkers
from claimflow.flows.runner.workers.sub_folder import FolderError, Rows, write_rows
from claimflow.flows.store.arrow import read_table
from tests.flows.dask_cluster import ROOT, SCHEDULER, dask_cluster, dask_workers
from tests.flows.s3_server import KEYS, UNSET, S3Proxy, make_bucket, s3_server

TABLE = pl.DataFrame(
    {
        "text": ["a", None, "", "ä\0\n"],
        "nothing": [None, None, None, None],
        "texts": [["a", None], [], None, [""]],
        "number": [1.5, -0.0, float("nan"), None],
        "count": [2**62, None, 0, -1],
        "exact": [Decimal("1.250"), None, Decimal(0), Decimal("-9.999")],
        "flag": [True, False, None, True],
    },
    schema_overrides={"nothing": pl.String, "exact": pl.Decimal(10, 3)},
)
PIPELINE = """
name: shared
samples: {path: answers.jsonl}
store: s.duckdb
read_copy: false
workers: {WORKERS}
steps:
  response_claims: {use: decompose_claims, of: response, coverage: high}
  context_matches: {use: lexical_match, against: retrieved_contexts}
  deterministic_faithfulness: {use: deterministic_faithfulness}
  cited: {use: find_citations}
"""
SAMPLE = (
    '{"sample_id": "%d", "response": "Ann %d was born in Rome [1]. It is warm.", '
    '"retrieved_contexts": ["Ann was born in Rome in 19%d."]}\n'
)
FOUND = "claimflow-workers-*"


def small_thresholds(patch: pytest.MonkeyPatch) -> None:
    """Tables have ten parts, which are written one by one, and are worth a process."""
    for size, value in {"SHARD": 2, "GROUP": 1, "AT_ONCE": 1}.items():
        patch.setattr(table_builder, size, value)
    patch.setattr(local, "WORTH", 1)


@pytest.fixture(scope="module", autouse=True)
def _small_thresholds() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        small_thresholds(patch)
        yield


@pytest.fixture(scope="module")
def served() -> Iterator[S3Proxy]:
    with s3_server() as proxy:
        yield proxy


@pytest.fixture
def s3(served: S3Proxy, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a bucket of the test's own."""
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)
    for name, value in served.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(object_storage, "_RETRIES", 2)
    name = re.sub(r"\W+", "-", request.node.name.replace("_", "-"))[5:60].strip("-")
    make_bucket(served, name)
    return f"s3://{name}"


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder on a disk or in object storage."""
    if request.param == "disk":
        return str(tmp_path)
    return f"{request.getfixturevalue('s3')}/a/b"


@pytest.fixture
def stop() -> threading.Event:
    return threading.Event()


def folder_workers(folder: str | Path, stop: threading.Event | None = None) -> FolderWorkers:
    """Two local workers that use a folder."""
    engine = LocalWorkers(stop or threading.Event(), count=2)
    return FolderWorkers(engine, str(folder), "p.yaml:6 workers.folder")


def objects(place: str) -> list[str]:
    at = parse_address(place)
    return list(Bucket(at).versions(at.key))


def left(place: str | Path) -> list[Any]:
    """The files of all sub-folders of a folder."""
    if str(place).startswith("s3:"):
        return objects(str(place))
    return [path for found in Path(place).glob(FOUND) for path in found.iterdir()]


def write_pipeline(folder: Path, workers: str, count: int = 20) -> Path:
    lines = [SAMPLE % (number, number, number) for number in range(count)]
    (folder / "answers.jsonl").write_text("".join(lines), "utf-8")
    path = folder / "shared.yaml"
    path.write_text(PIPELINE.replace("WORKERS", workers), "utf-8")
    return path


def digests(config: Path, **options: Any) -> dict[str, str]:
    run = run_pipeline(prepare(config), **options)
    query = (
        "SELECT step, digest::VARCHAR FROM audit.run_steps "
        "JOIN audit.artifacts USING (artifact_id) WHERE audit.run_steps.run_id = $id"
    )
    with run.store.reading() as connection:
        return dict(read_table(connection, query, id=run.run_id).rows())


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return digests(write_pipeline(tmp_path_factory.mktemp("alone"), "count: 1"))


class AtFirstPart(RunObserver):
    """Calls `once` when the first part of the matches is stored."""

    def __init__(self, once: Any) -> None:
        self._once = once

    def step_progress(self, step: str, done: int, total: int) -> None:
        if step == "context_matches" and done == 1:
            self._once()


# What workers do.


def same(tables: Mapping[str, pl.DataFrame], *more: Any) -> list[pl.DataFrame]:
    return list(tables.values())


def dies_once_while_it_writes(
    tables: Mapping[str, pl.DataFrame], marker: str
) -> list[pl.DataFrame]:
    with suppress(FileExistsError):
        Path(marker).touch(exist_ok=False)
        Path.replace = lambda *_: os._exit(9)  # type: ignore[assignment,method-assign]
    return list(tables.values())


def waits(tables: Mapping[str, pl.DataFrame], seconds: float) -> list[pl.DataFrame]:
    time.sleep(seconds)
    return list(tables.values())


@pytest.mark.parametrize("place", ["disk", "s3"], indirect=True)
def test_tables_come_back_as_they_were(place: str) -> None:
    tables = [TABLE, TABLE.head(0), TABLE.slice(1, 2), TABLE.select("nothing")]
    with closing(folder_workers(place)) as workers:
        chunks = [({"one": table, "two": TABLE},) for table in tables]
        for table, made in zip(tables, workers.each(same, chunks, what="x"), strict=True):
            assert [one.schema for one in made] == [table.schema, TABLE.schema]
            assert made[0].equals(table)
            assert made[1].equals(TABLE)
        kinds = {re.sub("-.*", "", Path(path).name) for path in left(place)}
        assert kinds <= {"probe", "lock"}
    assert left(place) == []


@pytest.mark.parametrize("place", ["disk", "s3"], indirect=True)
def test_shared_tables_are_written_once_and_read_by_range(place: str) -> None:
    asked = []

    def parts() -> Iterator[pl.DataFrame]:
        for number in range(3):
            asked.append(number)
            yield TABLE.with_columns(number=pl.lit(number))

    with closing(folder_workers(place)) as workers:
        shared = workers.shared(parts())
        assert asked == []
        for _ in range(2):
            ranges = [rows.select(["number", "text"]).slice(1, 9) for rows in shared]
            assert [rows.height for rows in ranges] == [3, 3, 3]
            chunks = [({"samples": rows}, "more") for rows in ranges]
            for number, [made] in enumerate(workers.each(same, chunks, what="x")):
                expected = TABLE.select(pl.lit(number).alias("number"), "text").slice(1)
                assert made.select("number", "text").equals(expected.cast(made.schema))
        assert asked == [0, 1, 2]
        assert sum("samples-" in str(path) for path in left(place)) == 3


def test_a_range_has_its_share_of_the_size(tmp_path: Path) -> None:
    texts = pl.DataFrame({"long": ["x" * 1000] * 10, "short": ["x"] * 10})
    with closing(folder_workers(tmp_path)) as workers:
        (rows,) = workers.shared([texts])
        assert rows.estimated_size() >= 10_000
        assert rows.slice(3, 5).estimated_size() == rows.estimated_size() // 2
        assert rows.select(["short"]).estimated_size() < 1000


def test_a_table_that_cannot_be_shared_ends_every_thread() -> None:
    full = True

    def write(table: pl.DataFrame) -> Rows:
        nonlocal full
        if full:
            full = False
            raise WorkersError("the disk is full")
        return Rows("", "", 0, {}, table.height, table.height)

    shared = SharedTables(write, [TABLE, TABLE])
    for _ in range(2):
        with pytest.raises(WorkersError, match="the disk is full"):
            list(shared)


def test_the_folder_is_for_its_owner_alone(tmp_path: Path) -> None:
    with closing(folder_workers(tmp_path)):
        (found,) = tmp_path.glob(FOUND)
        assert found.stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in found.iterdir()} == {0o600}


def test_a_worker_that_dies_while_it_writes_costs_its_range(tmp_path: Path) -> None:
    marker = str(tmp_path / "died")
    with closing(folder_workers(tmp_path)) as workers:
        chunks = [({"one": TABLE.slice(number, 1)}, marker) for number in range(4)]
        made = list(workers.each(dies_once_while_it_writes, chunks, what="x"))
        assert pl.concat(one for (one,) in made).equals(TABLE)
        partial = [path.name for path in left(tmp_path) if path.name.startswith(".made-")]
        assert len(partial) == 1
    assert left(tmp_path) == []


@pytest.mark.parametrize(("damage", "told"), [(None, "cannot read"), (b"PAR1", "finds")])
def test_a_lost_or_damaged_part_is_told_by_the_worker(
    tmp_path: Path, damage: bytes | None, told: str
) -> None:
    with closing(folder_workers(tmp_path)) as workers:
        (rows,) = workers.shared([TABLE])
        path = Path(rows.folder, rows.name)
        if damage is None:
            path.unlink()
        else:
            content = path.read_bytes()
            path.write_bytes(content[:-40] + damage + content[-36:])
        with pytest.raises(WorkersError) as caught:
            list(workers.each(same, [({"samples": rows},)], what="x"))
        why = "(No such file or directory)" if damage is None else "damaged"
        who = rf"a worker on {re.escape(socket.gethostname())} \(process \d+\)"
        assert re.fullmatch(rf"{who} {told} {re.escape(f'{path} {why}')}", str(caught.value))


def test_a_pipe_in_place_of_a_part_is_not_waited_for(tmp_path: Path) -> None:
    rows = write_rows(str(tmp_path), pl.DataFrame({"x": [1]}), "samples")
    (tmp_path / rows.name).unlink()
    os.mkfifo(tmp_path / rows.name)
    with pytest.raises(FolderError, match="damaged"):
        rows.read()


def test_a_made_table_that_is_lost_is_told(tmp_path: Path) -> None:
    engine = LocalWorkers(threading.Event(), count=2)
    with closing(FolderWorkers(engine, str(tmp_path), "")) as workers:
        made = workers.each(same, [({"one": TABLE},)] * 2, what="x")
        next(made)
        # The second one is made before its rows are asked for.
        deadline = time.monotonic() + 60
        while not (files := [p for p in left(tmp_path) if p.name.startswith("made-")]):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        files[0].unlink()
        with pytest.raises(WorkersError) as caught:
            next(made)
        assert str(caught.value) == (
            f"the process that runs the pipeline cannot read {files[0]} (No such file or directory)"
        )


@pytest.mark.parametrize("place", ["disk", "s3"], indirect=True)
def test_rows_do_not_depend_on_the_folder(
    tmp_path: Path, place: str, alone: dict[str, str]
) -> None:
    seen = []
    watch = AtFirstPart(lambda: seen.extend(map(str, left(place))))
    config = write_pipeline(tmp_path, f"count: 2, shards: 15, folder: '{place}'")
    assert digests(config, observer=watch) == alone
    assert any("samples-" in path for path in seen)
    assert left(place) == []


def test_changed_samples_alone_are_made_again(tmp_path: Path, alone: dict[str, str]) -> None:
    config = write_pipeline(tmp_path, "count: 2, folder: .", count=7)
    assert digests(config) != alone
    config = write_pipeline(tmp_path, "count: 2, folder: .")
    assert digests(config) == alone


def test_dask_workers_use_object_storage(tmp_path: Path, s3: str, alone: dict[str, str]) -> None:
    with dask_cluster(tmp_path, workers=1) as address:
        workers = f"engine: dask, address: '{address}', folder: '{s3}/night'"
        assert digests(write_pipeline(tmp_path, workers)) == alone
    assert objects(s3) == []


def test_a_stopped_run_leaves_nothing(tmp_path: Path, stop: threading.Event) -> None:
    config = write_pipeline(tmp_path, "count: 2, folder: .")
    seen = []

    def end() -> None:
        seen.extend(left(tmp_path))
        stop.set()

    with pytest.raises(StoppedError):
        run_pipeline(prepare(config), observer=AtFirstPart(end), stop=stop)
    assert seen
    assert list(tmp_path.glob(FOUND)) == []


def test_a_failed_run_leaves_nothing(tmp_path: Path) -> None:
    config = write_pipeline(tmp_path, "count: 2, folder: .")

    seen = []

    def fail() -> None:
        seen.extend(left(tmp_path))
        raise WorkersError("the cluster is lost")

    with pytest.raises(WorkersError, match="the cluster is lost"):
        run_pipeline(prepare(config), observer=AtFirstPart(fail))
    assert seen
    assert list(tmp_path.glob(FOUND)) == []


KILLED = """
import os, signal, sys
from tests.flows import test_worker_folder as t
t.small_thresholds(t.pytest.MonkeyPatch())
watch = t.AtFirstPart(lambda: os.kill(os.getpid(), signal.SIGKILL))
t.digests(t.Path(sys.argv[1]), observer=watch)
"""


def test_what_a_killed_run_left_is_removed_by_a_later_one(
    tmp_path: Path, alone: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_pipeline(tmp_path, "count: 2, folder: .")
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, config], cwd=ROOT, timeout=60, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    (found,) = tmp_path.glob(FOUND)
    assert any(path.name.startswith("samples-") for path in found.iterdir())
    with closing(folder_workers(tmp_path)):
        # It may just be about to lock it.
        assert found.is_dir()
    monkeypatch.setattr(sub_folder, "_UNLOCKED", timedelta(-1))
    assert digests(config) == alone
    assert list(tmp_path.glob(FOUND)) == []


def test_two_runs_share_a_folder(
    tmp_path: Path, alone: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sub_folder, "_UNLOCKED", timedelta(-1))
    for name in "ab":
        (tmp_path / name).mkdir()
    first, second = (write_pipeline(tmp_path / name, "count: 2, folder: ..") for name in "ab")
    made = []
    watch = AtFirstPart(lambda: made.append(digests(second)))
    assert digests(first, observer=watch) == alone
    assert made == [alone]
    assert list(tmp_path.glob(FOUND)) == []


def test_what_another_machine_left_is_removed_after_days(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sub_folder, "_UNLOCKED", timedelta(-1))

    def made(days: int, host: str | None) -> Path:
        then = datetime.now(UTC) - timedelta(days)
        path = tmp_path / f"claimflow-workers-{then:%Y%m%dT%H%M%SZ}-0123456{days}"
        path.mkdir()
        if host is not None:
            (path / "lock").write_text(host, "utf-8")
        return path

    kept = [made(6, "elsewhere"), made(5, None), tmp_path / "claimflow-workers-of-mine"]
    # No time has such a name, and a lock is a file.
    kept.append(tmp_path / "claimflow-workers-99999999T999999Z-00000000")
    for path in kept[-2:]:
        path.mkdir()
    kept.append(made(2, None))
    (kept[-1] / "lock").symlink_to("/dev/zero")
    gone = [made(8, "elsewhere"), made(9, None), made(1, socket.gethostname())]
    folder_workers(tmp_path).close()
    assert all(path.is_dir() for path in kept)
    assert not any(path.exists() for path in gone)


def test_what_a_killed_run_left_in_object_storage_is_removed_after_days(s3: str) -> None:
    def made(days: int, name: str = "") -> str:
        then = datetime.now(UTC) - timedelta(days)
        key = f"n/claimflow-workers/{name or f'{then:%Y%m%dT%H%M%SZ}-01234567'}/samples-0.parquet"
        Bucket(parse_address(s3)).put(key, b"")
        return key

    kept = {made(6), made(9, "mine"), made(9, "99999999T999999Z-00000000")}
    made(8)
    folder_workers(f"{s3}/n").close()
    assert set(objects(s3)) == kept


def refused(folder: Path, workers: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What `run` prints, which ends before it makes a store."""
    config = write_pipeline(folder, workers)
    assert main(["run", str(config)]) == 2
    assert not (folder / "s.duckdb").exists()
    return capsys.readouterr().err.strip().removeprefix("20 samples\n")


def test_a_folder_that_is_not_there_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(tmp_path, "count: 2, folder: night", capsys) == (
        f"claimflow: {tmp_path}/shared.yaml:6 workers.folder: there is no folder "
        f"{tmp_path}/night; make it, or mount the disk that it is on"
    )


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that root cannot write")
def test_a_folder_that_cannot_be_written_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert re.fullmatch(
        rf"claimflow: {tmp_path}/shared.yaml:6 workers.folder: the process that runs the pipeline "
        r"cannot make /proc/claimflow-workers-\S+ \([\w ]+\); "
        "name a folder or an address that this process can read and write",
        refused(tmp_path, "count: 2, folder: /proc", capsys),
    )


def test_a_bucket_that_is_not_there_is_refused(
    tmp_path: Path, s3: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = refused(tmp_path, "count: 2, folder: 's3://no-such-bucket/n'", capsys)
    assert "workers.folder: the process that runs the pipeline cannot use s3://no-such-" in told
    assert "there is no bucket 'no-such-bucket'" in told
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in told


def test_a_worker_that_does_not_see_the_folder_is_named_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cluster").mkdir()
    # This folder is another one for each process.
    seen = "/proc/self/cwd"
    with dask_cluster(tmp_path / "cluster", workers=1) as address, chdir(tmp_path):
        workers = f"engine: dask, address: '{address}', folder: {seen}"
        told = refused(tmp_path, workers, capsys)
    assert re.fullmatch(
        rf"claimflow: {tmp_path}/shared.yaml:6 workers.folder: the worker tcp://127.0.0.1:\d+ does "
        rf"not see the folder {seen}/claimflow-workers-\S+, which every worker needs at that path; "
        "let every worker read and write the folder, by the same path",
        told,
    )
    assert list(tmp_path.glob(FOUND)) == []


def test_a_worker_that_joins_without_the_folder_ends_the_run(
    tmp_path: Path, stop: threading.Event
) -> None:
    shared, other = tmp_path / "shared", tmp_path / "other"
    for folder in (shared, other):
        folder.mkdir()
    with dask_cluster(shared, workers=1) as address, chdir(shared):
        shutil.copy(shared / SCHEDULER, other / SCHEDULER)
        engine = DaskWorkers(address, stop)
        with closing(FolderWorkers(engine, "/proc/self/cwd", "")) as workers, dask_workers(other):
            engine._client.wait_for_workers(2, timeout=60)
            with pytest.raises(WorkersError) as caught:
                list(workers.each(waits, [({"one": TABLE}, 0.2)] * 8, what="x"))
    assert re.fullmatch(
        rf"a worker on {re.escape(socket.gethostname())} \(process \d+\) does not see the folder "
        r"/proc/self/cwd/claimflow-workers-\S+, which every worker needs at that path",
        str(caught.value),
    )


def test_a_worker_with_another_folder_of_the_same_path_is_refused(tmp_path: Path) -> None:
    with closing(folder_workers(tmp_path)) as workers:
        (rows,) = workers.shared([TABLE])
        assert _problem(rows) == ""
        Path(rows.folder, rows.name).unlink()
        assert _problem(rows) == (
            f"wrote {rows.folder}/{rows.name}, which is not here: it has another folder"
        )
    assert _problem(OSError("lost")) == "cannot use the folder (OSError: lost)"


def test_an_address_with_keys_is_refused(tmp_path: Path) -> None:
    config = write_pipeline(tmp_path, "folder: 's3://me:hush@bucket/n'")
    with pytest.raises(InputError, match=r"workers\.folder") as caught:
        prepare(config)
    assert "hush" not in str(caught.value)
