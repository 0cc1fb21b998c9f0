import os
import resource
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from claimflow.flows.store.connection import Alone, Attached

ELSEWHERE = "import duckdb, sys; duckdb.connect(sys.argv[1]).execute('INSERT INTO t VALUES (2)')"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with duckdb.connect(tmp_path / "f.duckdb") as connection:
        connection.execute("CREATE SCHEMA s; CREATE TABLE s.t (n INT); CREATE TABLE t (n INT)")
        connection.execute("CREATE VIEW v AS FROM s.t")
    return tmp_path / "f.duckdb"


@pytest.mark.parametrize(
    "opened",
    [
        lambda path: Attached(path, read_only=True),
        lambda path: Attached(path, read_only=False),
        lambda path: Alone(path, True, {}),
    ],
    ids=["to read", "to write", "alone"],
)
@pytest.mark.parametrize("name", ["s.jsonl", "s.json", "s.csv", "s.parquet", "s.duckdb"])
def test_no_file_of_another_kind_is_taken_for_a_database(
    tmp_path: Path, opened: Callable[[Path], Attached | Alone], name: str
) -> None:
    other = tmp_path / name
    duckdb.sql("SELECT 1 AS a").write_parquet(str(other))
    if not name.endswith("parquet"):
        other.write_text('{"a": 1}\n')
    before = other.read_bytes()
    with pytest.raises(duckdb.IOException, match="not a valid DuckDB database file"):
        opened(other)
    assert other.read_bytes() == before


def test_a_database_may_have_any_name(tmp_path: Path) -> None:
    for name in ("new.json", "a b.csv"):
        with (
            closing(Attached(tmp_path / name, read_only=False)) as file,
            closing(file.cursor()) as own,
        ):
            own.execute("CREATE TABLE t AS SELECT 1 AS n")
        with closing(Alone(tmp_path / name, True, {})) as alone:
            assert alone.connection.execute("FROM t").fetchall() == [(1,)]


def write_elsewhere(path: Path) -> str:
    """What a process says that is to write into the file."""
    command = [sys.executable, "-c", ELSEWHERE, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def test_names_are_those_of_the_file_and_each_connection_has_tables_of_its_own(
    path: Path,
) -> None:
    with (
        closing(Attached(path, read_only=False)) as file,
        closing(file.cursor()) as one,
        closing(file.cursor()) as other,
    ):
        one.execute("INSERT INTO s.t VALUES (1); CREATE TEMP TABLE mine AS SELECT 1")
        assert other.execute("FROM v").fetchall() == [(1,)]
        with pytest.raises(duckdb.CatalogException, match="mine does not exist"):
            other.execute("FROM mine")


def test_others_have_it_when_it_is_closed(path: Path) -> None:
    file = Attached(path, read_only=True)
    assert "Could not set lock" in write_elsewhere(path)
    file.close()
    assert write_elsewhere(path) == ""
    with closing(Attached(path, read_only=True)) as file, closing(file.cursor()) as connection:
        assert connection.execute("FROM t").fetchall() == [(2,)]


@pytest.mark.parametrize("first", [True, False])
def test_a_file_is_open_once_in_a_process(path: Path, first: bool) -> None:
    with (
        closing(Attached(path, read_only=True) if first else Alone(path, True, {})),
        pytest.raises(duckdb.IOException, match=r"Could not set lock.*this process"),
    ):
        Alone(path, True, {}) if first else Attached(path, read_only=True)
    Attached(path, read_only=False).close()
    Alone(path, False, {}).close()


def test_two_files_are_apart(path: Path, tmp_path: Path) -> None:
    with (
        closing(Attached(path, read_only=True)),
        closing(Attached(tmp_path / "other.duckdb", read_only=False)) as other,
        closing(other.cursor()) as connection,
        pytest.raises(duckdb.CatalogException, match="t does not exist"),
    ):
        connection.execute("FROM t")


def test_what_was_committed_is_kept_where_there_is_no_room_to_close(path: Path) -> None:
    child = os.fork()
    if child == 0:
        limit = path.stat().st_size
        file = Attached(path, read_only=False)
        with closing(file.cursor()) as connection:
            connection.execute("INSERT INTO t FROM range(100_000)")
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        file.close()
        with closing(Attached(path, read_only=True)) as again, closing(again.cursor()) as own:
            found = own.execute("SELECT count(*) FROM t").fetchall()
        os._exit(found != [(100_000,)])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with duckdb.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchall() == [(100_000,)]


def test_a_sum_that_is_sorted_is_right(path: Path) -> None:
    wrong_by_itself = "SELECT sum(n)::BIGINT FROM u WHERE n >= (SELECT max(n) FROM s.t) ORDER BY 1"
    with duckdb.connect(path) as connection:
        connection.execute("INSERT INTO s.t VALUES (36)")
        connection.execute("CREATE TABLE u AS SELECT (31 + i)::INT AS n FROM range(10) r(i)")
    with (
        closing(Attached(path, read_only=True)) as file,
        closing(file.cursor()) as connection,
    ):
        assert connection.execute(wrong_by_itself).fetchall() == [(190,)]
    with closing(Alone(path, read_only=True, config={})) as alone:
        assert alone.connection.execute(wrong_by_itself).fetchall() == [(190,)]
