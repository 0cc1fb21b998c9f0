import gzip
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import duckdb
import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.errors import InputError
from claimflow.flows.store.integrity import check_store
from claimflow.flows.store.query import query
from claimflow.flows.store.schema import ADDED, SCHEMA_VERSION, content_columns_at
from claimflow.flows.store.store import Store
from claimflow.stages.rows import Sample, SentenceMatch

FIRST = Path(__file__).parents[1] / "data/first_release/small.duckdb.gz"

COLUMNS = """
SELECT schema_name, table_name, column_name, data_type, is_nullable, column_default
FROM duckdb_columns() WHERE NOT internal
"""
VIEWS = "SELECT schema_name, view_name, sql FROM duckdb_views() WHERE NOT internal"

NEVER = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
def first(tmp_path: Path) -> Store:
    """A copy of the store that the first release made."""
    path = tmp_path / "small.duckdb"
    path.write_bytes(gzip.decompress(FIRST.read_bytes()))
    return Store(path)


@pytest.fixture
def migrated(first: Store) -> Store:
    with first.writing():
        pass
    return first


def ask(store: Store, sql: str) -> list[tuple[object, ...]]:
    with store.reading(any_version=True) as connection:
        return connection.execute(sql).fetchall()


def test_a_migrated_store_has_the_tables_and_views_of_a_fresh_one(
    migrated: Store, tmp_path: Path
) -> None:
    fresh = Store(tmp_path / "fresh.duckdb")
    with fresh.writing():
        pass
    # The order counts in views, which people see; a new column of a table is its last.
    assert set(ask(migrated, COLUMNS)) == set(ask(fresh, COLUMNS))
    in_views = COLUMNS + "AND schema_name IN ('main', 'latest') ORDER BY 1, 2, column_index"
    assert ask(migrated, in_views) == ask(fresh, in_views)
    assert sorted(ask(migrated, VIEWS)) == sorted(ask(fresh, VIEWS))
    assert ask(migrated, "SELECT schema_version FROM audit.store") == [(SCHEMA_VERSION,)]


def test_the_rows_are_what_they_were_and_lack_what_is_new(first: Store) -> None:
    scores = "SELECT sample_id, score, status FROM scores WHERE step = 'precision' ORDER BY 1"
    claims = "SELECT claim_id, sample_id, claim FROM claims ORDER BY ALL"
    before = ask(first, scores), ask(first, claims)
    with first.writing():
        pass
    assert (ask(first, scores), ask(first, claims)) == before
    assert before[0] == [
        ("birth", 0.0, "scored"),
        ("silence", None, "undefined"),
        ("tower", 1.0, "scored"),
    ]
    assert ask(first, "SELECT DISTINCT part, whole FROM scores") == [(None, None)]
    assert ask(first, "SELECT DISTINCT failure, call_id, ballot FROM verdicts") == [(None,) * 3]
    how = "SELECT DISTINCT recipe::VARCHAR, inputs FROM audit.artifacts"
    assert ask(first, how) == [(NEVER, "{}")]


def test_what_is_migrated_is_in_order(migrated: Store) -> None:
    assert check_store(migrated).faults == []


def test_a_run_goes_on_with_a_migrated_store(
    first: Store, write_small: Callable[[Path], Path]
) -> None:
    path = write_small(first.path.parent)
    with redirect_stdout(StringIO()) as told, redirect_stderr(StringIO()), chdir(path.parent):
        assert main(["run", "small.yaml"]) == 0
        assert main(["run", "small.yaml"]) == 0
    assert ": 3 samples, 0 steps made, 8 reused" in told.getvalue()
    assert ask(first, "SELECT status FROM audit.runs") == [("done",)] * 3
    assert ask(
        first,
        "SELECT DISTINCT part FROM scores WHERE metric = 'factual_correctness'"
        " AND part IS NOT NULL ORDER BY 1",
    ) == [(0.0,), (1.0,)]
    assert check_store(first).faults == []


def test_sql_reads_an_older_store_and_others_say_what_to_do(first: Store) -> None:
    assert query(first, "SELECT count(*) AS n FROM claims", seconds=20).rows() == [(6,)]
    with pytest.raises(InputError) as caught, first.reading():
        pass
    assert str(caught.value) == (
        f"{first.path}: holds schema version 1, and this claimflow reads {SCHEMA_VERSION}; "
        f"`claimflow migrate --store {first.path}` brings it up to date, as the next run does"
    )


def test_migrate_brings_it_up_to_date(first: Store, capsys: pytest.CaptureFixture[str]) -> None:
    for told in (f"schema version 1, now {SCHEMA_VERSION}", f"schema version {SCHEMA_VERSION}"):
        assert main(["migrate", "--store", str(first.path)]) == 0
        assert capsys.readouterr().out == f"{first.path}: {told}\n"
    with first.reading():
        pass


def test_a_migration_that_breaks_leaves_the_store_as_it_was(
    first: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = {**ADDED, SCHEMA_VERSION: (*ADDED[SCHEMA_VERSION], ADDED[SCHEMA_VERSION][0])}
    monkeypatch.setattr("claimflow.flows.store.schema.ADDED", broken)
    with pytest.raises(duckdb.CatalogException), first.writing():
        pass
    monkeypatch.undo()
    assert ask(first, "SELECT schema_version FROM audit.store") == [(1,)]
    with Store(first.path).writing():
        pass
    assert ask(first, "SELECT schema_version FROM audit.store") == [(SCHEMA_VERSION,)]


def test_what_a_digest_covered_in_the_past_is_known() -> None:
    assert content_columns_at(Sample, 3) == (
        "sample_id",
        "user_input",
        "response",
        "reference",
        "retrieved_contexts",
        "other_references",
        "metadata",
    )
    assert "chrf" in content_columns_at(SentenceMatch, 3)
    assert "chrf" not in content_columns_at(SentenceMatch, 2)
