"""User queries: read-only SQL without files or network, bounded in time."""

import re
import threading
from typing import Final

import duckdb
import polars as pl

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.store.arrow import Arrow
from claimflow.flows.store.schema import SCHEMA_VERSION, migrate_hint, schema_version
from claimflow.flows.store.store import Store

_LIMITS: Final = (
    "SET memory_limit = '2GB'",
    "SET temp_directory = ''",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET python_enable_replacements = false",
    # These two come last: after them DuckDB refuses other settings.
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)

_UNREADABLE: Final = re.compile(
    r"\b(?:INTERVAL|UNION|BIGNUM|VARIANT|BIT|TIME WITH TIME ZONE)\b|BLOB."
)
"""Types that Polars lacks or reads with a loss, and bytes in lists or structs."""


def query(store: Store, sql: str, *, seconds: float, rows: int | None = None) -> pl.DataFrame:
    """The result of one SQL query on a store of any schema version, or its first `rows`.

    Columns that share a name get numbers, all but the first. Values of types that Polars lacks,
    such as intervals, are text.

    Raises `InputError` when DuckDB refuses the query, when it returns no table, or when it takes
    longer than `seconds`.
    """
    with store.reading(any_version=True, exclusive=True) as connection:
        version = schema_version(connection) or SCHEMA_VERSION
        for limit in _LIMITS:
            connection.execute(limit)
        timer = threading.Timer(seconds, connection.interrupt)
        timer.start()
        try:
            result = connection.sql(sql)
            if result is None:
                raise InputError([Fault("sql", "answers nothing", "write a SELECT")])
            readable = _readable(result)
            return pl.DataFrame(Arrow(readable if rows is None else readable.limit(rows)))
        except duckdb.InterruptException as error:
            what = f"took longer than {seconds:g} s"
            raise InputError([Fault("sql", what, "narrow it, or raise --timeout")]) from error
        except duckdb.Error as error:
            what = str(error).partition("\n\nLINE")[0].strip()
            hint = "see `claimflow schema --tables` for the tables and columns"
            unknown = isinstance(error, duckdb.BinderException | duckdb.CatalogException)
            if unknown and version < SCHEMA_VERSION:
                what += f" (schema version {version}, the newest is {SCHEMA_VERSION})"
                hint = migrate_hint(store.path)
            raise InputError([Fault("sql", what, hint)]) from error
        finally:
            timer.cancel()


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
    """Every table and view of a store, with its columns and their types."""
    return query(
        store,
        """
        SELECT CASE schema_name WHEN 'main' THEN '' ELSE schema_name || '.' END
               || table_name AS table_name, column_name, data_type
        FROM duckdb_columns() WHERE NOT internal AND database_name = current_database()
          AND schema_name IN ('main', 'audit')
        ORDER BY schema_name DESC, table_name, column_index
        """,
        seconds=10,
    )
