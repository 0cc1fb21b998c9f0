import os
import resource
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import duckdb
import pytest

from claimflow.flows.store.connection import OpenFile

ELSEWHERE = "import duckdb, sys; duckdb.connect(sys.argv[1]).execute('INSERT INTO t VALUES (2)')"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with duckdb.connect(tmp_path / "f.duckdb") as connection:
        connection.execute("CREATE SCHEMA s; CREATE TABLE s.t (n INT); CREATE TABLE t (n INT)")
        connection.execute("CREATE VIEW v AS FROM s.t")
    return tmp_path / "f.duckdb"


@pytest.mark.parametrize(
    "open_file",
    [
        lambda path: OpenFile(path, read_only=True),
        lambda path: OpenFile(path, read_only=False),
        lambda path: OpenFile(path, read_only=True, config={}),
    ],
    ids=["to read", "to write", "own settings"],
)
@pytest.mark.parametrize("name", ["s.jsonl", "s.json", "s.csv", "s.parquet", "s.duckdb"])
def test_a_file_of_another_kind_is_not_opened_as_a_database(
    tmp_path: Path, open_file: Callable[[Path], OpenFile], name: str
) -> None:
    other = tmp_path / name
    duckdb.sql("SELECT 1 AS a").write_parquet(str(other))
    if not name.endswith("parquet"):
        other.write_text('{"a": 1}\n')
    before = other.read_bytes()
    with pytest.raises(duckdb.IOException, match="not a valid DuckDB database file"):
        open_file(other)
    assert other.read_bytes() == before


def test_a_database_may_have_any_name(tmp_path: Path) -> None:
    for name in ("new.json", "a b.csv"):
        with (
            closing(OpenFile(tmp_path / name, read_only=False)) as file,
            closing(file.cursor()) as own,
        ):
            own.execute("CREATE TABLE t AS SELECT 1 AS n")
        with (
            closing(OpenFile(tmp_path / name, read_only=True, config={})) as file,
            closing(file.cursor()) as own,
        ):
            assert own.execute("FROM t").fetchall() == [(1,)]


def write_elsewhere(path: Path) -> str:
    """What another process writes to stderr when it inserts a row."""
    command = [sys.executable, "-c", ELSEWHERE, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def test_names_refer_to_the_file_and_each_connection_has_its_own_temporary_tables(
    path: Path,
) -> None:
    with (
        closing(OpenFile(path, read_only=False)) as file,
        closing(file.cursor()) as one,
        closing(file.cursor()) as other,
    ):
        one.execute("INSERT INTO s.t VALUES (1); CREATE TEMP TABLE mine AS SELECT 1")
        assert other.execute("FROM v").fetchall() == [(1,)]
        with pytest.raises(duckdb.CatalogException, match="mine does not exist"):
            other.execute("FROM mine")


def test_another_process_can_open_the_file_when_it_is_closed(path: Path) -> None:
    file = OpenFile(path, read_only=True)
    assert "Could not set lock" in write_elsewhere(path)
    file.close()
    assert write_elsewhere(path) == ""
    with closing(OpenFile(path, read_only=True)) as file, closing(file.cursor()) as connection:
        assert connection.execute("FROM t").fetchall() == [(2,)]


@pytest.mark.parametrize(("first", "second"), [(None, {}), ({}, None)])
def test_a_file_is_open_once_in_a_process(
    path: Path, first: dict[str, str] | None, second: dict[str, str] | None
) -> None:
    with (
        closing(OpenFile(path, read_only=True, config=first)),
        pytest.raises(duckdb.IOException, match=r"Could not set lock.*this process"),
    ):
        OpenFile(path, read_only=True, config=second)
    OpenFile(path, read_only=False).close()
    OpenFile(path, read_only=False, config={}).close()


def test_two_open_files_do_not_see_each_other(path: Path, tmp_path: Path) -> None:
    with (
        closing(OpenFile(path, read_only=True)),
        closing(OpenFile(tmp_path / "other.duckdb", read_only=False)) as other,
        closing(other.cursor()) as connection,
        pytest.raises(duckdb.CatalogException, match="t does not exist"),
    ):
        connection.execute("FROM t")


@pytest.mark.parametrize("statement", ["FROM duckdb_tables()", "FROM unknown"])
def test_a_transaction_in_one_file_does_not_keep_another_open(
    path: Path, tmp_path: Path, statement: str
) -> None:
    """Each statement looks at the tables of every file that is attached to the same DuckDB."""
    other = OpenFile(path, read_only=True)
    with (
        closing(OpenFile(tmp_path / "mine.duckdb", read_only=False)) as mine,
        closing(mine.cursor()) as connection,
    ):
        connection.begin()
        with suppress(duckdb.CatalogException):
            connection.execute(statement).fetchall()
        other.close()
        assert write_elsewhere(path) == ""
        OpenFile(path, read_only=False).close()


def test_committed_rows_are_kept_when_the_disk_is_full_at_close(path: Path) -> None:
    child = os.fork()
    if child == 0:
        limit = path.stat().st_size
        file = OpenFile(path, read_only=False)
        with closing(file.cursor()) as connection:
            connection.execute("INSERT INTO t FROM range(100_000)")
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        file.close()
        with closing(OpenFile(path, read_only=True)) as again, closing(again.cursor()) as own:
            found = own.execute("SELECT count(*) FROM t").fetchall()
        os._exit(found != [(100_000,)])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with duckdb.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchall() == [(100_000,)]


def test_a_sorted_sum_is_correct(path: Path) -> None:
    wrong_if_optimized = (
        "SELECT sum(n)::BIGINT FROM u WHERE n >= (SELECT max(n) FROM s.t) ORDER BY 1"
    )
    with duckdb.connect(path) as connection:
        connection.execute("INSERT INTO s.t VALUES (36)")
        connection.execute("CREATE TABLE u AS SELECT (31 + i)::INT AS n FROM range(10) r(i)")
    with (
        closing(OpenFile(path, read_only=True)) as file,
        closing(file.cursor()) as connection,
    ):
        assert connection.execute(wrong_if_optimized).fetchall() == [(190,)]
    with (
        closing(OpenFile(path, read_only=True, config={})) as file,
        closing(file.cursor()) as connection,
    ):
        assert connection.execute(wrong_if_optimized).fetchall() == [(190,)]
