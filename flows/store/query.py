"""Queries of users: one SELECT on a store, in a process of its own with limits.

The process opens the store read-only and then gives up all access to files.
"""

import io
import os
import re
import shlex
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import duckdb
import polars as pl

from claimflow.flows.errors import Fault, InputError, StoreError
from claimflow.flows.store.arrow import Arrow, quoted_name, quoted_text, read_table
from claimflow.flows.store.limited_process import (
    LimitedProcess,
    end_with_parent,
    limit_process,
    limit_time,
    served,
)
from claimflow.flows.store.schema import SCHEMA_VERSION, migrate_hint, schema_version
from claimflow.flows.store.store import Store

_LIMITS: Final = (
    "SET memory_limit = '2GB'",
    "SET temp_directory = ''",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET python_enable_replacements = false",
    "SET enable_external_access = false",
    # The setting before still allows every access to the attached file, even COPY TO it. With
    # this one DuckDB can open no file any more; the file that is open is still read.
    "SET disabled_filesystems = 'LocalFileSystem'",
    # The last one, because after it DuckDB refuses other settings.
    "SET lock_configuration = true",
)

_PROCESS_BYTES: Final = 3 * 2**30
"""The memory of the process: DuckDB's 2 GB and the result."""

_RESULT_BYTES: Final = 2**29

_LONGEST: Final = 10.0**8
"""Seconds: the operating system refuses alarms in a more distant future."""

_UNREADABLE: Final = re.compile(
    r"\b(?:INTERVAL|UNION|BIGNUM|VARIANT|BIT|TIME WITH TIME ZONE)\b|BLOB."
)
"""Types that Polars lacks or reads with a loss, and bytes in lists or structs."""


_PARAMETERS: Final = re.compile(r"(?i)\bparameters?\b|transform python value")
"""Messages about the values of parameters."""

Parameters = Sequence[Any] | Mapping[str, Any]
"""Values of the `?` of a query, or of its `$name`; values of the types that DuckDB takes."""


class Cancellation:
    """Ends a query from another thread, before it starts or while it runs."""

    def __init__(self) -> None:
        self.asked = False
        self._lock = threading.Lock()
        self._process: LimitedProcess | None = None

    def cancel(self) -> None:
        """End the process of the query; a query that has ended is left as it is."""
        with self._lock:
            self.asked = True
            if self._process is not None:
                self._process.kill()

    def of(self, process: LimitedProcess) -> None:
        """Remember the process of the query, or end it where `cancel` came first."""
        with self._lock:
            self._process = process
            if self.asked:
                process.kill()


def query(
    store: Store,
    sql: str,
    parameters: Parameters | None = None,
    *,
    run: str | None = None,
    seconds: float = 60,
    rows: int | None = None,
    result_bytes: int = _RESULT_BYTES,
    cancellation: Cancellation | None = None,
) -> pl.DataFrame:
    """The result of one SELECT on a store of any schema version, or its first `rows`.

    Nothing is written, and the settings of this process stay as they are. `readable_store` gives
    a store whose queries do not wait for a run that writes.

    With `run`, the id of a run, every view has the rows of that run only, and the schema `latest`
    is that run; the schema `audit` has all runs.

    Columns that share a name get numbers, all but the first. Values of types that Polars lacks,
    such as intervals, are text.

    Raises `InputError` when `sql` is anything but one SELECT, when DuckDB refuses it, and when it
    takes longer than `seconds` or more than 2 GB of memory, or returns more than `result_bytes`,
    and when `cancellation` ends it.
    Raises `StoreBusyError` where another process writes to the file for longer than `store.wait`.
    """
    began = time.monotonic()
    with closing(LimitedProcess(__name__, "answer")) as process:
        try:
            if cancellation is not None:
                cancellation.of(process)
            process.send((store.path, store.read_path, store.wait))
            process.send((sql, parameters, run, min(seconds, _LONGEST), rows, result_bytes))
            process.receive()
            return pl.read_ipc_stream(process.receive_bytes())
        except (EOFError, OSError) as error:
            if cancellation is not None and cancellation.asked:
                what = f"cancelled after {time.monotonic() - began:.1f} s"
                raise InputError([Fault("sql", what, "run it again, or narrow it")]) from error
            raise InputError([_why_it_ended(process.how_it_ended(), seconds)]) from error


