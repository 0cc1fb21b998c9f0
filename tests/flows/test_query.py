import hashlib
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import polars as pl
import pytest

from claimflow.flows.errors import InputError, StoreBusyError
from claimflow.flows.store.query import only_select, query, tables
from claimflow.flows.store.read_copy import readable_store, write_read_copy
from claimflow.flows.store.runs import process_alive
from claimflow.flows.store.store import Store
from tests.flows.forks import children
from tests.flows.locked_store import LockedStore

NO_SELECT: Final = """
ALTER TABLE audit.runs ADD COLUMN mine INTEGER
ANALYZE audit.runs
ATTACH '{out}' AS mine
BEGIN
CALL enable_logging(storage := 'file', storage_path := '{out}')
CALL force_checkpoint()
CHECKPOINT
COMMENT ON TABLE audit.runs IS 'mine'
COMMIT
COPY (SELECT 1) TO '{out}'
COPY (SELECT 1) TO '{store}' (FORMAT csv, USE_TMP_FILE false)
COPY (SELECT 1) TO '{store}.wal' (FORMAT csv, USE_TMP_FILE false)
COPY audit.runs FROM '{file}'
COPY FROM DATABASE s TO memory
CREATE MACRO mine() AS 1
CREATE OR REPLACE VIEW scores AS SELECT 1
CREATE PERSISTENT SECRET mine (TYPE s3)
CREATE SCHEMA mine
CREATE SEQUENCE mine
CREATE TABLE mine AS SELECT 1
CREATE TEMP TABLE mine AS SELECT 1
CREATE TYPE mine AS ENUM ('a')
DEALLOCATE mine
DELETE FROM audit.runs
DETACH s
DROP VIEW scores
EXECUTE mine
EXPLAIN ANALYZE COPY (SELECT 1) TO '{store}' (FORMAT csv, USE_TMP_FILE false)
EXPLAIN SELECT 1
EXPORT DATABASE '{out}'
FORCE CHECKPOINT
IMPORT DATABASE '{out}'
INSERT INTO audit.runs (run_id) VALUES ('mine')
INSTALL httpfs
LOAD httpfs
MERGE INTO audit.runs USING audit.tags USING (run_id) WHEN MATCHED THEN DELETE
PIVOT audit.runs ON status USING count(*)
PRAGMA enable_profiling = 'json'
PRAGMA profiling_output = '{out}'
PREPARE mine AS SELECT 1
RESET memory_limit
ROLLBACK
SELECT 1; COPY (SELECT 1) TO '{store}' (FORMAT csv, USE_TMP_FILE false)
SET disabled_filesystems = ''
SET enable_external_access = true
SET memory_limit = '90GB'
SET VARIABLE mine = 1
TRUNCATE audit.runs
UPDATE audit.runs SET status = 'done'
UPDATE EXTENSIONS
USE memory
VACUUM
WITH mine AS (SELECT 'mine' AS run_id) INSERT INTO audit.runs (run_id) FROM mine
"""

SELECT_THAT_WRITES: Final = """
FROM copy_database('{name}', 'memory')
FROM enable_logging(storage := 'file', storage_path := '{out}')
FROM enable_profiling(save_location := '{out}')
FROM enable_profiling(save_location := '{store}')
FROM force_checkpoint()
FROM glob('*')
FROM import_database('{out}')
FROM json_execute_serialized_sql(json_serialize_sql('FROM read_csv(''{file}'')'))
FROM query('COPY (SELECT 1) TO ''{store}'' (FORMAT csv, USE_TMP_FILE false)')
FROM query('WITH a AS (COPY (SELECT 1) TO ''{store}'' (FORMAT csv, USE_TMP_FILE false)) FROM a')
FROM read_blob('{store}')
FROM read_duckdb('{store}', table_name := 'runs')
FROM sniff_csv('{file}')
SELECT * FROM '{file}'
SELECT * FROM duckdb_extensions()
SELECT * FROM frame
SELECT * FROM read_csv('{file}')
SELECT * FROM read_text('{file}')
SELECT getenv('HOME')
SELECT nextval('mine')
SELECT setval('mine', 1)
WITH a AS (COPY (SELECT 1) TO '{out}') FROM a
WITH a AS (COPY (SELECT 1) TO '{store}' (FORMAT csv, USE_TMP_FILE false)) FROM a
WITH a AS (COPY (SELECT 1) TO '{store}.wal' (FORMAT csv, USE_TMP_FILE false)) FROM a
WITH a AS (COPY audit.runs FROM '{file}') FROM a
WITH a AS (DELETE FROM audit.runs RETURNING *) FROM a
WITH a AS (INSERT INTO audit.runs (run_id) VALUES ('mine') RETURNING *) FROM a
WITH a AS (MERGE INTO audit.runs USING audit.tags USING (run_id) WHEN MATCHED THEN DELETE) FROM a
WITH a AS (UPDATE audit.runs SET status = 'done' RETURNING *) FROM a
"""
"""For DuckDB these are SELECTs, or look like one: they write, read files or change settings."""

