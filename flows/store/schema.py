"""Tables and views of a store: SQL from row models, schema versions and migrations."""

from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple

import duckdb

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.version import VERSION
from claimflow.stages.rows import JSON, Row, row_kinds
from claimflow.stages.tables import content_columns, python_type

# The tables and views of a store, as SQL made from the row models.


_SQL: Final[dict[Any, str]] = {
    "str": "VARCHAR",
    "int": "BIGINT",
    "float": "DOUBLE",
    "bool": "BOOLEAN",
    "UUID": "UUID",
    "list[str]": "VARCHAR[]",
}


def table_sql(row: type[Row]) -> str:
    """The statement that makes the table of a kind of row."""
    columns = [f'"{name}" {_sql_type(row, name)}' for name in row.model_fields]
    columns = ["artifact_id UUID", "shard INTEGER", *columns]
    return f"CREATE TABLE stored.{row.table} ({', '.join(columns)})"


def view_sql(row: type[Row]) -> str:
    """The statement that makes its view: rows with the runs and steps that used them."""
    # By name: a column that a newer schema version added is the last one in its table.
    columns = ", ".join(f'rows."{name}"' for name in row.model_fields)
    return (
        f"CREATE OR REPLACE VIEW {row.table} AS SELECT run_id, step, {columns} "
        f"FROM stored.{row.table} AS rows JOIN audit.run_steps USING (artifact_id)"
    )


def latest_sql(row: type[Row]) -> str:
    """The statement that makes its view of the newest run that is done."""
    newest = "SELECT arg_max(run_id, started_at) FROM audit.runs WHERE status = 'done'"
    return (
        f"CREATE OR REPLACE VIEW latest.{row.table} AS SELECT * EXCLUDE (run_id) "
        f"FROM main.{row.table} WHERE run_id = ({newest})"
    )


UNSTABLE_SQL: Final = """
CREATE OR REPLACE VIEW unstable AS
SELECT run_id, step, sample_id, claim, against, passage, verdict, agreement, ballot
FROM verdicts
JOIN (SELECT DISTINCT run_id, claim_id, sample_id, claim FROM claims) USING (run_id, claim_id)
WHERE agreement < 1
"""
"""The statement that makes the view of verdicts whose votes differ."""

CASCADES_SQL: Final = """
CREATE OR REPLACE VIEW cascades AS
SELECT run_id, step, sum(verdicts)::BIGINT AS verdicts, sum(settled)::BIGINT AS settled,
       sum(referred)::BIGINT AS referred, sum(audited)::BIGINT AS audited,
       sum(failed)::BIGINT AS failed, sum(disagreed)::BIGINT AS disagreed,
       sum(relabelled)::BIGINT AS relabelled,
       sum(votes * (ceil(verdicts / per_call) - ceil((verdicts - settled) / per_call)))::BIGINT
           AS calls_saved
FROM (
  SELECT run_id, step, sample_id, passage,
         (settings ->> '$.claims_per_call')::INTEGER AS per_call,
         (settings ->> '$.votes')::INTEGER AS votes, count(*) AS verdicts,
         count(*) FILTER (judged_by = 'embedded') AS settled,
         count(*) FILTER (judged_by = 'judge') AS referred,
         count(*) FILTER (judged_by = 'audit' AND verdict IS NOT NULL) AS audited,
         count(*) FILTER (verdict IS NULL) AS failed,
         count(*) FILTER (judged_by = 'audit'
             AND (verdict = 'entailed') <> (model_verdict = 'entailed')) AS disagreed,
         count(*) FILTER (judged_by = 'audit' AND verdict <> model_verdict) AS relabelled
  FROM verdicts
  JOIN (SELECT DISTINCT run_id, claim_id, sample_id FROM claims) USING (run_id, claim_id)
  JOIN audit.run_steps USING (run_id, step)
  JOIN (SELECT artifact_id, settings FROM audit.artifacts) USING (artifact_id)
  WHERE judged_by IS NOT NULL
  GROUP BY ALL
)
GROUP BY run_id, step
"""
"""The statement that makes the view of cascades: who gave the verdicts of each, and how often
the judge disagrees where the embedded model was sure."""

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
"""The claims that a text has more than once, but for case, white space, quotation marks and what
ends a phrase: each but the first of them, which it `repeats`."""

REPEATED_CLAIMS_SQL: Final = f"CREATE VIEW IF NOT EXISTS repeated_claims AS {REPEATED_CLAIMS}"
"""The statement that makes the view of them."""


def _sql_type(row: type[Row], name: str) -> str:
    if JSON in row.model_fields[name].metadata:
        return "JSON"
    kind = python_type(row, name)
    return _SQL[getattr(kind, "__name__", str(kind)) if kind != list[str] else "list[str]"]


# How a store that an older claimflow made becomes one of ours, one schema version at a time.


SCHEMA_VERSION: Final = 5


class Added(NamedTuple):
    """A column that a schema version added; rows made before hold `before` in it."""

    table: str
    column: str
    sql_type: str
    before: str | None = None


