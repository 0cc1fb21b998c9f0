import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import duckdb
import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.store.connection import log_path
from claimflow.flows.store.read_copy import (
    copying,
    is_current,
    read_copy_path,
    rewrite,
    update_read_copy,
    write_read_copy,
)
from claimflow.flows.store.store import Store
from tests.flows.locked_store import LockedStore

COUNT = "SELECT count(*) FROM audit.runs"

PIPELINE = """
name: small
samples: {path: samples.jsonl}
store: small.duckdb
steps:
  context_matches: {use: lexical_match, against: retrieved_contexts}
"""

ASK = """
import sys
from argparse import Namespace
from pathlib import Path
from claimflow.flows.cli.inspect import sql
asking = Namespace(
    query="SELECT count(*) FROM samples", format="csv", output=None, timeout=60.0,
    store=Path(sys.argv[1]), config=None, live=False, path=False,
)
sys.exit(sum(sql(asking) for _ in range(50)))
"""

HOLD = """
import duckdb, sys
connection = duckdb.connect(sys.argv[1], read_only=True)
print(connection.execute("SELECT count(*) FROM audit.runs").fetchall()[0][0], flush=True)
sys.stdin.readline()
print(connection.execute("SELECT count(*) FROM audit.runs").fetchall()[0][0], flush=True)
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "evals.duckdb", wait=0.2)
    add_run(store)
    return store


@pytest.fixture
def small(tmp_path: Path, write_small: Callable[[Path], Path]) -> Path:
    """A pipeline that needs no model, over the usual samples."""
    path = write_small(tmp_path)
    path.write_text(PIPELINE, "utf-8")
    return path


def add_run(store: Store) -> None:
    with store.writing() as connection:
        connection.execute(
            "INSERT INTO audit.runs (run_id, pipeline, config_path, config, status, started_at,"
            " ended_at, host, process, made_by)"
            " SELECT 'r' || (SELECT count(*) FROM audit.runs), 'p', 'c', '',"
            " 'done', now()::TIMESTAMP, now()::TIMESTAMP, 'h', 1, 'v'"
        )


def run(folder: Path, *options: str) -> str:
    """Run the small pipeline; returns its standard error."""
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()) as printed, chdir(folder):
        assert main(["run", "small.yaml", *options]) == 0
    return printed.getvalue()


def copied(store: Store) -> list[tuple[int]]:
    with duckdb.connect(read_copy_path(store.path), read_only=True) as connection:
        return connection.execute(COUNT).fetchall()


def test_the_copy_is_beside_the_store_and_holds_the_same_rows(store: Store) -> None:
    assert read_copy_path(store.path).name == "evals.read.duckdb"
    assert not is_current(store.path)
    write_read_copy(store)
    assert is_current(store.path)
    assert copied(store) == [(1,)]
    assert sorted(path.name for path in store.path.parent.iterdir()) == [
        "evals.duckdb",
        "evals.read.duckdb",
    ]


def test_the_next_copy_holds_what_was_written_since(store: Store) -> None:
    write_read_copy(store)
    add_run(store)
    assert not is_current(store.path)
    assert copied(store) == [(1,)]
    write_read_copy(store)
    assert copied(store) == [(2,)]


def test_nothing_is_copied_where_nothing_has_changed(store: Store) -> None:
    write_read_copy(store)
    before = read_copy_path(store.path).stat().st_ino
    write_read_copy(store)
    assert read_copy_path(store.path).stat().st_ino == before


@pytest.fixture(scope="session")
def older_duckdb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with DuckDB 1.1, the oldest that can open a read copy, from the package index."""
    folder = tmp_path_factory.mktemp("duckdb")
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--only-binary=:all:", "-q"]
    found = subprocess.run(
        [*pip, "--target", str(folder), "duckdb==1.1.*"],
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        pytest.skip(f"no older duckdb could be installed: {found.stderr.strip()[-200:]}")
    return folder


READ_ALL = """
import duckdb, sys
connection = duckdb.connect(sys.argv[1], read_only=True)
names = connection.execute(
    "SELECT schema_name, table_name FROM duckdb_tables() UNION ALL "
    "SELECT schema_name, view_name FROM duckdb_views() WHERE NOT internal"
).fetchall()
for schema, name in names:
    connection.execute(f"FROM {schema}.{name}").fetchall()
counts = connection.execute("SELECT count(*), count(score) FROM latest.scores").fetchall()
comments = connection.execute(
    "SELECT count(comment) = count(*) FROM duckdb_columns() WHERE schema_name = 'latest'"
).fetchall()
print(duckdb.__version__, len(names), *counts[0], comments[0][0])
"""


def test_an_older_duckdb_reads_every_table_and_view_of_the_copy(
    older_duckdb: Path, tmp_path: Path, write_small: Callable[[Path], Path]
) -> None:
    write_small(tmp_path)
    run(tmp_path)
    store = Store(tmp_path / "small.duckdb")
    with store.reading() as connection:
        tables = connection.execute(
            "SELECT (SELECT count(*) FROM duckdb_tables()) + "
            "(SELECT count(*) FROM duckdb_views() WHERE NOT internal)"
        ).fetchall()[0][0]
    read = subprocess.run(
        [sys.executable, "-c", READ_ALL, str(read_copy_path(store.path))],
        env=os.environ | {"PYTHONPATH": str(older_duckdb)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert read.stderr == ""
    version, *found = read.stdout.split()
    print(f"read by DuckDB {version}")
    assert version.startswith("1.1.")
    assert found == [str(tables), "12", "8", "True"]


def test_the_copy_has_the_comments_of_the_store(store: Store) -> None:
    write_read_copy(store)
    every = (
        "SELECT schema_name, table_name, column_name, comment FROM duckdb_columns() UNION ALL "
        "SELECT schema_name, table_name, '', comment FROM duckdb_tables() UNION ALL "
        "SELECT schema_name, view_name, '', comment FROM duckdb_views() ORDER BY ALL"
    )
    found = []
    for path in (store.path, read_copy_path(store.path)):
        with duckdb.connect(path, read_only=True) as connection:
            found.append(connection.execute(every).fetchall())
    assert found[0] == found[1]
    assert ("audit", "calls", "reply", "the reply a") in {
        (*names, (comment or "")[:11]) for *names, comment in found[1]
    }


def test_the_copy_has_the_storage_version_of_duckdb_1_1(store: Store) -> None:
    write_read_copy(store)
    # The header is the same in every DuckDB: a checksum, "DUCK", the number of the version. It is
    # 64 up to 1.1, and each newer one refuses what it does not know.
    content = read_copy_path(store.path).read_bytes()[8:20]
    assert content == b"DUCK" + (64).to_bytes(8, "little")


def test_its_views_work_under_any_name_it_is_attached_as(store: Store) -> None:
    write_read_copy(store)
    with duckdb.connect() as connection:
        path = str(read_copy_path(store.path))
        connection.execute("ATTACH $path AS anything (READ_ONLY)", {"path": path})
        assert connection.execute("FROM anything.claims").fetchall() == []
        assert connection.execute("FROM anything.latest.claims").fetchall() == []


def test_the_copy_is_read_only(store: Store) -> None:
    write_read_copy(store)
    assert read_copy_path(store.path).stat().st_mode & 0o222 == 0


def test_the_copy_holds_what_a_crash_left_in_the_log(store: Store) -> None:
    die = (
        "import duckdb, os, sys; c = duckdb.connect(sys.argv[1]);"
        "c.execute(\"UPDATE audit.runs SET pipeline = 'logged'\"); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", die, str(store.path)], check=False)
    assert store.path.with_name("evals.duckdb.wal").exists()
    write_read_copy(store)
    with duckdb.connect(read_copy_path(store.path), read_only=True) as connection:
        assert connection.execute("SELECT pipeline FROM audit.runs").fetchall() == [("logged",)]


def test_a_log_of_writes_into_the_copy_is_not_applied_to_the_next_copy(
    store: Store,
) -> None:
    write_read_copy(store)
    log = read_copy_path(store.path).with_name("evals.read.duckdb.wal")
    log.write_bytes(b"somebody's")
    add_run(store)
    write_read_copy(store)
    assert not log.exists()
    assert copied(store) == [(2,)]


def test_old_unfinished_copies_are_removed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    young = store.path.with_name(".evals.read.duckdb.2-b.part")
    young.write_bytes(b"half")
    write_read_copy(store)
    assert young.exists()
    add_run(store)
    later = time.time() + 4000
    monkeypatch.setattr(time, "time", lambda: later)
    write_read_copy(store)
    assert not young.exists()


def test_concurrent_writers_of_the_copy_leave_one_whole_copy(store: Store) -> None:
    code = (
        "import sys; from pathlib import Path; from claimflow.flows.store.store import Store;"
        "from claimflow.flows.store.read_copy import write_read_copy;"
        "write_read_copy(Store(Path(sys.argv[1])))"
    )
    command = [sys.executable, "-c", code, str(store.path)]
    for process in [subprocess.Popen(command) for _ in range(2)]:
        assert process.wait() == 0
    assert copied(store) == [(1,)]
    assert len(list(store.path.parent.iterdir())) == 2


def test_the_store_stays_locked_while_it_is_copied(store: Store) -> None:
    write = [sys.executable, "-c", "import duckdb, sys; duckdb.connect(sys.argv[1])", store.path]
    with copying(store, store.path) as (connection, folder):
        part = rewrite(connection, folder)
        other = subprocess.run(write, capture_output=True, text=True, check=False)
        assert "Could not set lock" in other.stderr
        assert part.is_file()
    assert [path.name for path in store.path.parent.iterdir()] == ["evals.duckdb"]
    assert subprocess.run(write, check=False).returncode == 0


def test_a_copy_that_cannot_be_made_is_only_logged(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    write_read_copy(store)
    add_run(store)
    with LockedStore(store.path), caplog.at_level(logging.WARNING):
        update_read_copy(store, wanted=True)
    assert caplog.messages == [
        f"{store.path}: another process has held the store for 0 s; close it, or try again later; "
        "until it is, queries without --live see an older state"
    ]
    assert copied(store) == [(1,)]


def test_a_pipeline_without_a_read_copy(small: Path) -> None:
    copy = small.with_name("small.read.duckdb")
    run(small.parent)
    assert copy.is_file()
    small.write_text(small.read_text().replace("store:", "read_copy: false\nstore:"))
    run(small.parent)
    assert not copy.exists()


def test_a_copy_is_older_than_the_log_of_its_store(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(small.parent)
    capsys.readouterr()
    store = small.with_name("small.duckdb")
    assert is_current(store)
    # A process that keeps the store open leaves what it writes in the log for a while.
    log = log_path(store)
    log.write_bytes(b"x")
    assert not is_current(store)
    before = time.time() - 100
    os.utime(log, (before, before))
    os.utime(store, (before, before))
    os.utime(small.with_name("small.read.duckdb"), (before, before))
    assert main(["sql", COUNT, "--format", "csv", "--store", str(store)]) == 0
    assert "is older than the store" in capsys.readouterr().err
    os.utime(log)
    assert main(["sql", COUNT, "--format", "csv", "--store", str(store)]) == 0
    assert not capsys.readouterr().err


def test_commands_read_the_copy_or_the_store_and_warn_of_an_old_copy(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(small.parent)
    capsys.readouterr()
    store, copy = small.with_name("small.duckdb"), small.with_name("small.read.duckdb")
    asking = ["sql", COUNT, "--format", "csv", "--store", str(store)]
    add_run(Store(store))

    def printed(*options: str) -> tuple[str, str]:
        assert main([*asking, *options]) == 0
        message = capsys.readouterr()
        return message.out.split()[1], message.err

    assert printed() == ("1", "")
    assert printed("--live") == ("2", "")
    before = time.time() - 100
    os.utime(store, (before, before))
    assert printed() == (
        "1",
        f"claimflow: {copy} is older than the store: what a run, a viewer or a command wrote last "
        "is not in it; add --live to read the store itself\n",
    )
    copy.unlink()
    assert printed() == (
        "2",
        f"claimflow: {copy} does not exist: reading the store itself when it is free\n",
    )


def test_a_reader_of_the_copy_does_not_block_a_run_and_sees_it_on_reopening(
    small: Path,
) -> None:
    run(small.parent)
    copy = small.with_name("small.read.duckdb")
    command = [sys.executable, "-c", HOLD, str(copy)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "1\n"
        run(small.parent)
        assert holder.communicate("\n")[0] == "1\n"
    with duckdb.connect(copy, read_only=True) as connection:
        assert connection.execute(COUNT).fetchall() == [(2,)]


def test_queries_during_runs_all_succeed(small: Path) -> None:
    run(small.parent)
    command = [sys.executable, "-c", ASK, str(small.with_name("small.duckdb"))]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as asking:
        assert asking.stdout is not None
        printed = asking.stdout.readline() + asking.stdout.readline()
        runs = 1
        while asking.poll() is None:
            run(small.parent, "--again", "context_matches")
            runs += 1
        out, err = asking.communicate()
    assert (asking.returncode, err) == (0, "")
    names, counts = (f"{printed}{out}".split()[start::2] for start in (0, 1))
    assert set(names) == {"count_star()"}
    assert len(counts) == 50
    assert sorted(counts, key=int) == counts
    assert {int(count) % 3 for count in counts} == {0}
    assert 3 == int(counts[0]) < int(counts[-1]) <= 3 * runs