SLOW: Final = "SELECT levenshtein(repeat('a', 100000), repeat('b', 100000))"
"""DuckDB does not interrupt a function that is computing."""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "s.duckdb")
    with store.writing():
        pass
    return store


def refusal(store: Store, sql: str, seconds: float = 60) -> str:
    with pytest.raises(InputError) as caught:
        query(store, sql, seconds=seconds)
    return str(caught.value)


def names_of(store: Store) -> dict[str, object]:
    """What stands for the blanks of the statements."""
    folder = store.path.parent
    return {"store": store.path, "file": folder / "file.csv", "out": folder / "out", "name": "s"}


def contents(folder: Path) -> dict[str, str]:
    """The digest of each file."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_a_query_returns_a_table(store: Store) -> None:
    assert query(store, "SELECT 1 AS a, 'x' AS b", seconds=60).rows() == [(1, "x")]


def test_only_the_first_rows_are_returned(store: Store) -> None:
    assert query(store, "SELECT * FROM range(9)", seconds=60, rows=2).rows() == [(0,), (1,)]
    assert query(store, "SELECT 1", seconds=60, rows=2).rows() == [(1,)]


@pytest.mark.parametrize(
    ("sql", "parameters"),
    [("SELECT ?, ?", ["O'Hara", [1, 2]]), ("SELECT $a, $b", {"a": "O'Hara", "b": [1, 2]})],
)
def test_a_query_has_parameters(
    store: Store, sql: str, parameters: list[object] | dict[str, object]
) -> None:
    assert query(store, sql, parameters).rows() == [("O'Hara", [1, 2])]
    assert query(store, sql, parameters, rows=1).rows() == [("O'Hara", [1, 2])]


@pytest.mark.parametrize(
    ("sql", "parameters", "message"),
    [
        ("SELECT $a", None, "Values were not provided for the following parameters: a"),
        ("SELECT ?", [], "Values were not provided for the following parameters: 1"),
        ("SELECT ?", [Path("x")], "Unable to transform python value of type"),
    ],
)
def test_missing_and_unknown_values_of_parameters_are_input_errors(
    store: Store, sql: str, parameters: list[object] | None, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        query(store, sql, parameters)
    assert message in str(caught.value)
    assert str(caught.value).endswith(
        "; give a value for each ? or $name, of a type that DuckDB has"
    )


def test_queries_run_from_threads_while_a_run_writes(store: Store) -> None:
    write_read_copy(store)
    with LockedStore(store.path), ThreadPoolExecutor(2) as threads:
        read = readable_store(store.path)
        answers = threads.map(lambda n: query(read, "SELECT ? + count(*) FROM scores", [n]), (1, 2))
        assert [answer.item() for answer in answers] == [1, 2]


def test_columns_that_share_a_name_are_numbered(store: Store) -> None:
    answer = query(store, 'SELECT 1 AS a, 2 AS a, 3 AS a_1, 4 AS a, 5 AS "b""c"', seconds=60)
    assert answer.to_dicts() == [{"a": 1, "a_1": 2, "a_1_1": 3, "a_2": 4, 'b"c': 5}]


def test_names_that_differ_only_in_case_are_kept(store: Store) -> None:
    answer = query(store, 'SELECT 1 AS a, INTERVAL 1 DAY AS "A"', seconds=60)
    assert answer.to_dicts() == [{"a": 1, "A": "1 day"}]


def test_renamed_columns_keep_the_order_of_rows(store: Store) -> None:
    sql = "SELECT range AS a, range AS a FROM range(5000) ORDER BY range % 7, range"
    expected = sorted(range(5000), key=lambda n: (n % 7, n))
    assert query(store, sql, seconds=60)["a_1"].to_list() == expected
    assert query(store, sql, seconds=60, rows=3)["a"].to_list() == [0, 7, 14]


AS_TEXT: Final = {
    "TIMESTAMP '2026-01-02 03:04:05' - TIMESTAMP '2026-01-01'": "1 day 03:04:05",
    "[INTERVAL 2 HOUR]": "['02:00:00']",
    "{'took': INTERVAL 90 SECOND}": "{'took': '00:01:30'}",
    "union_value(n := 1)": "1",
    "12345678901234567890123456789012345678901::BIGNUM": "1234567890" * 4 + "1",
    "TIMETZ '10:00:00+01'": "10:00:00+01",
    "'0101'::BIT": "0101",
    "1::VARIANT": "1",
    r"['\x01'::BLOB]": r"['\\x01']",
    "NULL::INTERVAL": None,
}
"""Values of types that Polars lacks, and their text."""


def test_types_that_polars_lacks_become_text(store: Store) -> None:
    columns = ", ".join(f"{sql} AS a{place}" for place, sql in enumerate(AS_TEXT))
    assert query(store, f"SELECT {columns}", seconds=60).rows() == [tuple(AS_TEXT.values())]


def refused_unchanged(store: Store, statement: str) -> str:
    """The refusal of a statement on a store that it leaves as it is, to the byte."""
    frame = pl.DataFrame({"a": "DuckDB would find this variable if it were allowed to look"})
    folder = store.path.parent
    (folder / "file.csv").write_text("a\n1\n")
    before = contents(folder)
    message = refusal(store, statement.format(**names_of(store)))
    assert contents(folder) == before
    assert frame.height
    return message


@pytest.mark.parametrize("statement", NO_SELECT.strip().splitlines())
def test_what_is_no_select_is_refused(store: Store, statement: str) -> None:
    # Without the process of `query`, whose start takes half a second of CPU.
    with store.reading() as connection, pytest.raises(InputError) as caught:
        only_select(connection, statement.format(**names_of(store)))
    assert str(caught.value) in (
        "sql: is not a SELECT; write one SELECT: a query only reads the tables of the store",
        "sql: has 2 statements; write one SELECT: a query only reads the tables of the store",
        "sql: is a PIVOT that does not name its values; write ON column IN (value, ...)",
    )


def test_a_copy_to_the_store_leaves_it_as_it_is(store: Store) -> None:
    message = refused_unchanged(
        store, "COPY (SELECT 1) TO '{store}' (FORMAT csv, USE_TMP_FILE false)"
    )
    assert message.startswith("sql: is not a SELECT; ")


@pytest.mark.parametrize("statement", SELECT_THAT_WRITES.strip().splitlines())
def test_a_select_cannot_write_or_read_files(store: Store, statement: str) -> None:
    refused_unchanged(store, statement)


@pytest.mark.parametrize(
    "sql",
    [
        "FROM audit.store",
        "VALUES (1)",
        "TABLE audit.store",
        "DESCRIBE scores",
        "SUMMARIZE audit.store",
        "SHOW ALL TABLES",
        "WITH a AS (SELECT 1 AS b) SELECT b FROM a;",
        "PIVOT audit.store ON schema_version IN (1, 2) USING count(*)",
        "-- a comment\nSELECT 1;;",
    ],
)
def test_what_only_reads_is_a_select(store: Store, sql: str) -> None:
    assert query(store, sql, seconds=60, rows=1).height == 1


@pytest.mark.parametrize(
    "sql",
    [SLOW, "SELECT sum(range) FROM range(10000000000000)", " UNION ALL ".join(["SELECT 1"] * 5000)],
    ids=["levenshtein", "range", "union"],
)
def test_a_query_that_takes_too_long_is_ended(store: Store, sql: str) -> None:
    assert refusal(store, sql, seconds=0.2) == (
        "sql: took longer than 0.2 s; narrow it, or use `claimflow sql --timeout`"
    )


@pytest.mark.parametrize(
    "sql", ["SELECT repeat('x', 4000000000)", "SELECT unnest(range(1000000000))"]
)
def test_a_query_cannot_fill_memory_or_disk(store: Store, sql: str) -> None:
    limits = "SELECT current_setting('memory_limit'), current_setting('temp_directory')"
    assert query(store, limits, seconds=60).rows() == [("1.8 GiB", "")]
    assert refusal(store, sql, seconds=600) == "sql: needs more than 2 GB of memory; narrow it"


def test_a_result_is_bounded(store: Store) -> None:
    with pytest.raises(InputError) as caught:
        query(store, "FROM range(1000000)", seconds=60, result_bytes=4 * 2**20)
    assert str(caught.value) == "sql: returns more than 4 MB; select fewer rows or columns"


@pytest.mark.parametrize("date", ["DATE 'infinity'", "[TIMESTAMP '290000-01-01']"])
def test_dates_that_python_lacks_are_refused(store: Store, date: str) -> None:
    assert refusal(store, f"SELECT {date} AS d") == (
        "sql: the column 'd' has dates outside the years 1 to 9999; cast it to VARCHAR"
    )


def test_an_error_after_the_first_rows_is_an_input_error(store: Store) -> None:
    late = "SELECT if(range = 90000, 'x', '1')::INTEGER FROM range(100000)"
    assert refusal(store, late).startswith("sql: Conversion Error: Could not convert string 'x'")


def test_text_that_is_not_unicode_is_an_input_error(store: Store) -> None:
    assert refusal(store, "SELECT '\udcff'").startswith("sql: ")


def test_a_locked_store_is_busy(store: Store) -> None:
    with LockedStore(store.path), pytest.raises(StoreBusyError, match="held the store for 0 s"):
        query(Store(store.path, wait=0.1), "SELECT 1", seconds=60)


@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_process_of_a_query_ends_with_its_parent(
    store: Store, ended_by: signal.Signals
) -> None:
    slower = SLOW.replace("100000", "400000")  # minutes
    command = [sys.executable, "-m", "claimflow", "sql", slower, "--live", "--timeout", "500"]
    with subprocess.Popen(
        [*command, "--store", str(store.path)], stderr=subprocess.PIPE, text=True
    ) as asking:
        while not (pids := children(asking.pid)):
            time.sleep(0.05)
        asking.send_signal(ended_by)
        _, errors = asking.communicate(timeout=60)
    if ended_by == signal.SIGINT:
        assert asking.returncode == 130
        assert errors == "claimflow: stopped; finished work is kept; run again to continue\n"
    deadline = time.monotonic() + 60
    for pid in pids:
        while process_alive(pid):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_wrong_query_is_an_input_error(store: Store) -> None:
    assert refusal(store, "SELECT scor FROM scores") == (
        'sql: Binder Error: Referenced column "scor" not found in FROM clause!\n'
        'Candidate bindings: "score", "part", "step"; '
        f"see `claimflow schema --tables --store {store.path}` for the tables and columns"
    )


def test_a_statement_without_a_result_is_an_input_error(store: Store) -> None:
    assert (
        refusal(store, "")
        == "sql: is empty; write one SELECT: a query only reads the tables of the store"
    )


def test_tables_lists_the_views_first(store: Store) -> None:
    listed = tables(store)
    assert listed.columns == ["table_name", "column_name", "data_type", "meaning"]
    assert ("verdicts", "verdict", "VARCHAR") in listed.drop("meaning").rows()
    assert listed["meaning"].null_count() == 0
    assert ("audit.runs", "run_id", "VARCHAR") in listed.drop("meaning").rows()
    assert "stored.claims" not in listed["table_name"]
