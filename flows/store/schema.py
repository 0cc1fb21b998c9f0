"""Tables and views of a store: SQL from row models, schema versions and migrations."""

import re
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import duckdb

from claimflow.flows import __version__
from claimflow.flows.errors import Fault, InputError
from claimflow.flows.store.arrow import quoted_text, read_table
from claimflow.flows.store.fingerprint import Digest
from claimflow.flows.store.segments import (
    IN_ORDER,
    by_shard,
    columns_of,
    groups_of_parts,
    in_digest_order,
    rows_of,
    stored_lists,
    write_parts,
)
from claimflow.stages.rows import JSON, Row, row_kinds
from claimflow.stages.tables import content_columns, python_type

# Schema versions and migrations. To add a column to a row: add the field to its model, add a
# version with the column to ADDED, and describe the column in the guide to the tables.


ADDED: Final[dict[int, dict[str, tuple[str, ...]]]] = {
    2: {"claims": ("failure", "call_id"), "verdicts": ("failure", "call_id")},
    3: {
        "sentence_matches": (
            "clipped_overlap_precision",
            "clipped_overlap_recall",
            "clipped_overlap_f1",
            "chrf",
            "compat",
        ),
        "scores": ("part", "whole"),
        "summaries": ("micro_mean",),
    },
    4: {
        "samples": ("response_claims", "reference_claims"),
        "verdicts": ("agreement", "ballot"),
    },
    5: {"verdicts": ("judged_by", "model_verdict")},
    6: {},
    7: {},
    8: {},
    9: {"claims": ("kind", "ambiguous"), "verdicts": ("support",)},
    10: {},
    11: {},
    12: {},
    13: {},
    14: {},
    15: {},
}
"""The columns that each schema version added to tables of rows; older rows hold NULL in them.
Versions follow each other without a gap. A new table or view needs no entry of its own, only a
version, which may be empty."""

_ADDED_TO_ARTIFACTS: Final = """
ALTER TABLE audit.artifacts ADD COLUMN IF NOT EXISTS recipe UUID
  DEFAULT '00000000-0000-0000-0000-000000000000';
ALTER TABLE audit.artifacts ADD COLUMN IF NOT EXISTS inputs JSON DEFAULT '{}';
ALTER TABLE audit.artifacts ALTER recipe DROP DEFAULT;
ALTER TABLE audit.artifacts ALTER inputs DROP DEFAULT;
ALTER TABLE audit.artifacts ALTER recipe SET NOT NULL;
ALTER TABLE audit.artifacts ALTER inputs SET NOT NULL;
"""
"""What schema version 4 added to `audit.artifacts`. No step has the recipe of older rows; every
later INSERT must give a value."""

_ADDED_TO_RUNS: Final = """
ALTER TABLE audit.runs ADD COLUMN IF NOT EXISTS sample_count BIGINT;
ALTER TABLE audit.runs ADD COLUMN IF NOT EXISTS samples_available BIGINT;
ALTER TABLE audit.runs ADD COLUMN IF NOT EXISTS step_count BIGINT;
ALTER TABLE audit.runs ADD COLUMN IF NOT EXISTS steps_available BIGINT;
ALTER TABLE audit.runs ADD COLUMN IF NOT EXISTS selection VARCHAR;
"""
"""What schema version 6 added to `audit.runs`. Whether an older run is partial is unknown: it
counts as whole, as it always did."""

_ADDED_PLUGIN: Final = "ALTER TABLE audit.artifacts ADD COLUMN IF NOT EXISTS plugin JSON"
"""What schema version 7 added to `audit.artifacts`; with new views and their comments."""

