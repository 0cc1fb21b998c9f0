"""How a store that an older claimflow made becomes one of ours, one schema version at a time."""

from typing import Final, NamedTuple

import duckdb

from claimflow.stages.row import Row
from claimflow.stages.tables import content_columns

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