ADDED: Final[dict[int, tuple[Added, ...]]] = {
    2: (
        Added("stored.claims", "failure", "VARCHAR"),
        Added("stored.claims", "call_id", "UUID"),
        Added("stored.verdicts", "failure", "VARCHAR"),
        Added("stored.verdicts", "call_id", "UUID"),
    ),
    3: (
        Added("stored.sentence_matches", "clipped_overlap_precision", "DOUBLE"),
        Added("stored.sentence_matches", "clipped_overlap_recall", "DOUBLE"),
        Added("stored.sentence_matches", "clipped_overlap_f1", "DOUBLE"),
        Added("stored.sentence_matches", "chrf", "DOUBLE"),
        Added("stored.sentence_matches", "compat", "VARCHAR"),
        Added("stored.scores", "part", "DOUBLE"),
        Added("stored.scores", "whole", "DOUBLE"),
        Added("stored.summaries", "micro_mean", "DOUBLE"),
    ),
    4: (
        Added("stored.samples", "response_claims", "VARCHAR[]"),
        Added("stored.samples", "reference_claims", "VARCHAR[]"),
        Added("stored.verdicts", "agreement", "DOUBLE"),
        Added("stored.verdicts", "ballot", "JSON"),
        # Such a recipe is that of no step.
        Added("audit.artifacts", "recipe", "UUID", "00000000-0000-0000-0000-000000000000"),
        Added("audit.artifacts", "inputs", "JSON", "{}"),
    ),
    5: (
        Added("stored.verdicts", "judged_by", "VARCHAR"),
        Added("stored.verdicts", "model_verdict", "VARCHAR"),
    ),
}
"""What each schema version added to tables that were there before it. A new table needs no
entry: `store.sql` makes what is missing, and views are always made anew."""


def migrate(connection: duckdb.DuckDBPyConnection, found: int) -> None:
    """Bring the tables of a store from schema version `found` to ours, in its transaction."""
    for version in range(found + 1, SCHEMA_VERSION + 1):
        for added in ADDED.get(version, ()):
            _add(connection, added)
    connection.execute("UPDATE audit.store SET schema_version = $new", {"new": SCHEMA_VERSION})


def content_columns_at(row: type[Row], version: int) -> tuple[str, ...]:
    """The columns that a digest covered when `version` was the newest schema version."""
    later = {
        added.column
        for newer in range(version + 1, SCHEMA_VERSION + 1)
        for added in ADDED.get(newer, ())
        if added.table == f"stored.{row.table}"
    }
    return tuple(name for name in content_columns(row) if name not in later)


def _add(connection: duckdb.DuckDBPyConnection, added: Added) -> None:
    table, column, sql_type, before = added
    if before is None:
        connection.execute(f'ALTER TABLE {table} ADD COLUMN "{column}" {sql_type}')
        return
    connection.execute(f"ALTER TABLE {table} ADD COLUMN \"{column}\" {sql_type} DEFAULT '{before}'")
    # Those who write from now on are to say what it is.
    connection.execute(f'ALTER TABLE {table} ALTER COLUMN "{column}" DROP DEFAULT')
    connection.execute(f'ALTER TABLE {table} ALTER COLUMN "{column}" SET NOT NULL')


# The tables and views in a store's file: made, brought up to date, or refused.


def prepare(connection: duckdb.DuckDBPyConnection, path: Path, at: datetime) -> None:
    """Make what a store needs, or bring one of an older schema version up to date.

    Raises `InputError` when the store is of a newer version, or the file somebody else's.
    """
    found = schema_version(connection)
    if found is None:
        _refuse_foreign(connection, path)
    else:
        _refuse_newer(path, found)
    connection.execute(files("claimflow.flows.store").joinpath("store.sql").read_text("utf-8"))
    if found is None:
        connection.execute(
            "INSERT INTO audit.store VALUES ($version, $by, $at)",
            {"version": SCHEMA_VERSION, "by": VERSION, "at": at},
        )
        for row in row_kinds():
            connection.execute(table_sql(row))
    elif found < SCHEMA_VERSION:
        migrate(connection, found)
    if found != SCHEMA_VERSION:
        for row in row_kinds():
            connection.execute(view_sql(row))
            connection.execute(latest_sql(row))
        connection.execute(UNSTABLE_SQL)
        connection.execute(CASCADES_SQL)
    connection.execute(REPEATED_CLAIMS_SQL)


def check(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Raise `InputError` when what is there cannot be read as a store of our version."""
    found = schema_version(connection)
    if found is None:
        what, hint = "there is no store in it", "run a pipeline first"
        raise InputError([Fault(str(path), what, hint)])
    _refuse_newer(path, found)
    if found < SCHEMA_VERSION:
        what = f"holds schema version {found}, and this claimflow reads {SCHEMA_VERSION}"
        hint = f"`claimflow migrate --store {path}` brings it up to date, as the next run does"
        raise InputError([Fault(str(path), what, hint)])


def schema_version(connection: duckdb.DuckDBPyConnection) -> int | None:
    """The schema version of a store, or None where there is no store yet."""
    if not has_table(connection, "audit", "store"):
        return None
    found = connection.execute("SELECT schema_version FROM audit.store").fetchall()
    return int(found[0][0]) if found else None


def has_table(connection: duckdb.DuckDBPyConnection, schema: str, table: str) -> bool:
    """Whether there is that table, which a store of an older claimflow may lack."""
    found = connection.execute(
        "SELECT count(*) FROM duckdb_tables() WHERE database_name = current_database() "
        "AND schema_name = $schema AND table_name = $table",
        {"schema": schema, "table": table},
    ).fetchall()
    return found != [(0,)]


def _refuse_foreign(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    others = connection.execute(
        "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database() "
        "ORDER BY table_name LIMIT 1"
    ).fetchall()
    if others:
        what = f"holds no store, but tables of others, such as {others[0][0]!r}"
        raise InputError([Fault(str(path), what, "name a file of its own as the store")])


def _refuse_newer(path: Path, found: int) -> None:
    if found > SCHEMA_VERSION:
        what = f"holds schema version {found}, and this claimflow writes {SCHEMA_VERSION}"
        hint = "use the claimflow that made it, or a new store"
        raise InputError([Fault(str(path), what, hint)])
