import gzip
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pydantic import create_model

from claimflow.flows.cli.main import main
from claimflow.flows.errors import InputError, StoreBusyError
from claimflow.flows.quality.labels import current_labels
from claimflow.flows.store.arrow import read_table
from claimflow.flows.store.fingerprint import Digest
from claimflow.flows.store.integrity import check_store
from claimflow.flows.store.query import query
from claimflow.flows.store.read_copy import read_copy_path
from claimflow.flows.store.runs import Coverage, find_run, tags
from claimflow.flows.store.schema import ADDED, SCHEMA_VERSION, content_columns_at
from claimflow.flows.store.sendings import (
    Sending,
    begin_sending,
    end_sending,
    pipeline_of,
    record_sent,
    sent_before,
    unfinished_sendings,
)
from claimflow.flows.store.store import Store, migrate
from claimflow.stages.rows import Claim, Row, Sample, Score, SentenceMatch, row_kinds

DATA = Path(__file__).parents[1] / "data"
FIRST = DATA / "first_release/small.duckdb.gz"
SIXTH = DATA / "schema_6/small.duckdb.gz"
TENTH = DATA / "schema_10/small.duckdb.gz"
FOURTEENTH = DATA / "schema_14/small.duckdb.gz"

COLUMNS = """
SELECT schema_name, table_name, column_name, data_type, is_nullable, column_default
FROM duckdb_columns() WHERE NOT internal
"""
VIEWS = "SELECT schema_name, view_name, sql FROM duckdb_views() WHERE NOT internal"

NO_RECIPE = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
def first(tmp_path: Path) -> Store:
    """A copy of the store that the first release made."""
    path = tmp_path / "small.duckdb"
    path.write_bytes(gzip.decompress(FIRST.read_bytes()))
    return Store(path)


@pytest.fixture
def tenth(tmp_path: Path) -> Store:
    """A copy of a store of version 10, with two runs of which the second has another sample."""
    path = tmp_path / "small.duckdb"
    path.write_bytes(gzip.decompress(TENTH.read_bytes()))
    return Store(path)


@pytest.fixture
def fourteenth(tmp_path: Path) -> Store:
    """A copy of a store of version 14, with two runs of which the second has another sample."""
    path = tmp_path / "small.duckdb"
    path.write_bytes(gzip.decompress(FOURTEENTH.read_bytes()))
    return Store(path)


@pytest.fixture
def migrated(first: Store) -> Store:
    with first.writing():
        pass
    return first


def with_column(row: type[Row], name: str) -> type[Row]:
    """The row model with one more field, and not registered as a kind of row of its own."""
    field: Any = (str | None, None)
    return create_model(row.__name__, __base__=row, __module__=row.__module__, **{name: field})


def kinds_with(changed: type[Row]) -> Callable[[], tuple[type[Row], ...]]:
    kinds = tuple(changed if row.table == changed.table else row for row in row_kinds())
    return lambda: kinds


def ask(store: Store, sql: str) -> list[tuple[object, ...]]:
    with store.reading(any_version=True) as connection:
        return connection.execute(sql).fetchall()


