"""Tables passed between Polars and DuckDB by the Arrow stream protocol alone."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


class Arrow:
    """A table of either library that offers nothing but the Arrow stream protocol.

    Without it DuckDB needs pyarrow to scan a Polars frame. The module of the class does not import
    DuckDB: Polars keeps a reference to the class, and so to all that its module imports, and
    DuckDB would report leaks at every exit.
    """

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def quoted_name(name: str) -> str:
    """A name of a table or column as SQL."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def quoted_text(text: str) -> str:
    """A text as SQL, for statements that take no parameters, such as CREATE VIEW."""
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


# In the functions below DuckDB finds the variable `incoming` by its name in a query. To register it
# instead would keep every frame in memory until the transaction ends.


def read_table(
    connection: "DuckDBPyConnection",
    query: str,
    incoming: pl.DataFrame | Arrow | None = None,
    /,
    **values: Any,
) -> pl.DataFrame:
    """The result of `query`, with `values` bound to its `$name` parameters.

    The query may name the frame `incoming` as a table.
    """
    incoming = Arrow(incoming)
    return pl.DataFrame(Arrow(connection.sql(query, params=values or None)))


def insert(
    connection: "DuckDBPyConnection",
    table: str,
    frame: pl.DataFrame,
    *,
    as_json: Collection[str] = (),
    **constants: Any,
) -> None:
    """Append `frame`, with `constants` as further columns, to `table` by column name.

    Columns in `as_json` are written as JSON text.
    """
    incoming = Arrow(frame)  # noqa: F841
    names = [f'"{name}"' for name in (*constants, *frame.columns)]
    selected = [f"${name}" for name in constants]
    selected += [
        f'to_json("{name}")::VARCHAR' if name in as_json else f'"{name}"' for name in frame.columns
    ]
    connection.execute(
        f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(selected)} FROM incoming",
        constants or None,
    )