def _why_it_ended(how: str | None, seconds: float) -> Fault:
    if how is None:
        what = f"took longer than {seconds:g} s"
        return Fault("sql", what, "narrow it, or use `claimflow sql --timeout`")
    return Fault("sql", f"was ended {how}", "it may need too much memory: narrow it")


def answer() -> None:
    """Answer one query of `query`; its process does this and then ends."""
    connection = served()
    end_with_parent()
    path, copy, wait = connection.recv()
    try:
        arguments = connection.recv()
        table = _select(Store(path, wait=wait, copy=copy), *arguments)
        content = io.BytesIO()
        table.write_ipc_stream(content)
        connection.send(None)
        connection.send_bytes(content.getbuffer())
    except (InputError, StoreError) as error:
        connection.send(error)
    except (Exception, pl.exceptions.PanicException) as error:
        first_line, *_ = str(error).splitlines() or [""]
        what = f"{type(error).__name__}: {first_line}"
        connection.send(InputError([Fault("sql", what, "write the query another way")]))
    # At once, since nothing needs to be closed in order.
    os._exit(0)


def _select(
    store: Store,
    sql: str,
    parameters: Parameters | None,
    run: str | None,
    seconds: float,
    rows: int | None,
    result_bytes: int,
) -> pl.DataFrame:
    with store.reading(any_version=True, config={}) as connection:
        version = schema_version(connection) or SCHEMA_VERSION
        if run is not None:
            _show_only(connection, run)
        for limit in _LIMITS:
            connection.execute(limit)
        limit_process(_PROCESS_BYTES)
        limit_time(seconds)
        try:
            statement = only_select(connection, sql)
            result = _readable(connection.sql(statement, params=parameters))
            table = pl.DataFrame(Arrow(result if rows is None else result.limit(rows)))
        # Polars passes on what DuckDB raises after the first rows as a ComputeError.
        except (duckdb.Error, pl.exceptions.ComputeError, MemoryError) as error:
            raise InputError([_fault(error, version, store.path)]) from error
    if table.estimated_size() > result_bytes:
        what = f"returns more than {result_bytes / 2**20:,.0f} MB"
        raise InputError([Fault("sql", what, "select fewer rows or columns")])
    _check_dates(table)
    # The time is for the query, not for sending its result.
    limit_time(0)
    return table


def _show_only(connection: duckdb.DuckDBPyConnection, run: str) -> None:
    """Have names refer to views of one run: those of a database in memory before the store's.

    `latest.x` has the same rows as `x`, and the name of the pipeline before them.
    """
    store = quoted_name(connection.execute("SELECT current_database()").fetchall()[0][0])
    views = connection.execute(_VIEWS).fetchall()
    of_run = f"run_id = {quoted_text(run)}"
    connection.execute("ATTACH ':memory:' AS one_run (READ_WRITE)")
    connection.execute("CREATE SCHEMA one_run.latest; CREATE SCHEMA one_run.audit")
    for schema, name in views:
        here, there = (
            f"one_run.{schema}.{quoted_name(name)}",
            f"{store}.{schema}.{quoted_name(name)}",
        )
        chosen = "SELECT *"
        if schema == "latest":
            there = f"{store}.main.{quoted_name(name)}"
            pipeline = f"(SELECT pipeline FROM {store}.audit.runs WHERE {of_run})"
            chosen = f"SELECT {pipeline} AS pipeline, *"
        where = "" if schema == "audit" else f" WHERE {of_run}"
        connection.execute(f"CREATE VIEW {here} AS {chosen} FROM {there}{where}")
    connection.execute("USE one_run.main")