def kill_migration(store: Store, seconds: float) -> None:
    """Begin to migrate a store in a process of its own, and kill that after so many seconds."""
    command = [sys.executable, "-m", "claimflow", "migrate", "--store", str(store.path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        process.kill()


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


def test_calls_in_batches_of_version_13_have_no_step_and_no_cost(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.duckdb")
    with store.writing() as connection:
        connection.execute("ALTER TABLE audit.batch_calls DROP COLUMN step")
        connection.execute("ALTER TABLE audit.batch_calls DROP COLUMN reserved")
        connection.execute("INSERT INTO audit.batch_calls VALUES (uuid(), uuid(), 'text', [])")
        connection.execute("UPDATE audit.store SET schema_version = 13")
    # Another object: this one knows that the store was new.
    migrate(Store(store.path))
    assert ask(store, "SELECT step, reserved FROM audit.batch_calls") == [(None, None)]


def test_lists_of_segments_of_version_14_become_ranges(fourteenth: Store) -> None:
    segments = "SELECT * FROM audit.artifact_segments ORDER BY ALL"
    before, lists = rows_of_views(fourteenth), ask(fourteenth, segments)
    assert ask(fourteenth, "SELECT count(*) FROM audit.parts") == [(16,)]
    migrate(fourteenth)
    assert rows_of_views(fourteenth) == before
    assert ask(fourteenth, segments) == lists
    # The second sample of the second run is another one.
    ranges = ask(fourteenth, "SELECT place, segment, length FROM audit.parts ORDER BY part, place")
    assert ranges[:7] == [
        (0, 1, 3),
        (0, 4, 3),
        (0, 7, 3),
        (0, 10, 1),
        (0, 1, 1),
        (1, 11, 1),
        (2, 3, 1),
    ]
    assert len(ranges) == 10
    assert check_store(fourteenth).faults == []


def test_a_migration_to_ranges_that_is_killed_leaves_the_store_whole(fourteenth: Store) -> None:
    before = rows_of_views(fourteenth)
    for seconds in (0.3, 0.6, 0.9):
        kill_migration(fourteenth, seconds)
        [(version,)] = ask(fourteenth, "SELECT schema_version FROM audit.store")
        assert version in (14, SCHEMA_VERSION)
        assert rows_of_views(fourteenth) == before
    migrate(fourteenth)
    assert rows_of_views(fourteenth) == before


def test_old_rows_are_unchanged_and_hold_null_in_new_columns(first: Store) -> None:
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
    assert ask(first, how) == [(NO_RECIPE, "{}")]


def test_a_migrated_store_passes_the_integrity_checks(migrated: Store) -> None:
    assert check_store(migrated).faults == []


def test_a_run_uses_a_migrated_store(first: Store, write_small: Callable[[Path], Path]) -> None:
    path = write_small(first.path.parent)
    with redirect_stdout(StringIO()) as printed, redirect_stderr(StringIO()), chdir(path.parent):
        assert main(["run", "small.yaml"]) == 0
        assert main(["run", "small.yaml"]) == 0
    assert ": 3 samples, 0 steps made, 8 reused" in printed.getvalue()
    assert ask(first, "SELECT status FROM audit.runs") == [("done",)] * 3
    assert ask(
        first,
        "SELECT DISTINCT part FROM scores WHERE metric = 'factual_correctness'"
        " AND part IS NOT NULL ORDER BY 1",
    ) == [(0.0,), (1.0,)]
    assert check_store(first).faults == []


def test_the_tables_of_a_store_of_version_6_are_reused(
    tmp_path: Path, write_small: Callable[[Path], Path]
) -> None:
    store = Store(tmp_path / "small.duckdb")
    store.path.write_bytes(gzip.decompress(SIXTH.read_bytes()))
    write_small(tmp_path)
    with redirect_stdout(StringIO()) as printed, redirect_stderr(StringIO()), chdir(tmp_path):
        assert main(["run", "small.yaml"]) == 0
    # Sentences have other ends since: claims, verdicts and matches are made again. Verdicts have
    # their support since, so the scores are made again too, with both counts in their details, and
    # the summary.
    assert ": 3 samples, 6 steps made, 2 reused" in printed.getvalue()
    fresh = Store(tmp_path / "fresh.duckdb")
    with fresh.writing():
        pass
    assert set(ask(store, COLUMNS)) == set(ask(fresh, COLUMNS))
    assert ask(store, "SELECT count(DISTINCT run_id) FROM claim_verdicts") == [(2,)]
    assert check_store(store).faults == []


def rows_of_views(store: Store) -> dict[str, list[tuple[object, ...]]]:
    views = [
        str(name)
        for (name,) in ask(
            store,
            "SELECT view_name FROM duckdb_views() WHERE NOT internal AND schema_name = 'main'",
        )
    ]
    return {view: ask(store, f"FROM {view} ORDER BY ALL") for view in views}


def test_rows_of_unchanged_samples_are_stored_once_in_a_store_of_version_10(tenth: Store) -> None:
    before = rows_of_views(tenth)
    digests = ask(tenth, "SELECT artifact_id, digest FROM audit.artifacts ORDER BY ALL")
    assert ask(tenth, "SELECT count(*) FROM stored.samples") == [(6,)]
    migrate(tenth)
    assert rows_of_views(tenth) == before
    assert ask(tenth, "SELECT artifact_id, digest FROM audit.artifacts ORDER BY ALL") == digests
    # Of three samples one changed between the two runs.
    assert ask(tenth, "SELECT sample_id FROM stored.samples ORDER BY ALL") == [
        ("birth",),
        ("birth",),
        ("silence",),
        ("tower",),
    ]
    assert check_store(tenth).faults == []


def test_the_tables_of_a_store_of_version_10_are_reused(
    tenth: Store, write_small: Callable[[Path], Path]
) -> None:
    write_small(tenth.path.parent)
    folder = tenth.path.parent
    with redirect_stdout(StringIO()) as printed, redirect_stderr(StringIO()) as told, chdir(folder):
        assert main(["run", "small.yaml"]) == 0
    version = f"schema version 10, which this run brings to {SCHEMA_VERSION}\n"
    assert told.getvalue().startswith(f"{tenth.path}: {version}")
    assert ": 3 samples, 5 steps made, 3 reused" in printed.getvalue()
    # The rules of claims are others since, and the embedded judge: its verdicts and what is
    # computed of them.
    made = ask(
        tenth,
        "SELECT step FROM audit.run_steps WHERE NOT reused "
        "AND run_id = (SELECT max(run_id) FROM audit.runs) ORDER BY step",
    )
    assert made == [
        ("precision",),
        ("reference_claims",),
        ("response_claims",),
        ("response_in_reference",),
        ("summary",),
    ]


def test_a_store_is_not_migrated_while_a_run_is_in_progress(tenth: Store) -> None:
    with duckdb.connect(tenth.path) as connection:
        connection.execute(
            "UPDATE audit.runs SET status = 'running', host = $host, process = $process "
            "WHERE started_at = (SELECT max(started_at) FROM audit.runs)",
            {"host": platform.node(), "process": os.getpid()},
        )
    with pytest.raises(StoreBusyError) as caught:
        migrate(tenth)
    assert "is in progress (process " in str(caught.value)
    assert ask(tenth, "SELECT schema_version FROM audit.store") == [(10,)]


def test_an_index_on_a_table_that_is_written_anew_is_named(tenth: Store) -> None:
    with duckdb.connect(tenth.path) as connection:
        connection.execute("CREATE INDEX mine ON stored.claims (sample_id)")
    with pytest.raises(InputError) as caught:
        migrate(tenth)
    assert str(caught.value) == (
        f"{tenth.path}: has the index stored.mine on stored.claims, which is written anew; drop "
        "it, and make it again after the migration"
    )
    assert ask(tenth, "SELECT schema_version FROM audit.store") == [(10,)]


def test_a_table_whose_rows_change_their_order_gets_the_digest_of_the_new_order(
    tenth: Store,
) -> None:
    def digest(rows: str) -> str:
        with duckdb.connect(tenth.path) as connection:
            table = read_table(connection, rows)
        whole = Digest(Score)
        whole.add(table)
        return whole.value()

    step = "deterministic_faithfulness"
    [(artifact,)] = ask(
        tenth, f"SELECT min(artifact_id)::VARCHAR FROM audit.run_steps WHERE step = '{step}'"
    )
    one = f"artifact_id = '{artifact}'"
    with duckdb.connect(tenth.path) as connection:
        # As a stage of another package may make them: the last sample first.
        connection.execute(
            f"CREATE TABLE moved AS FROM stored.scores WHERE {one} ORDER BY rowid DESC"
        )
        connection.execute(f"DELETE FROM stored.scores WHERE {one}")
        connection.execute("INSERT INTO stored.scores FROM moved")
        connection.execute("DROP TABLE moved")
    reversed_rows = digest(f"FROM stored.scores WHERE {one} ORDER BY rowid")
    with duckdb.connect(tenth.path) as connection:
        connection.execute(f"UPDATE audit.artifacts SET digest = '{reversed_rows}' WHERE {one}")
    migrate(tenth)
    assert check_store(tenth).faults == []
    [(stored,)] = ask(tenth, f"SELECT digest::VARCHAR FROM audit.artifacts WHERE {one}")
    assert stored != reversed_rows


def test_tags_and_labels_of_an_older_store_count(tenth: Store) -> None:
    with duckdb.connect(tenth.path) as connection:
        connection.execute(
            "INSERT INTO audit.tags SELECT 'main', max(run_id), current_localtimestamp() "
            "FROM audit.runs"
        )
        connection.execute(
            "INSERT INTO audit.labels SELECT uuid(), 'verdicts', uuid(), max(run_id), 'v', 's', "
            "NULL, 'c', 'reference', NULL, NULL, 'entailed', NULL, 'ann', 'f.csv', "
            "'random 1 of 1, seed 0', uuid(), 1, current_localtimestamp() FROM audit.runs"
        )
    migrate(tenth)
    assert tags(tenth).select("tag", "who").rows() == [("main", None)]
    with tenth.reading() as connection:
        (found,) = current_labels(connection, "verdicts").to_dicts()
    assert (found["label"], found["unsure"], found["seen"], found["adjudicates"]) == (
        *("entailed", False, False),
        False,
    )


def test_a_run_of_an_older_store_can_be_sent(tenth: Store) -> None:
    migrate(tenth)
    assert ask(tenth, "SELECT schema_version FROM audit.store") == [(SCHEMA_VERSION,)]
    run_id = find_run(tenth, "latest")
    assert run_id is not None
    sending = Sending(run_id, "otlp", ("precision",))
    begin_sending(tenth, sending)
    assert unfinished_sendings(tenth, pipeline_of(tenth, run_id), "otlp") == [sending]
    for _ in range(2):
        record_sent(tenth, sending, NO_RECIPE, [NO_RECIPE])
    assert sent_before(tenth, NO_RECIPE, [NO_RECIPE]) == {NO_RECIPE}
    assert ask(tenth, "SELECT count(*) FROM audit.sent") == [(1,)]
    end_sending(tenth, sending)
    assert unfinished_sendings(tenth, pipeline_of(tenth, run_id), "otlp") == []


@pytest.mark.parametrize("seconds", [0.3, 0.6, 0.9, 1.2])
def test_a_migration_that_is_killed_leaves_the_store_whole(tenth: Store, seconds: float) -> None:
    before = rows_of_views(tenth)
    kill_migration(tenth, seconds)
    [(version,)] = ask(tenth, "SELECT schema_version FROM audit.store")
    assert version in (10, SCHEMA_VERSION)
    assert rows_of_views(tenth) == before
    migrate(tenth)
    assert rows_of_views(tenth) == before
    assert check_store(tenth).faults == []


@pytest.mark.parametrize("version", range(1, 6))
def test_runs_of_every_earlier_version_count_as_whole(migrated: Store, version: int) -> None:
    with migrated.writing() as connection:
        for row in row_kinds():
            connection.execute(f"DROP VIEW latest.{row.table}")
        connection.execute("DROP VIEW audit.latest_runs")
        connection.execute("DROP VIEW audit.whole_runs")
        for column in Coverage._fields:
            connection.execute(f"ALTER TABLE audit.runs DROP COLUMN {column}")
        connection.execute(f"UPDATE audit.store SET schema_version = {version}")
    # Another store object: this one has prepared its file.
    migrated = Store(migrated.path)
    with migrated.writing():
        pass
    [(run,)] = ask(migrated, "SELECT run_id FROM audit.runs")
    assert find_run(migrated, "latest") == run
    assert ask(migrated, "SELECT DISTINCT pipeline, run_id FROM latest.scores") == [("small", run)]
    columns = ", ".join(Coverage._fields)
    assert ask(migrated, f"SELECT {columns} FROM audit.runs") == [(None,) * 5]


def test_a_rerun_of_what_failed_migrates_the_store_before_it_reads_it(
    first: Store, write_small: Callable[[Path], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_small(first.path.parent)
    with chdir(path.parent):
        assert main(["run", "small.yaml", "--failed"]) == 0
    assert "nothing failed in run" in capsys.readouterr().out
    assert ask(first, "SELECT schema_version FROM audit.store") == [(SCHEMA_VERSION,)]


def test_sql_reads_an_older_store_and_other_reads_are_refused(first: Store) -> None:
    assert query(first, "SELECT count(*) AS n FROM claims", seconds=20).rows() == [(6,)]
    with pytest.raises(InputError) as caught, first.reading():
        pass
    assert str(caught.value) == (
        f"{first.path}: holds schema version 1, and this claimflow reads {SCHEMA_VERSION}; "
        f"`claimflow migrate --store {first.path}` brings it up to date, as the next run does"
    )


def test_sql_on_an_old_read_copy_says_how_to_bring_it_up_to_date(
    first: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(first.path, read_copy_path(first.path))
    path = str(first.path)
    with first.writing():
        pass  # The store is migrated, and its copy is not.
    for sql, error in (
        ("SELECT part FROM scores", 'Referenced column "part" not found in FROM clause!'),
        ("FROM similarity", "Table with name similarity does not exist!"),
    ):
        assert main(["sql", sql, "--store", path]) == 2
        printed = capsys.readouterr().err
        assert error in printed
        assert printed.endswith(
            f" (schema version 1, the newest is {SCHEMA_VERSION}); "
            f"`claimflow migrate --store {path}` brings it up to date\n"
        )
    assert main(["sql", "SELEC", "--store", path]) == 2
    assert "migrate" not in capsys.readouterr().err
    assert main(["migrate", "--store", path]) == 0
    assert main(["sql", "SELECT part FROM scores", "--store", path]) == 0


def test_the_command_migrate(first: Store, capsys: pytest.CaptureFixture[str]) -> None:
    for printed in (f"schema version 1, now {SCHEMA_VERSION}", f"schema version {SCHEMA_VERSION}"):
        assert main(["migrate", "--store", str(first.path)]) == 0
        assert capsys.readouterr().out == f"{first.path}: {printed}\n"
    with first.reading():
        pass


def test_a_migration_that_fails_leaves_the_store_unchanged(
    first: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("claimflow.flows.store.schema._SEGMENTS", "DROP TABLE unknown")
    with pytest.raises(duckdb.CatalogException), first.writing():
        pass
    monkeypatch.undo()
    assert ask(first, "SELECT schema_version FROM audit.store") == [(1,)]
    with Store(first.path).writing():
        pass
    assert ask(first, "SELECT schema_version FROM audit.store") == [(SCHEMA_VERSION,)]


@pytest.mark.parametrize(
    ("table", "column"),
    [("stored.verdicts", "ballot JSON"), ("audit.artifacts", "inputs JSON DEFAULT '{}'")],
)
def test_a_store_that_has_a_column_before_its_migration_is_migrated(
    first: Store, table: str, column: str, tmp_path: Path
) -> None:
    """A store from between two releases: its tables are newer than its schema version."""
    with duckdb.connect(first.path) as connection:
        connection.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
    with first.writing():
        pass
    fresh = Store(tmp_path / "fresh.duckdb")
    with fresh.writing():
        pass
    assert set(ask(first, COLUMNS)) == set(ask(fresh, COLUMNS))
    assert check_store(first).faults == []


def test_every_column_of_a_row_is_in_the_first_release_or_has_a_migration(first: Store) -> None:
    columns = ask(
        first,
        "SELECT table_name, column_name FROM duckdb_columns() WHERE schema_name = 'stored'",
    )
    known = {("stored." + str(table), column) for table, column in columns}
    known |= {
        ("stored." + table, column)
        for version in ADDED.values()
        for table, added in version.items()
        for column in added
    }
    missing = [
        f"{row.__name__}.{name} has no migration: add one to ADDED in flows/store/schema.py"
        for row in row_kinds()
        for name in row.model_fields
        # A table that the first release lacked is made with all its columns.
        if row.table in {table for table, _ in columns}
        and (f"stored.{row.table}", name) not in known
    ]
    assert missing == []
    assert list(ADDED) == list(range(2, SCHEMA_VERSION + 1))


@pytest.mark.parametrize("how", ["reading", "writing"])
def test_a_column_without_a_migration_is_reported_when_a_store_is_opened(
    migrated: Store, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    changed = kinds_with(with_column(Claim, "mood"))
    monkeypatch.setattr("claimflow.flows.store.schema.row_kinds", changed)
    with pytest.raises(InputError) as caught, getattr(Store(migrated.path), how)():
        pass
    assert str(caught.value) == (
        f"{migrated.path}: the row Claim (claimflow.stages.rows) has the column 'mood', and the "
        "table stored.claims lacks it; add its migration, a new schema version in ADDED of "
        "flows/store/schema.py"
    )


def test_a_column_with_its_migration_is_added(
    first: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = kinds_with(with_column(Claim, "mood"))
    version = SCHEMA_VERSION + 1
    monkeypatch.setattr("claimflow.flows.store.schema.row_kinds", changed)
    monkeypatch.setattr("claimflow.flows.store.schema.SCHEMA_VERSION", version)
    added = {**ADDED, version: {"claims": ("mood",)}}
    monkeypatch.setattr("claimflow.flows.store.schema.ADDED", added)
    with first.writing():
        pass
    assert ask(first, "SELECT DISTINCT mood FROM claims") == [(None,)]


def test_a_new_kind_of_row_gets_its_table_and_views_in_an_old_store(
    migrated: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Mood(Claim):
        table = "moods"

    monkeypatch.setattr("claimflow.flows.store.schema.row_kinds", lambda: (*row_kinds(), Mood))
    with Store(migrated.path).writing():
        pass
    assert ask(migrated, "FROM moods") == ask(migrated, "FROM latest.moods") == []


def test_the_columns_that_digests_covered_in_older_versions() -> None:
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
