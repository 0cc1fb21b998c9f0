"""The tables and views in a store's file: made, brought up to date, or refused."""

from datetime import datetime
from importlib.resources import files
from pathlib import Path

import duckdb

from claimflow.flows.engine.errors import Fault, InputError
from claimflow.flows.engine.storage.migrations import SCHEMA_VERSION, migrate
from claimflow.flows.engine.storage.row_sql import (
    CASCADES_SQL,
    REPEATED_CLAIMS_SQL,
    UNSTABLE_SQL,
    latest_sql,
    table_sql,
    view_sql,
)
from claimflow.flows.engine.version import VERSION
from claimflow.stages.rows import row_kinds


def prepare(connection: duckdb.DuckDBPyConnection, path: Path, at: datetime) -> None:
    """Make what a store needs, or bring one of an older schema version up to date.

    Raises `InputError` when the store is of a newer version, or the file somebody else's.
    """
    found = schema_version(connection)
    if found is None:
        _refuse_foreign(connection, path)
    else:
        _refuse_newer(path, found)
    connection.execute(
        files("claimflow.flows.engine.storage").joinpath("store.sql").read_text("utf-8")
    )
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
        what, right = "there is no store in it", "run a pipeline first"
        raise InputError([Fault(str(path), what, right)])
    _refuse_newer(path, found)
    if found < SCHEMA_VERSION:
        what = f"holds schema version {found}, and this claimflow reads {SCHEMA_VERSION}"
        right = f"`claimflow migrate --store {path}` brings it up to date, as the next run does"
        raise InputError([Fault(str(path), what, right)])


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
        right = "use the claimflow that made it, or a new store"
        raise InputError([Fault(str(path), what, right)])