_VIEWS: Final = """
SELECT schema_name, view_name FROM duckdb_views()
WHERE NOT internal AND schema_name IN ('main', 'latest', 'audit')
UNION ALL
SELECT schema_name, table_name FROM duckdb_tables() WHERE schema_name = 'audit'
"""


def _check_dates(table: pl.DataFrame) -> None:
    """Raise `InputError` for dates that Python lacks, and with it most formats of output."""
    for column in table:
        try:
            if "Date" in str(column.dtype):
                _ = column.to_list() if column.dtype.is_nested() else (column.min(), column.max())
        except (pl.exceptions.PanicException, OverflowError, ValueError) as error:
            what = f"the column {column.name!r} has dates outside the years 1 to 9999"
            raise InputError([Fault("sql", what, "cast it to VARCHAR")]) from error


def only_select(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    """The statement of `sql`. Raises `InputError` unless it is one, and a SELECT for DuckDB.

    For DuckDB DESCRIBE, SUMMARIZE, SHOW, VALUES, FROM and TABLE are SELECTs. So is
    WITH a AS (COPY ...): it cannot write because the process gave up all access to files.
    """
    try:
        statements = connection.extract_statements(sql)
        kinds = [statement.type.name for statement in statements]
    except ValueError:
        # DuckDB has more kinds of statements than its Python package knows.
        kinds = ["UNKNOWN"]
    if kinds == ["SELECT"]:
        return statements[0]
    what, hint = "is not a SELECT", "write one SELECT: a query only reads the tables of the store"
    if not kinds:
        what = "is empty"
    elif len(kinds) > 1:
        what = f"has {len(kinds)} statements"
    elif kinds == ["MULTI"]:
        what, hint = "is a PIVOT that does not name its values", "write ON column IN (value, ...)"
    raise InputError([Fault("sql", what, hint)])


def _fault(error: Exception, version: int, path: Path) -> Fault:
    what = str(error).removeprefix("got external error: ").partition("\n\n")[0].strip()
    named = shlex.quote(str(path))
    hint = f"see `claimflow schema --tables --store {named}` for the tables and columns"
    if isinstance(error, MemoryError) or what.startswith("Out of Memory Error"):
        what, hint = "needs more than 2 GB of memory", "narrow it"
    elif isinstance(error, duckdb.PermissionException):
        hint = "a query only reads the tables of the store"
    elif _PARAMETERS.search(what):
        hint = "give a value for each ? or $name, of a type that DuckDB has"
    unknown = isinstance(error, duckdb.BinderException | duckdb.CatalogException)
    if unknown and version < SCHEMA_VERSION:
        what += f" (schema version {version}, the newest is {SCHEMA_VERSION})"
        hint = migrate_hint(path)
    return Fault("sql", what, hint)


def _readable(result: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """The same result in types that Polars has."""
    if len(set(result.columns)) < len(result.columns):
        # As a subquery, columns that share a name become a, a_1.
        result = result.project("*")
    unreadable = [bool(_UNREADABLE.search(str(kind))) for kind in result.types]
    if not any(unreadable):
        return result
    quoted = [name.replace('"', '""') for name in result.columns]
    # By position: for DuckDB names that differ only in case are the same.
    return result.project(
        ", ".join(
            f'#{place}{"::VARCHAR" if as_text else ""} AS "{name}"'
            for place, (name, as_text) in enumerate(zip(quoted, unreadable, strict=True), 1)
        )
    )


def tables(store: Store) -> pl.DataFrame:
    """Every table and view of a store, of any schema version: columns with type and meaning."""
    with store.reading(any_version=True) as connection:
        return read_table(
            connection,
            """
            SELECT CASE schema_name WHEN 'main' THEN '' ELSE schema_name || '.' END
                   || table_name AS table_name, column_name, data_type, comment AS meaning
            FROM duckdb_columns() WHERE NOT internal AND database_name = current_database()
              AND schema_name IN ('main', 'audit')
            ORDER BY schema_name DESC, table_name, column_index
            """,
        )
