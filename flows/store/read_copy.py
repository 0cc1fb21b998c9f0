"""The read copy: a snapshot of the store beside it, which can be read while a run writes."""

import glob
import logging
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import duckdb

from claimflow.flows.errors import InputError, StoreError, StoreFullError
from claimflow.flows.files import is_file
from claimflow.flows.store.arrow import quoted_text
from claimflow.flows.store.connection import ATTACHED_AS, BLOCK_SIZE, log_path
from claimflow.flows.store.store import Store

_ABANDONED_AFTER: Final = 3600.0
"""Seconds after which an unfinished copy is taken for one that a crash left behind."""

_STORAGE_VERSION: Final = "v1.1.0"
"""The oldest DuckDB that can open a read copy."""

_COMPRESSION: Final = " USING COMPRESSION ZSTD"
"""What the SQL of a column says that is compressed with zstd, which DuckDB 1.1 does not read."""

COPY_MEMORY: Final = "512MB"
"""DuckDB's memory while it copies a store. It took 1.5 times the size of the store without a limit,
and is no slower with one."""

_ROWS_AT_ONCE: Final = 8 * 122_880
"""Rows of a table that are sorted at once: eight of DuckDB's row groups."""

REWRITTEN: Final = "new.duckdb"
"""The name of the file that `rewrite` writes."""

_NAME: Final = """format('"{}"."{}"', schema_name, table_name)"""
"""SQL for the name of a table in SQL."""

_LOG: Final = logging.getLogger("claimflow")


def read_copy_path(store: Path) -> Path:
    """The path of the read copy of a store: `evals.read.duckdb` beside `evals.duckdb`."""
    return store.with_name(f"{store.stem}.read{store.suffix}")


def is_current(store: Path) -> bool:
    """Whether nothing was written to the store since its read copy was made."""
    copy = read_copy_path(store)
    return (
        copy.is_file()
        and copy.stat().st_mtime_ns == store.stat().st_mtime_ns
        and not _log_time(store)
    )


def last_written(store: Path) -> float:
    """When something was last written to the store, in seconds since 1970."""
    return max(store.stat().st_mtime, _log_time(store))


def _log_time(store: Path) -> float:
    """When committed rows were last written to the log; 0 where there are none in it."""
    with suppress(OSError):
        found = log_path(store).stat()
        return found.st_mtime if found.st_size else 0.0
    return 0.0


def readable_store(path: Path) -> Store:
    """The store at `path`, read from its read copy where there is one, so that no lock is waited
    for; else the store itself."""
    copy = read_copy_path(path)
    return Store(path, copy=copy if is_file(copy) else None)


def write_read_copy(store: Store, *, memory: str = COPY_MEMORY) -> None:
    """Replace the read copy with a copy of the store, unless nothing has changed.

    Every DuckDB since 1.1 can open it. A process that has the older copy open goes on reading it.
    Writers wait while the file is copied, readers do not. DuckDB takes at most `memory`. Raises
    `StoreFullError` where the disk has no room for it and `StoreBusyError` while another process
    writes.
    """
    copy = read_copy_path(store.path)
    fold_log(store)
    try:
        with copying(store, copy, memory=memory) as (connection, folder):
            if is_current(store.path) or log_path(store.path).exists():
                return
            mark = store.path.stat()
            part = rewrite(connection, folder, storage_version=_STORAGE_VERSION)
            os.utime(part, ns=(mark.st_atime_ns, mark.st_mtime_ns))
            # Read-only: rows written into the copy would be lost when it is next replaced.
            part.chmod(mark.st_mode & 0o444)
            # A log here belongs to an older copy that some process wrote into.
            log_path(copy).unlink(missing_ok=True)
            part.replace(copy)
    except OSError as error:
        raise StoreFullError(f"{copy}: cannot be written ({error.strerror or error})") from error


@contextmanager
def copying(
    store: Store, target: Path, *, memory: str = COPY_MEMORY
) -> Iterator[tuple[duckdb.DuckDBPyConnection, Path]]:
    """A connection to a store, locked against writers, and a folder for what is to be `target`.

    DuckDB takes at most `memory`, and writes what does not fit into the folder. Only its owner can
    read the folder: DuckDB makes files with the mode that the umask allows. It is removed at the
    end.
    """
    _remove_abandoned(target)
    with TemporaryDirectory(prefix=f".{target.name}.", suffix=".part", dir=target.parent) as folder:
        config = bounded(memory) | {"temp_directory": f"{folder}/spill"}
        with store.reading(config=config) as connection:
            yield connection, Path(folder)


def bounded(memory: str) -> dict[str, Any]:
    """Settings of DuckDB that keep its memory below `memory`."""
    # Each thread needs memory for the rows that it compresses.
    return {"memory_limit": memory, "threads": 2}


