"""The SQL page: queries, their results as table or file, and what there is to ask about."""

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from threading import BoundedSemaphore
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import polars as pl
from markupsafe import Markup, escape

from claimflow.flows.errors import InputError
from claimflow.flows.report.plots import bar_chart, to_svg
from claimflow.flows.report.table_files import encode_table
from claimflow.flows.report.templates import address
from claimflow.flows.store.query import query
from claimflow.flows.store.store import Store
from claimflow.flows.viewer.responses import Request, Response, page

QUERY_SECONDS: Final = 30.0

_MAX_ROWS: Final = 1_000
_MAX_CELL: Final = 2_000
_MAX_TABLE: Final = 4_000_000
"""Characters of a cell and of a table; more would be too much for a browser."""

_MAX_BYTES: Final = 64 * 2**20
"""Memory of the rows that a query returns, before cells are cut."""

_MAX_QUERIES: Final = 2
_QUERIES: Final = BoundedSemaphore(_MAX_QUERIES)
"""Queries that run at once; each may take 2 GB of memory and all cores."""

_DEFAULT_QUERY: Final = "SELECT * FROM latest.scores ORDER BY score, sample_id, metric LIMIT 20"

_FILES: Final = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}
"""The content types of results that are downloaded."""


def sql_page(store: Store, request: Request, token: str) -> Response:
    """The page with a query, its result, or a file with the result.

    A query in the address is shown and not run: another site could have made the link.
    """
    if request.method == "GET":
        sql = request.query.get("sql", _DEFAULT_QUERY)
        return Response(HTTPStatus.OK, _page(store, token, sql))
    sql = request.form.get("sql", "").replace("\r\n", "\n")
    wanted = request.form.get("as", "table")
    if not _QUERIES.acquire(blocking=False):
        messages = [f"{_MAX_QUERIES} queries are running; try again when one has ended"]
        status = HTTPStatus.SERVICE_UNAVAILABLE
        return Response(status, _page(store, token, sql, errors=messages))
    try:
        frame = query(
            store,
            sql,
            seconds=QUERY_SECONDS,
            # One row more than is shown, to know whether there are more.
            rows=None if wanted in _FILES else _MAX_ROWS + 1,
            result_bytes=_MAX_BYTES,
        )
    except InputError as error:
        messages = [f"{fault.what}; {fault.hint}" for fault in error.faults]
        return Response(HTTPStatus.BAD_REQUEST, _page(store, token, sql, errors=messages))
    finally:
        _QUERIES.release()
    if wanted in _FILES:
        return _file(frame, wanted)
    return Response(HTTPStatus.OK, _page(store, token, sql, table=_result_table(frame)))


def _file(frame: pl.DataFrame, wanted: str) -> Response:
    content = encode_table(frame, "csv" if wanted == "csv" else "parquet")
    headers = {
        "Content-Type": _FILES[wanted],
        "Content-Disposition": f'attachment; filename="claimflow.{wanted}"',
    }
    return Response(HTTPStatus.OK, content, headers=headers)


class DocumentedQuery(NamedTuple):
    """A query of the guide on SQL, and what it answers."""

    title: str
    sql: str


@cache
def documented_queries() -> list[DocumentedQuery]:
    """The queries in the chapter "Ten queries" of the guide."""
    guide = (files("claimflow.flows") / "guides" / "sql.md").read_text("utf-8")
    chapter = guide.partition("\n## Ten queries\n")[2]
    found = re.findall(r"\n\n([^\n]+):\n\n```sql\n(.*?)\n```", chapter, re.DOTALL)
    return [DocumentedQuery(title.replace("`", ""), sql) for title, sql in found]


class _TableColumns(NamedTuple):
    """A table that queries can name, with its columns: name, type, comment."""

    name: str
    link: str
    columns: list[tuple[str, str, str | None]]


