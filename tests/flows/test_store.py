import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.errors import Fault, InputError, StoreBusyError
from claimflow.flows.store.arrow import insert, read_table
from claimflow.flows.store.connection import OpenFile
from claimflow.flows.store.schema import SCHEMA_VERSION
from claimflow.flows.store.segments import columns_of, stored_lists
from claimflow.flows.store.store import Store
from claimflow.stages.rows import Sample, row_kinds
from claimflow.stages.tables import build, schema

HOLD = """
import duckdb, sys
connection = duckdb.connect(sys.argv[1], read_only=sys.argv[2] == "read")
print("held", flush=True)
sys.stdin.read()
"""


QUERIES = """
import signal, sys
from pathlib import Path
from claimflow.flows.store.arrow import read_table
from claimflow.flows.store.store import Store

# Processes in the background are started without it.
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    with Store(Path(sys.argv[1])).reading() as connection:
        print("reading", flush=True)
        # Many short queries: it comes during one of them, or between two.
        for _ in range(500):
            read_table(connection, "SELECT sum(hash(range)) AS n FROM range(50_000_000)")
except BaseException as error:
    print(type(error).__name__)
"""


def hold(path: Path, how: str) -> subprocess.Popen[str]:
    """Start another process that keeps the file open."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "folder" / "s.duckdb", wait=0.3)
    with store.writing():
        pass
    return store


def test_every_kind_of_row_has_a_table_and_a_view(store: Store) -> None:
    with store.reading() as connection:
        for row in row_kinds():
            frame = read_table(connection, f"SELECT * FROM {row.table}")
            # `end` is a reserved word of SQL.
            columns = ["stop" if name == "end" else name for name in schema(row)]
            assert frame.columns == ["run_id", "step", *columns]
            latest = read_table(connection, f"SELECT * FROM latest.{row.table}")
            assert latest.columns == ["pipeline", "run_id", "step", *columns]


def test_rows_are_read_as_they_were_written(store: Store) -> None:
    samples = build(
        Sample,
        [
            {
                "sample_id": "ä \0 🙂",
                "retrieved_contexts": ["x", ""],
                "metadata": '{"a":1}',
            },
            {"sample_id": "2", "response": "", "retrieved_contexts": []},
        ],
    )
    with store.writing() as connection:
        insert(connection, "stored.samples", samples, as_json=stored_lists(Sample), segment=1)
    with store.reading() as connection:
        names = columns_of(Sample, Sample.model_fields)
        query = f"SELECT {names} FROM stored.samples AS rows WHERE segment = $segment"
        assert read_table(connection, query, segment=1).equals(samples)


def test_row_groups_are_small_and_those_of_an_earlier_release_stay(store: Store) -> None:
    rows = pl.DataFrame({"segment": range(30_000), "digest": "0" * 32})
    with duckdb.connect(str(store.path)) as connection:
        insert(connection, "audit.segments", rows, kind="samples")
    for _ in range(3):
        with store.writing() as connection:
            insert(connection, "audit.segments", rows.head(10_000), kind="claims")
    with store.reading() as connection:
        groups = connection.execute(
            "SELECT sum(count)::INTEGER FROM pragma_storage_info('audit.segments') "
            "WHERE column_name = 'kind' AND segment_type <> 'VALIDITY' "
            "GROUP BY row_group_id ORDER BY row_group_id"
        ).fetchall()
        kinds = "SELECT kind, count(*), sum(segment) FROM audit.segments GROUP BY kind ORDER BY 1"
        found = connection.execute(kinds).fetchall()
    (of_before,), *others = groups
    assert of_before == 30_000
    assert max(rows for (rows,) in others) <= 16_384
    assert found == [("claims", 30_000, 3 * 49_995_000), ("samples", 30_000, 449_985_000)]


def test_an_error_while_writing_rolls_everything_back(store: Store) -> None:
    with pytest.raises(RuntimeError), store.writing() as connection:
        connection.execute("CREATE TABLE half (a INTEGER)")
        raise RuntimeError
    with store.reading() as connection, pytest.raises(duckdb.CatalogException):
        connection.execute("FROM half")


def test_a_writer_waits_for_a_reader_in_another_process_and_then_gives_up(store: Store) -> None:
    process = hold(store.path, "read")
    with process, store.reading():
        pass
    process = hold(store.path, "read")
    with process:
        with pytest.raises(StoreBusyError) as caught, store.writing():
            pass
        process.communicate()
    assert str(caught.value) == (
        f"{store.path}: another process has held the store for 0 s; close it, or try again later"
    )


def test_a_writer_in_another_process_that_ends_in_time_is_waited_for(store: Store) -> None:
    patient = Store(store.path, wait=20)
    process = hold(store.path, "write")
    threading.Timer(0.3, process.communicate).start()
    with patient.writing() as connection:
        connection.execute("CREATE TABLE mine (a INTEGER)")
    process.wait()


def test_ctrl_c_during_a_query_is_ctrl_c(store: Store) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", QUERIES, str(store.path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "reading\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == ("KeyboardInterrupt\n", None)


def test_threads_take_turns(store: Store) -> None:
    def add() -> None:
        for _ in range(10):
            with store.writing() as connection:
                frame = pl.DataFrame({"key": ["00000000-0000-0000-0000-000000000001"]})
                insert(connection, "audit.replies", frame.with_columns(reply=b"x"), **meta)

    meta = {"tool": "t", "made_at": "2026-01-01"}
    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with store.reading() as connection:
        assert connection.execute("SELECT count(*) FROM audit.replies").fetchall() == [(40,)]


def test_reading_where_there_is_no_store_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught, Store(tmp_path / "none.duckdb").reading():
        pass
    path = tmp_path / "none.duckdb"
    assert str(caught.value) == f"{path}: there is no store here; run a pipeline first"


def test_a_pipe_is_no_store(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    store = Store(tmp_path / "pipe")
    with pytest.raises(InputError, match="is no regular file; name a file"), store.writing():
        pass


def test_a_link_to_itself_is_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loop = tmp_path / "loop.duckdb"
    loop.symlink_to(loop)
    assert main(["sql", "SELECT 1", "--store", str(loop)]) == 2
    assert f"{loop}: there is no store here; run a pipeline first" in capsys.readouterr().err
    assert main(["ledger", str(loop), "--port", "0"]) == 2
    assert str(loop) in capsys.readouterr().err


def test_a_file_of_other_tables_is_no_store(tmp_path: Path) -> None:
    path = tmp_path / "other.duckdb"
    duckdb.connect(path).close()
    with pytest.raises(InputError) as caught, Store(path).reading():
        pass
    assert str(caught.value) == f"{path}: there is no store in it; run a pipeline first"


def test_a_file_that_is_no_database_is_an_input_error(tmp_path: Path) -> None:
    path = tmp_path / "text.duckdb"
    path.write_text("not a database, but long enough to be looked at " * 200)
    with pytest.raises(InputError) as caught, Store(path).writing():
        pass
    assert str(caught.value) == (
        f"{path}: cannot be opened as a store; name a DuckDB file that claimflow made"
    )


def test_a_file_that_the_system_does_not_open_is_an_input_error(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 300)
    with pytest.raises(InputError) as caught, Store(path).writing():
        pass
    assert (
        str(caught.value) == f"{path}: cannot be opened (File name too long); name a file of yours"
    )


def test_a_database_with_other_tables_is_refused_and_left_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "other.duckdb"
    with duckdb.connect(path) as other:
        other.execute("CREATE TABLE claims (a INTEGER)")
    with pytest.raises(InputError) as caught, Store(path).writing():
        pass
    assert str(caught.value) == (
        f"{path}: is not a store: it has other tables, such as 'claims'; "
        "name another file as the store"
    )
    with duckdb.connect(path) as other:
        assert other.execute("SELECT table_name FROM duckdb_tables()").fetchall() == [("claims",)]


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        (lambda raw: raw[: len(raw) // 2], "Could not read enough bytes"),
        (
            lambda raw: raw[:20_000] + bytes(byte ^ 255 for byte in raw[20_000:]),
            "Corrupt database file",
        ),
    ],
    ids=["cut off", "garbled"],
)
def test_a_damaged_store_is_an_input_error(
    store: Store, tmp_path: Path, damage: Callable[[bytes], bytes], cause: str
) -> None:
    with store.writing():
        pass
    damaged = tmp_path / "damaged.duckdb"
    damaged.write_bytes(damage(store.path.read_bytes()))
    with pytest.raises(InputError) as caught, Store(damaged).reading() as connection:
        connection.execute("SELECT * FROM audit.runs").fetchall()
    assert str(caught.value) == (
        f"{damaged}: is damaged ({cause}); put a whole copy in its place, or name another store"
    )


def test_a_folder_that_cannot_be_made_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "s.duckdb"
    with pytest.raises(InputError) as caught, Store(path).writing():
        pass
    assert str(caught.value) == (
        f"{path}: its folder cannot be made (File exists); name a store in a folder that you "
        "can write to"
    )


def test_a_folder_in_which_no_file_can_be_made_is_an_input_error(store: Store) -> None:
    with store.writing():
        pass
    log = store.path.with_name(f"{store.path.name}.wal")
    with pytest.raises(InputError) as caught, store.writing() as connection:
        connection.execute("CREATE TABLE audit.more (number INTEGER)")
        # Root may write everywhere, but no file can be where a folder is.
        log.unlink()
        log.mkdir()
    what = "no file can be made beside it (Is a directory)"
    hint = "name a store in a folder that you can write to"
    assert caught.value.faults == [Fault(str(store.path), what, hint)]


def test_a_read_copy_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with Store(tmp_path / "s.duckdb").writing():
        pass
    copy = tmp_path / ("x" * 300)
    store = Store(tmp_path / "s.duckdb", copy=copy)
    with pytest.raises(InputError) as caught, store.reading():
        pass
    [fault] = caught.value.faults
    assert fault.place == str(copy)
    assert fault.hint == "make it readable, or delete it: the next run writes it again"


def test_a_store_of_another_version_is_refused(store: Store) -> None:
    with store.writing() as connection:
        connection.execute("UPDATE audit.store SET schema_version = 99")
    with pytest.raises(InputError) as caught, Store(store.path).writing():
        pass
    assert str(caught.value) == (
        f"{store.path}: holds schema version 99, and this claimflow writes {SCHEMA_VERSION}; "
        "use the claimflow that made it, or a new store"
    )


@pytest.mark.parametrize("torn", [False, True], ids=["whole", "torn"])
def test_a_file_that_is_replaced_while_it_is_opened_is_opened_again(
    torn: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("copy", "next"):
        with duckdb.connect(tmp_path / name) as connection:
            connection.execute("CREATE TABLE t AS SELECT $name AS name", {"name": name})

    def replaced_meanwhile(path: Path, **options: Any) -> OpenFile:
        file = OpenFile(path, **options)
        if (tmp_path / "next").exists():
            (tmp_path / "next").replace(path)
            if torn:
                file.close()
                raise duckdb.IOException("IO Error: No more data remaining in MetadataReader")
        return file

    monkeypatch.setattr("claimflow.flows.store.store.OpenFile", replaced_meanwhile)
    store = Store(tmp_path / "store", copy=tmp_path / "copy")
    store.path.touch()
    with store.reading(any_version=True, config={}) as connection:
        assert connection.execute("FROM t").fetchall() == [("next",)]


def test_the_log_can_be_read_by_the_owner_of_the_store_only(store: Store) -> None:
    log = store.path.with_name(f"{store.path.name}.wal")
    before = os.umask(0)
    try:
        for _ in range(2):
            with store.writing() as connection:
                connection.execute("CREATE OR REPLACE TABLE mine AS FROM range(9)")
                connection.commit()
                assert log.stat().st_size
                assert log.stat().st_mode & 0o777 == 0o600
                connection.begin()
            assert not log.exists()
        # What is not written leaves no log.
        with pytest.raises(RuntimeError), store.writing():
            raise RuntimeError
        assert not log.exists()
    finally:
        os.umask(before)