def rewrite(
    connection: duckdb.DuckDBPyConnection,
    folder: Path,
    *,
    storage_version: str = "latest",
    kept: Mapping[str, str] | None = None,
) -> Path:
    """Write a new file with the tables and views of the open store into `folder`.

    Of a table in `kept` the new file gets the rows of its query, which ends with a condition, in
    the order of the table.
    """
    part = folder / REWRITTEN
    # A log would only cost time: a file that is not whole is never used.
    connection.execute(
        "ATTACH $path AS rewritten (TYPE duckdb, READ_WRITE, RECOVERY_MODE no_wal_writes, "
        f"STORAGE_VERSION '{storage_version}', BLOCK_SIZE {BLOCK_SIZE})",
        {"path": str(part)},
    )
    try:
        if kept:
            connection.execute(f"COPY FROM DATABASE {ATTACHED_AS} TO rewritten (SCHEMA)")
            _copy_rows(connection, kept)
        elif storage_version == "latest":
            connection.execute(f"COPY FROM DATABASE {ATTACHED_AS} TO rewritten")
        else:
            connection.execute("ATTACH ':memory:' AS structure")
            connection.execute(f"COPY FROM DATABASE {ATTACHED_AS} TO structure (SCHEMA)")
            _leave_compression_to_duckdb(connection)
            connection.execute("COPY FROM DATABASE structure TO rewritten (SCHEMA)")
            connection.execute(f"COPY FROM DATABASE {ATTACHED_AS} TO rewritten (DATA)")
            connection.execute("DETACH structure")
    finally:
        connection.execute("DETACH rewritten")
    return part


def _copy_rows(connection: duckdb.DuckDBPyConnection, kept: Mapping[str, str]) -> None:
    """Copy all rows, of the tables in `kept` those of their queries, in one transaction."""
    # A store may have tables that its owner made, which refer to older ones.
    tables = connection.execute(
        "SELECT schema_name || '.' || table_name, "
        f"{_NAME}, (SELECT string_agg(format('\"{{}}\"', column_name), ', ') "
        "FROM information_schema.columns AS c WHERE c.is_generated = 'NEVER' "
        f"AND c.table_catalog = '{ATTACHED_AS}' AND c.table_schema = schema_name "
        "AND c.table_name = t.table_name) FROM duckdb_tables() AS t "
        f"WHERE database_name = '{ATTACHED_AS}' ORDER BY table_oid"
    ).fetchall()
    connection.begin()
    try:
        for plain, table, columns in tables:
            insert = f"INSERT INTO rewritten.{table} ({columns})"
            if plain not in kept:
                connection.execute(f"{insert} SELECT {columns} FROM {ATTACHED_AS}.{table}")
                continue
            ((last,),) = connection.execute(f"SELECT max(rowid) FROM {plain}").fetchall()
            for first in range(0, 0 if last is None else last + 1, _ROWS_AT_ONCE):
                # The joins of the condition may change the order, above all where they spill.
                connection.execute(
                    f"{insert} {kept[plain]} AND rowid BETWEEN $first AND $last ORDER BY rowid",
                    {"first": first, "last": first + _ROWS_AT_ONCE - 1},
                )
        connection.commit()
    except BaseException:
        connection.rollback()
        raise


def _leave_compression_to_duckdb(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the tables of `structure` anew that name a compression: older versions lack it."""
    tables = connection.execute(
        f"SELECT {_NAME}, sql, comment FROM duckdb_tables() "
        f"WHERE database_name = 'structure' AND contains(sql, '{_COMPRESSION}')"
    ).fetchall()
    connection.execute("USE structure")
    for table, sql, about in tables:
        columns = connection.execute(
            "SELECT column_name, comment FROM duckdb_columns() "
            f"WHERE database_name = 'structure' AND {_NAME} = $table",
            {"table": table},
        ).fetchall()
        connection.execute(f"DROP TABLE {table}")
        connection.execute(sql.replace(_COMPRESSION, ""))
        named = [(f"TABLE {table}", about)]
        named += [(f'COLUMN {table}."{column}"', comment) for column, comment in columns]
        for what, comment in named:
            if comment is not None:
                connection.execute(f"COMMENT ON {what} IS {quoted_text(comment)}")
    connection.execute(f"USE {ATTACHED_AS}")


def update_read_copy(store: Store, *, wanted: bool) -> None:
    """Write the read copy, or remove it where none is `wanted`; a failure is only logged."""
    try:
        if wanted:
            write_read_copy(store)
        else:
            read_copy_path(store.path).unlink(missing_ok=True)
    except (OSError, StoreError, InputError, duckdb.Error) as error:
        _LOG.warning("%s; until it is, queries without --live see an older state", error)


def refresh_read_copy(store: Store) -> None:
    """Write the read copy again after a command wrote to the store, where there is one."""
    if read_copy_path(store.path).is_file():
        update_read_copy(store, wanted=True)


def fold_log(store: Store) -> None:
    """Move into the file what DuckDB's log beside it holds after a crash."""
    if log_path(store.path).exists():
        with store.writing():
            pass


def _remove_abandoned(target: Path) -> None:
    """Remove unfinished copies of processes that crashed."""
    for part in target.parent.glob(f".{glob.escape(target.name)}.*.part"):
        with suppress(OSError):
            # Earlier versions left files. A large copy takes hours, and its file grows meanwhile.
            written = [part, *(part.iterdir() if part.is_dir() else ())]
            if time.time() - max(one.stat().st_ctime for one in written) > _ABANDONED_AFTER:
                shutil.rmtree(part) if part.is_dir() else part.unlink()