_ADDED_TO_TAGS_AND_LABELS: Final = """
ALTER TABLE audit.tags ADD COLUMN IF NOT EXISTS who VARCHAR;
ALTER TABLE audit.tags ADD COLUMN IF NOT EXISTS removed BOOLEAN;
ALTER TABLE audit.labels ADD COLUMN IF NOT EXISTS unsure BOOLEAN;
ALTER TABLE audit.labels ADD COLUMN IF NOT EXISTS comment VARCHAR;
ALTER TABLE audit.labels ADD COLUMN IF NOT EXISTS seen BOOLEAN;
ALTER TABLE audit.labels ADD COLUMN IF NOT EXISTS adjudicates BOOLEAN;
"""
"""What schema version 12 added to `audit.tags` and `audit.labels`."""

_ADDED_TO_BATCH_CALLS: Final = """
ALTER TABLE audit.batch_calls ADD COLUMN IF NOT EXISTS step VARCHAR;
ALTER TABLE audit.batch_calls ADD COLUMN IF NOT EXISTS reserved DECIMAL(18, 9);
"""
"""What schema version 14 added to `audit.batch_calls`."""

_CHANGES: Final[dict[int, str]] = {
    4: _ADDED_TO_ARTIFACTS,
    6: _ADDED_TO_RUNS,
    7: _ADDED_PLUGIN,
    12: _ADDED_TO_TAGS_AND_LABELS,
    14: _ADDED_TO_BATCH_CALLS,
}
"""SQL for what schema versions added to tables of `audit`."""

_SEGMENTS: Final = """
CREATE OR REPLACE VIEW audit.artifact_segments AS
SELECT artifact_id, kind, shard, place + number - segment AS place, number AS segment
FROM (SELECT artifact_id, kind, shard, place, segment,
             unnest(range(segment, segment + length)) AS number
      FROM audit.artifact_parts JOIN audit.parts USING (part))
"""
"""The segments of the tables one by one. The view is not in store.sql, which is executed before a
migration: the table `audit.parts` of a store of version 11 to 14 has no column `length`."""

_IN_RANGES: Final = """
INSERT INTO audit.parts
SELECT part, min(place), min(segment), count(*)
FROM (
  SELECT *, sum(CASE WHEN place - before = 1 AND segment - smaller = 1 THEN 0 ELSE 1 END)
              OVER (PARTITION BY part ORDER BY place ROWS UNBOUNDED PRECEDING) AS run
  FROM (SELECT *, lag(place) OVER list AS before, lag(segment) OVER list AS smaller
        FROM audit.parts_before WINDOW list AS (PARTITION BY part ORDER BY place))
)
GROUP BY part, run ORDER BY part, min(place)
"""
"""What schema version 15 changed: a list of segments is stored as ranges of them."""

SCHEMA_VERSION: Final = max(ADDED)


def prepare(connection: duckdb.DuckDBPyConnection, path: Path, at: datetime) -> None:
    """Make the tables and views of a new store, or migrate a store of an older schema version.

    Raises `InputError` when the store is of a newer version, when the file holds other tables,
    and when a row model has a column that no migration added.
    """
    found = schema_version(connection)
    if found is None:
        _refuse_foreign(connection, path)
    else:
        _refuse_newer(path, found)
    connection.execute(_sql("store.sql"))
    if found is None:
        connection.execute(_SEGMENTS)
        connection.execute(
            "INSERT INTO audit.store VALUES ($version, $by, $at)",
            {"version": SCHEMA_VERSION, "by": __version__, "at": at},
        )
    elif found < SCHEMA_VERSION:
        _migrate(connection, path, found)
    columns = _stored_columns(connection)
    _refuse_missing_columns(path, columns)
    new = [row for row in row_kinds() if row.table not in columns]
    for row in new:
        connection.execute(_table_sql(row))
    if new or found != SCHEMA_VERSION:
        for row in row_kinds():
            connection.execute(_view_sql(row))
        connection.execute(f"CREATE OR REPLACE VIEW repeated_claims AS {REPEATED_CLAIMS}")
        connection.execute(_sql("views.sql"))
        _make_latest_views(connection)


