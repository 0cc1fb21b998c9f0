"""Tables of a store as Parquet files, for whatever reads those."""

import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import duckdb

from claimflow.flows.engine.errors import Fault, InputError, StoreFullError, one_of
from claimflow.flows.engine.storage.store import Store
from claimflow.stages.rows import row_kinds

_REPLIES: Final = "audit.replies"

_OF_RUN: Final = {
    "audit.artifacts": "artifact_id IN (SELECT artifact_id FROM audit.run_steps "
    "WHERE run_id = $run)",
    # Reused rows name calls of the runs that made them.
    "audit.calls": "run_id = $run OR call_id IN (SELECT call_id FROM claims WHERE run_id = $run) "
    "OR call_id IN (SELECT call_id FROM verdicts WHERE run_id = $run)",
}
"""What belongs to a run of the tables where that is not what bears its id."""


class Written(NamedTuple):
    """A file with a table, where it is, and whether one of that name was replaced."""

    table: str
    place: str
    rows: int
    replaced: bool


def export_tables(
    store: Store, folder: Path, *, tables: Sequence[str] = (), run_id: str | None = None
) -> Iterator[Written]:
    """Write tables (all but the ledger's replies, or those named) as `folder`/TABLE.parquet.

    With `run_id` only what belongs to that run. UUIDs and JSON are text in the files. Each
    file appears whole or not at all. Raises `InputError` for tables that are not there and
    for a folder that cannot be written.
    """
    with store.reading() as connection:
        known = _known(connection)
        wanted = [name for name in known if name in tables or (not tables and name != _REPLIES)]
        unknown = [name for name in tables if name not in known]
        if unknown:
            raise InputError(
                Fault("export", f"there is no table {name!r}", one_of(name, known))
                for name in unknown
            )
        _make(folder)
        for table in wanted:
            yield _write(connection, table, folder / f"{table}.parquet", run_id)


def _known(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """The tables there are: views of rows in the order of the vocabulary, then the record."""
    audit = connection.execute(
        "SELECT 'audit.' || table_name FROM duckdb_tables() "
        "WHERE database_name = current_database() AND schema_name = 'audit' ORDER BY 1"
    ).fetchall()
    return [*(row.table for row in row_kinds()), *(name for (name,) in audit)]


def _write(
    connection: duckdb.DuckDBPyConnection, table: str, path: Path, run_id: str | None
) -> Written:
    columns = connection.execute(f"DESCRIBE {table}").fetchall()
    as_text = [
        f'"{name}"::VARCHAR AS "{name}"' if kind in ("UUID", "JSON") else f'"{name}"'
        for name, kind, *_ in columns
    ]
    query = f"SELECT {', '.join(as_text)} FROM {table}"
    values: dict[str, Any] = {}
    if run_id is not None and (table in _OF_RUN or "run_id" in {name for name, *_ in columns}):
        query += f" WHERE {_OF_RUN.get(table, 'run_id = $run')}"
        values["run"] = run_id
    part = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    replaced = path.exists()
    try:
        copied = connection.execute(
            f"COPY ({query}) TO $path (FORMAT parquet, COMPRESSION zstd)",
            values | {"path": str(part)},
        ).fetchall()
        part.replace(path)
    except (duckdb.IOException, OSError) as error:
        raise StoreFullError(f"{path}: cannot be written ({error})") from error
    finally:
        part.unlink(missing_ok=True)
    return Written(table, str(path), int(copied[0][0]), replaced)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what, right = f"cannot be made ({error.strerror})", "name a folder of yours"
        raise InputError([Fault(str(folder), what, right)]) from error
