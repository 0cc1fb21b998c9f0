from pathlib import Path

import pytest

from claimflow.flows.errors import InputError
from claimflow.flows.store.query import query, tables
from claimflow.flows.store.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "s.duckdb")
    with store.writing():
        pass
    return store


def refusal(store: Store, sql: str, seconds: float = 20) -> str:
    with pytest.raises(InputError) as caught:
        query(store, sql, seconds=seconds)
    return str(caught.value)


def test_a_query_returns_a_table(store: Store) -> None:
    assert query(store, "SELECT 1 AS a, 'x' AS b", seconds=20).rows() == [(1, "x")]


def test_only_the_first_rows_are_returned(store: Store) -> None:
    assert query(store, "SELECT * FROM range(9)", seconds=20, rows=2).rows() == [(0,), (1,)]
    assert query(store, "SELECT 1", seconds=20, rows=2).rows() == [(1,)]


def test_columns_that_share_a_name_are_numbered(store: Store) -> None:
    answer = query(store, 'SELECT 1 AS a, 2 AS a, 3 AS a_1, 4 AS a, 5 AS "b""c"', seconds=20)
    assert answer.to_dicts() == [{"a": 1, "a_1": 2, "a_1_1": 3, "a_2": 4, 'b"c': 5}]


def test_names_that_differ_only_in_case_are_kept(store: Store) -> None:
    answer = query(store, 'SELECT 1 AS a, INTERVAL 1 DAY AS "A"', seconds=20)
    assert answer.to_dicts() == [{"a": 1, "A": "1 day"}]


def test_renamed_columns_keep_the_order_of_rows(store: Store) -> None:
    sql = "SELECT range AS a, range AS a FROM range(5000) ORDER BY range % 7, range"
    expected = sorted(range(5000), key=lambda n: (n % 7, n))
    assert query(store, sql, seconds=20)["a_1"].to_list() == expected
    assert query(store, sql, seconds=20, rows=3)["a"].to_list() == [0, 7, 14]


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("TIMESTAMP '2026-01-02 03:04:05' - TIMESTAMP '2026-01-01'", "1 day 03:04:05"),
        ("[INTERVAL 2 HOUR]", "['02:00:00']"),
        ("{'took': INTERVAL 90 SECOND}", "{'took': '00:01:30'}"),
        ("union_value(n := 1)", "1"),
        ("12345678901234567890123456789012345678901::BIGNUM", "1234567890" * 4 + "1"),
        ("TIMETZ '10:00:00+01'", "10:00:00+01"),
        ("'0101'::BIT", "0101"),
        ("1::VARIANT", "1"),
        (r"['\x01'::BLOB]", r"['\\x01']"),
        ("NULL::INTERVAL", None),
    ],
)
def test_types_that_polars_lacks_become_text(store: Store, sql: str, words: str | None) -> None:
    assert query(store, f"SELECT {sql} AS a", seconds=20).rows() == [(words,)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM '{file}'",
        "COPY (SELECT 1) TO '{out}'",
        "EXPORT DATABASE '{out}'",
        "ATTACH '{out}'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET memory_limit = '90GB'",
        "CREATE TABLE mine (a INTEGER)",
        "DELETE FROM audit.runs",
        "SELECT getenv('HOME')",
        "SELECT * FROM frame",
        "PRAGMA enable_profiling = 'json'",
    ],
)
def test_nothing_is_read_or_written_outside_the_store(
    store: Store, tmp_path: Path, sql: str
) -> None:
    frame = "a variable that DuckDB would find if it were allowed to look for one"
    file = tmp_path / "secret.csv"
    file.write_text("a\n1\n")
    before = sorted(tmp_path.iterdir())
    refusal(store, sql.format(file=file, out=tmp_path / "out"))
    assert sorted(tmp_path.iterdir()) == before
    assert frame


def test_a_query_that_takes_too_long_is_interrupted(store: Store) -> None:
    endless = "SELECT count(*) FROM range(1000000000000) a, range(1000000) b WHERE a.range = -1"
    assert refusal(store, endless, seconds=0.2) == (
        "sql: took longer than 0.2 s; narrow it, or raise --timeout"
    )


def test_a_query_cannot_fill_memory_or_disk(store: Store) -> None:
    limits = "SELECT current_setting('memory_limit'), current_setting('temp_directory')"
    assert query(store, limits, seconds=20).rows() == [("1.8 GiB", "")]


def test_a_wrong_query_is_an_input_error(store: Store) -> None:
    assert refusal(store, "SELECT scor FROM scores") == (
        'sql: Binder Error: Referenced column "scor" not found in FROM clause!\n'
        'Candidate bindings: "score", "part", "step"; '
        "see `claimflow schema --tables` for the tables and columns"
    )


def test_a_statement_without_a_result_is_an_input_error(store: Store) -> None:
    assert refusal(store, "") == "sql: answers nothing; write a SELECT"


def test_tables_lists_the_views_first(store: Store) -> None:
    listed = tables(store)
    assert listed.columns == ["table_name", "column_name", "data_type"]
    assert ("verdicts", "verdict", "VARCHAR") in listed.rows()
    assert ("audit.runs", "run_id", "VARCHAR") in listed.rows()
    assert "stored.claims" not in listed["table_name"]