def check(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Raise `InputError` when the file cannot be read as a store of this schema version."""
    found = schema_version(connection)
    if found is None:
        what, hint = "there is no store in it", "run a pipeline first"
        raise InputError([Fault(str(path), what, hint)])
    _refuse_newer(path, found)
    if found < SCHEMA_VERSION:
        what = f"holds schema version {found}, and this claimflow reads {SCHEMA_VERSION}"
        raise InputError([Fault(str(path), what, f"{migrate_hint(path)}, as the next run does")])
    columns = _stored_columns(connection)
    missing = [row.table for row in row_kinds() if row.table not in columns]
    if missing:
        what = f"lacks the table {' and '.join(missing)}, which is newer"
        raise InputError([Fault(str(path), what, f"{migrate_hint(path)}, as the next run does")])
    _refuse_missing_columns(path, columns)


def migrate_hint(path: Path) -> str:
    """What to do about a store of an older schema version."""
    return f"`claimflow migrate --store {path}` brings it up to date"


def schema_version(connection: duckdb.DuckDBPyConnection) -> int | None:
    """The schema version of a store, or None where there is no store yet."""
    if not has_table(connection, "store"):
        return None
    found = connection.execute("SELECT schema_version FROM audit.store").fetchall()
    return int(found[0][0]) if found else None


def is_current(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether a store has this schema version, and the tables of all rows."""
    current = schema_version(connection) == SCHEMA_VERSION
    return current and len(_stored_columns(connection)) == len(row_kinds())


def has_table(connection: duckdb.DuckDBPyConnection, table: str) -> bool:
    """Whether a store has a table of `audit`; a store of an older schema version may lack one."""
    query = "FROM duckdb_tables() WHERE schema_name = 'audit' AND table_name = $table"
    return bool(connection.execute(query, {"table": table}).fetchall())


def content_columns_at(row: type[Row], version: int) -> tuple[str, ...]:
    """The columns that a digest covered when `version` was the newest schema version."""
    newer = range(version + 1, SCHEMA_VERSION + 1)
    later = {column for number in newer for column in ADDED[number].get(row.table, ())}
    return tuple(name for name in content_columns(row) if name not in later)


def _migrate(connection: duckdb.DuckDBPyConnection, path: Path, found: int) -> None:
    """Bring the tables of a store from schema version `found` to ours, in its transaction."""
    kinds = {row.table: row for row in row_kinds()}
    for version in range(found + 1, SCHEMA_VERSION + 1):
        for table, columns in ADDED[version].items():
            for name in columns:
                # A store from between two releases may have the column under the older version.
                connection.execute(
                    f"ALTER TABLE stored.{table} ADD COLUMN IF NOT EXISTS "
                    f'"{name}" {_sql_type(kinds[table], name)}'
                )
    for version, change in _CHANGES.items():
        if found < version:
            connection.execute(change)
    if found < 15:
        _refuse_what_is_in_use(connection, path, rows=found < 11)
        if found >= 11:  # The table of an older store is new.
            connection.execute("ALTER TABLE audit.parts RENAME TO parts_before")
            connection.execute(_sql("store.sql"))
            connection.execute(_IN_RANGES)
            connection.execute("DROP TABLE audit.parts_before")
        connection.execute(_SEGMENTS)
    if found < 11:
        _write_anew(connection)
    connection.execute("UPDATE audit.store SET schema_version = $new", {"new": SCHEMA_VERSION})


def _refuse_what_is_in_use(
    connection: duckdb.DuckDBPyConnection, path: Path, *, rows: bool
) -> None:
    """Refuse a migration that writes `audit.parts` anew, or with `rows` those of all rows.

    Raises `StoreBusyError` while a run is in progress, which may be one of an older claimflow, and
    `InputError` where a table that is written anew has an index: claimflow makes none.
    """
    # Runs are read by means of a store.
    from claimflow.flows.store.runs import refuse_in_progress

    refuse_in_progress(connection, path, ", and the store has an older schema version")
    indexes = connection.execute(
        "SELECT schema_name || '.' || index_name, schema_name || '.' || table_name "
        "FROM duckdb_indexes() WHERE (schema_name = 'stored' AND $rows) "
        "OR (schema_name = 'audit' AND list_contains($anew, table_name)) ORDER BY ALL",
        {"rows": rows, "anew": ["parts", *(_WRITTEN_ANEW if rows else ())]},
    ).fetchall()
    if indexes:
        hint = "drop it, and make it again after the migration"
        raise InputError(
            Fault(str(path), f"has the index {index} on {table}, which is written anew", hint)
            for index, table in indexes
        )


def _write_anew(connection: duckdb.DuckDBPyConnection) -> None:
    """What schema version 11 changed: rows are stored as segments, and the ledger is compressed."""
    for row in row_kinds():
        if "artifact_id" in _columns(connection, row):
            _cut_into_segments(connection, row)
    # A store without languages has been given their table in its new form.
    by_segment = "segment" in connection.table("audit.languages").columns
    tables = [table for table in _WRITTEN_ANEW if table != "languages" or not by_segment]
    for table in tables:
        connection.execute(f"ALTER TABLE audit.{table} RENAME TO {table}_before")
    connection.execute(_sql("store.sql"))
    for table in tables:
        connection.execute(f"INSERT INTO audit.{table} BY NAME {_WRITTEN_ANEW[table]}")
        connection.execute(f"DROP TABLE audit.{table}_before")


_WRITTEN_ANEW: Final = {
    "replies": "FROM audit.replies_before",
    "calls": "FROM audit.calls_before",
    # They had a row for each artifact.
    "languages": "SELECT DISTINCT segment, field, language "
    "FROM audit.languages_before JOIN stored.samples USING (sample_id) JOIN "
    "(SELECT * FROM audit.artifact_segments WHERE kind = 'samples') USING (artifact_id, segment)",
}
"""The tables of `audit` whose form schema version 11 changed, with SQL for their rows."""


def _cut_into_segments(connection: duckdb.DuckDBPyConnection, row: type[Row]) -> None:
    """Write the rows of a table anew as segments; those of earlier nights are mostly the same.

    Before schema version 11 each artifact had all its rows for itself. Rows without a complete
    artifact, which a killed run left, go.
    """
    old = f"stored.{row.table}_by_artifact"
    connection.execute(f"ALTER TABLE stored.{row.table} RENAME TO {row.table}_by_artifact")
    connection.execute(_table_sql(row))
    artifacts = connection.execute(
        "SELECT artifact_id::VARCHAR, shards FROM audit.artifacts "
        "WHERE kind = $kind AND digest IS NOT NULL ORDER BY made_at, artifact_id",
        {"kind": row.table},
    ).fetchall()
    names = ", ".join(f'"{name}"' for name in row.model_fields)
    for artifact_id, shards in artifacts:
        moved = False
        for numbers in groups_of_parts(shards):
            rows = read_table(
                connection,
                f"SELECT shard, {names} FROM {old} WHERE artifact_id = $id "
                "AND shard BETWEEN $first AND $last ORDER BY rowid",
                id=artifact_id,
                first=numbers[0],
                last=numbers[-1],
            )
            given = by_shard(rows, numbers)
            parts = write_parts(connection, row, artifact_id, numbers[0], given)
            moved |= any(
                not in_digest_order(row, part).equals(before)
                for part, before in zip(parts, given, strict=True)
            )
        if moved:
            _digest_again(connection, row, artifact_id, old)
    connection.execute(f"DROP TABLE {old}")


def _digest_again(
    connection: duckdb.DuckDBPyConnection, row: type[Row], artifact_id: str, old: str
) -> None:
    """Replace the digest of a table whose rows are in another order than they were in `old`.

    A digest that is not that of the old rows stays, for `verify` to report.
    """
    names = columns_of(row, row.model_fields)
    one = f"WHERE artifact_id = '{artifact_id}'"
    before = read_table(connection, f"SELECT * FROM {old} AS rows {one} ORDER BY shard, rowid")
    after = read_table(connection, f"SELECT shard, {names} FROM {rows_of(row)} {one} {IN_ORDER}")
    counted = [in_digest_order(row, part) for part in after.partition_by("shard")]
    for columns in {content_columns_at(row, version) for version in ADDED}:
        digest, new = Digest(row, columns), Digest(row, columns)
        digest.add(before)
        for part in counted:
            new.add(part)
        connection.execute(
            f"UPDATE audit.artifacts SET digest = $new {one} AND digest = $old",
            {"new": new.value(), "old": digest.value()},
        )


def _stored_columns(connection: duckdb.DuckDBPyConnection) -> dict[str, list[str]]:
    """The columns of the tables of rows, by table; takes 2 ms, and DuckDB's catalog views 5."""
    columns = {}
    for row in row_kinds():
        found = _columns(connection, row)
        if found:
            columns[row.table] = found
    return columns


def _columns(connection: duckdb.DuckDBPyConnection, row: type[Row]) -> list[str]:
    """The columns of the table of a kind of row; a kind that is new has no table yet."""
    try:
        return connection.table(f"stored.{row.table}").columns
    except duckdb.CatalogException:
        return []


def _refuse_missing_columns(path: Path, columns: dict[str, list[str]]) -> None:
    """Raise `InputError` for fields of row models that their tables lack.

    That is so after a field was added to a model without a migration. Tables that are not there
    yet are made by the next write.
    """
    faults = [
        Fault(
            str(path),
            f"the row {row.__name__} ({row.__module__}) has the column {name!r}, "
            f"and the table stored.{row.table} lacks it",
            "add its migration, a new schema version in ADDED of flows/store/schema.py",
        )
        for row in row_kinds()
        for name in row.model_fields
        if row.table in columns and name not in columns[row.table]
    ]
    if faults:
        raise InputError(faults)


def _refuse_foreign(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    others = connection.execute(
        "SELECT table_name FROM duckdb_tables() ORDER BY table_name LIMIT 1"
    ).fetchall()
    if others:
        what = f"is not a store: it has other tables, such as {others[0][0]!r}"
        raise InputError([Fault(str(path), what, "name another file as the store")])


def _refuse_newer(path: Path, found: int) -> None:
    if found > SCHEMA_VERSION:
        what = f"holds schema version {found}, and this claimflow writes {SCHEMA_VERSION}"
        hint = "use the claimflow that made it, or a new store"
        raise InputError([Fault(str(path), what, hint)])


# SQL for the tables and views of rows, made from the row models. Other tables are in store.sql,
# other views in views.sql.

_SQL_TYPES: Final[dict[Any, str]] = {
    str: "VARCHAR",
    int: "BIGINT",
    float: "DOUBLE",
    bool: "BOOLEAN",
    UUID: "UUID",
    list[str]: "VARCHAR[]",
}

REPEATED_CLAIMS: Final = r"""
SELECT run_id, step, sample_id, "of", claim_id, claim, first_value(claim) OVER same AS repeats
FROM (
  SELECT *, trim(regexp_replace(regexp_replace(
             replace(lower(nfc_normalize(claim)), '’', chr(39)),
             '["“”„«»*_`]|[,.;:!?…。！？]+([\s\pZ]|$)', ' ', 'g'), '[\s\pZ]+', ' ', 'g'))
         AS folded
  FROM claims WHERE claim IS NOT NULL
)
WINDOW same AS (PARTITION BY run_id, step, sample_id, "of", folded
                ORDER BY start NULLS LAST, claim)
QUALIFY row_number() OVER same > 1
"""
"""Claims that repeat an earlier claim of the same text, which `repeats` holds. Case, white space,
quotation marks and punctuation at the end of a phrase do not count."""


def _table_sql(row: type[Row]) -> str:
    """SQL that makes the table of a row model."""
    columns = [f'"{name}" {_stored_type(row, name)}' for name in row.model_fields]
    return f"CREATE TABLE stored.{row.table} (segment BIGINT, {', '.join(columns)})"


def _view_sql(row: type[Row]) -> str:
    """SQL that makes the view of a row model: its rows, with the runs and steps that used them."""
    # Columns are named: one that a later schema version added is the last one in its table. The
    # column `end` has another name in the view: queries would have to quote it.
    columns = columns_of(row, row.model_fields).replace('rows."end"', 'rows."end" AS stop')
    return (
        f"CREATE OR REPLACE VIEW {row.table} AS SELECT run_id, step, {columns} "
        f"FROM {rows_of(row)} JOIN audit.run_steps USING (artifact_id)"
    )


def _make_latest_views(connection: duckdb.DuckDBPyConnection) -> None:
    """Make a view of the newest whole run of each pipeline for each view of all runs, and the
    comments on all of them."""
    comments = _sql("comments.sql")
    connection.execute(comments)
    # The file may have further views, which its owner made.
    described = re.findall(r"^COMMENT ON VIEW (\w+) IS", comments, re.MULTILINE)
    views = dict.fromkeys([*(row.table for row in row_kinds()), *described])
    of_views = "WHERE database_name = current_database() AND schema_name = 'main'"
    comment_of = dict(
        connection.execute(f"SELECT view_name, comment FROM duckdb_views() {of_views}").fetchall()
    )
    columns = connection.execute(
        "SELECT table_name, column_name, comment FROM duckdb_columns() "
        f"{of_views} AND comment IS NOT NULL"
    ).fetchall()
    script = []
    for view in views:
        script += [
            f"CREATE OR REPLACE VIEW latest.{view} AS SELECT pipeline, rows.* "
            f"FROM main.{view} AS rows JOIN audit.latest_runs USING (run_id)",
            f"COMMENT ON COLUMN latest.{view}.pipeline IS 'the pipeline of the run'",
        ]
        comment = comment_of[view] or ""
        every = quoted_text(f"All runs. {comment}")
        latest = quoted_text(f"The latest run of each pipeline. {comment}")
        script += [
            f"COMMENT ON VIEW {view} IS {every}",
            f"COMMENT ON VIEW latest.{view} IS {latest}",
        ]
    script += [
        f'COMMENT ON COLUMN latest.{view}."{column}" IS {quoted_text(comment)}'
        for view, column, comment in columns
        if view in views
    ]
    connection.execute(";\n".join(script))


def _sql_type(row: type[Row], name: str) -> str:
    return "JSON" if JSON in row.model_fields[name].metadata else _SQL_TYPES[python_type(row, name)]


def _stored_type(row: type[Row], name: str) -> str:
    """The type of a column in the schema stored, with its compression where we choose it."""
    kind = "VARCHAR" if name in stored_lists(row) else _sql_type(row, name)
    return f"{kind} USING COMPRESSION zstd" if name in _TEXTS.get(row.table, ()) else kind


_TEXTS: Final[dict[str, tuple[str, ...]]] = {
    "samples": ("user_input", "response", "reference", "retrieved_contexts", "metadata"),
    "claims": ("claim",),
    "sentence_matches": ("sentence",),
    "verdicts": ("evidence", "reason", "ballot"),
    "rubric_verdicts": ("reason", "ballot"),
}
"""The columns that zstd compresses, as the prompts and replies in store.sql: texts that differ from
row to row. DuckDB would take a method that is eight times slower and half as good for them, but
better for texts that repeat, such as the reasons of scores."""


def _sql(file: str) -> str:
    return files("claimflow.flows.store").joinpath(file).read_text("utf-8")