def _tables(store: Store) -> list[_TableColumns]:
    """The views of the latest runs and of all, and the records of runs."""
    with store.reading(any_version=True) as connection:
        rows = connection.execute(_COLUMNS).fetchall()
    found: dict[str, list[tuple[str, str, str | None]]] = {}
    for table, *column in rows:
        name, kind, comment = column
        found.setdefault(table, []).append((name, kind, comment))
    return [
        _TableColumns(table, _link(f"FROM {table} LIMIT 20"), columns)
        for table, columns in found.items()
    ]


_COLUMNS: Final = """
SELECT CASE schema_name WHEN 'main' THEN table_name ELSE schema_name || '.' || table_name END,
       column_name, data_type, comment
FROM duckdb_columns()
WHERE NOT internal AND database_name = current_database()
  AND schema_name IN ('latest', 'main', 'audit')
ORDER BY array_position(['latest', 'main', 'audit'], schema_name), table_name, column_index
"""


def _link(sql: str) -> str:
    return "/sql?" + urlencode({"sql": sql})


class _Cell(NamedTuple):
    """A value as text; `link` leads to the run or sample that it names."""

    text: str
    link: str | None


class _ResultTable(NamedTuple):
    """The rows of a query result as text, and a note where some are left out."""

    columns: list[str]
    numeric: list[bool]
    rows: list[list[_Cell]]
    note: str
    chart: Markup | None


def _page(
    store: Store,
    token: str,
    sql: str,
    *,
    table: _ResultTable | None = None,
    errors: Sequence[str] = (),
) -> str:
    return page(
        "sql",
        token=token,
        # Escaped here, so that the template does not replace control characters: it is sent again.
        sql=escape(sql),
        here=_link(sql),
        table=table,
        errors=errors,
        seconds=QUERY_SECONDS,
        queries=[(one.title, _link(one.sql)) for one in documented_queries()],
        tables=_tables(store),
    )


def _result_table(frame: pl.DataFrame) -> _ResultTable:
    """The first rows of a query result; NULL is a dash, long cells end in an ellipsis."""
    rows: list[list[_Cell]] = []
    characters = 0
    for row in frame.head(_MAX_ROWS).iter_rows(named=True):
        cells = [_Cell(_cell_text(value), _cell_link(name, row)) for name, value in row.items()]
        characters += sum(len(cell.text) for cell in cells)
        if characters > _MAX_TABLE:
            break
        rows.append(cells)
    note = "" if len(rows) == frame.height else f"The first {len(rows):,} rows; there are more."
    numeric = [dtype.is_numeric() for dtype in frame.dtypes]
    return _ResultTable(frame.columns, numeric, rows, note, _chart(frame))


def _cell_text(value: object) -> str:
    if value is None:
        return "-"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _MAX_CELL else f"{text[: _MAX_CELL - 1]}…"


def _cell_link(name: str, row: Mapping[str, Any]) -> str | None:
    """Where the run or the sample of a row is shown, in the cell that names it."""
    run_id = row.get("run_id")
    if name not in ("run_id", "sample_id") or not isinstance(run_id, str):
        return None
    report = f"/run/{quote(run_id, safe='')}"
    sample_id = row["sample_id"] if name == "sample_id" else None
    return f"{report}{address({'sample': sample_id})}" if isinstance(sample_id, str) else report


def _chart(frame: pl.DataFrame) -> Markup | None:
    """The first numbers of a result as bars named by its first texts; None without either."""
    texts = [name for name, kind in frame.schema.items() if kind in (pl.String, pl.Date)]
    numbers = [name for name, kind in frame.schema.items() if kind.is_numeric()]
    if not (texts and numbers and frame.height >= 2):
        return None
    rows = frame.select(texts[0], numbers[0]).drop_nulls().head(_BARS)
    bars = [(str(name), float(value)) for name, value in rows.iter_rows()]
    if not all(math.isfinite(value) for _, value in bars):
        return None
    return Markup(to_svg(bar_chart(bars, label=numbers[0])))  # noqa: S704, escaped where drawn


_BARS: Final = 40
"""Rows in the chart of a result."""
