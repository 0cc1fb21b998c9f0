"""The SQL page: queries, their results as table or file, and what there is to ask about."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from threading import BoundedSemaphore
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import polars as pl
from markupsafe import escape

from claimflow.flows.errors import InputError
from claimflow.flows.report.formatting import format_count
from claimflow.flows.report.templates import address
from claimflow.flows.store.query import Cancellation, query
from claimflow.flows.store.store import Store
from claimflow.flows.viewer.responses import (
    FILES,
    Request,
    Response,
    charted_page,
    error_response,
    file_response,
    json_response,
    page,
    run_link,
)
from claimflow.flows.viewer.result_chart import KINDS, ChartChoice, ResultChart, result_chart

QUERY_SECONDS: Final = 30.0

_MAX_ROWS: Final = 1_000
_MAX_CELL: Final = 2_000
_MAX_TABLE: Final = 4_000_000
"""Characters of a cell and of a table; more would be too much for a browser."""

_COUNT_SECONDS: Final = 3.0
"""Time to count the rows of a result of which the first are shown."""

_MAX_BYTES: Final = 64 * 2**20
"""Memory of the rows that a query returns, before cells are cut."""

_MAX_QUERIES: Final = 2
_QUERIES: Final = BoundedSemaphore(_MAX_QUERIES)
"""Queries that run at once; each may take 2 GB of memory and all cores."""

_RUNNING: Final[dict[str, Cancellation]] = {}
"""The queries that a reader may cancel, by the names that their pages gave them."""

_QUERY_NAME: Final = re.compile(r"[0-9a-f]{32}")

_DEFAULT_QUERY: Final = "SELECT * FROM latest.scores ORDER BY score, sample_id, metric LIMIT 20"


def sql_page(store: Store, request: Request, token: str) -> Response:
    """The page with a query, its result, or a file with the result.

    A query in the address is shown and not run: another site could have made the link. The script
    of the page asks for the result alone.
    """
    if request.method == "GET":
        asked = _Asked.of(request.query)
        return _page(store, token, asked._replace(sql=asked.sql or _DEFAULT_QUERY))
    asked = _Asked.of(request.form)
    wanted = request.form.get("as", "table")
    if not _QUERIES.acquire(blocking=False):
        messages = [f"{_MAX_QUERIES} queries are running; try again when one has ended"]
        result = _Result(HTTPStatus.SERVICE_UNAVAILABLE, errors=messages)
    else:
        try:
            with _cancellable(request.form.get("id", "")) as cancellation:
                result = _answer(store, asked, wanted, cancellation)
        finally:
            _QUERIES.release()
    if result.file is not None:
        return file_response(result.file, wanted, "claimflow")
    if request.form.get("part") == "result":
        return Response(result.status, page("result", **_region(asked, result)))
    return _page(store, token, asked, result)


def cancel_query(store: Store, request: Request, token: str) -> Response:  # noqa: ARG001
    """End the query that the form names, and say whether it was running."""
    if request.method != "POST":
        return error_response(HTTPStatus.NOT_FOUND, "there is no such page")
    cancellation = _RUNNING.get(request.form.get("id", ""))
    if cancellation is not None:
        cancellation.cancel()
    return json_response({"cancelled": cancellation is not None})


@contextmanager
def _cancellable(name: str) -> Iterator[Cancellation]:
    """What cancels the query of this name until the end of the block."""
    cancellation = Cancellation()
    known = _QUERY_NAME.fullmatch(name) and _RUNNING.setdefault(name, cancellation) is cancellation
    try:
        yield cancellation
    finally:
        if known:
            del _RUNNING[name]


class _Asked(NamedTuple):
    """A query and the choice of its chart, as in the address and the form."""

    sql: str
    chart: ChartChoice

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> "_Asked":
        chart = ChartChoice(*(fields.get(name, "") for name in ChartChoice._fields))
        return cls(fields.get("sql", "").replace("\r\n", "\n"), chart)


class _Result(NamedTuple):
    """What became of a query: a table for the page, a table for a file, or errors."""

    status: HTTPStatus
    table: "_ResultTable | None" = None
    file: pl.DataFrame | None = None
    errors: Sequence[str] = ()


def _answer(store: Store, asked: _Asked, wanted: str, cancellation: Cancellation) -> _Result:
    try:
        frame = query(
            store,
            asked.sql,
            seconds=QUERY_SECONDS,
            # One row more than is shown, to know whether there are more.
            rows=None if wanted in FILES else _MAX_ROWS + 1,
            result_bytes=_MAX_BYTES,
            cancellation=cancellation,
        )
    except InputError as error:
        messages = [f"{fault.what}; {fault.hint}" for fault in error.faults]
        # What the reader wanted is no error.
        status = HTTPStatus.OK if cancellation.asked else HTTPStatus.BAD_REQUEST
        return _Result(status, errors=messages)
    if wanted in FILES:
        return _Result(HTTPStatus.OK, file=frame)
    cut = frame.height > _MAX_ROWS
    every = _row_count(store, asked.sql, cancellation) if cut else frame.height
    return _Result(HTTPStatus.OK, _result_table(frame, asked.chart, every))


def _row_count(store: Store, sql: str, cancellation: Cancellation) -> int | None:
    """How many rows a query has that was answered; None where counting them takes too long."""
    # A comment may end the query.
    counting = f"SELECT count(*) AS n FROM (\n{sql.strip().removesuffix(';')}\n)"
    try:
        counted = query(store, counting, seconds=_COUNT_SECONDS, cancellation=cancellation)
    except InputError:
        return None
    return int(counted["n"][0])


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
    chart: ResultChart


def _page(store: Store, token: str, asked: _Asked, result: _Result | None = None) -> Response:
    result = result or _Result(HTTPStatus.OK)
    chart = {name: value for name, value in asked.chart._asdict().items() if value}
    response = charted_page(
        "sql",
        "sql.js",
        token=token,
        # Escaped here, so that the template does not replace control characters: it is sent again.
        sql=escape(asked.sql),
        here=f"/sql?{urlencode({'sql': asked.sql, **chart})}",
        seconds=QUERY_SECONDS,
        queries=[(one.title, _link(one.sql)) for one in documented_queries()],
        tables=_tables(store),
        **_region(asked, result),
    )
    return response._replace(status=result.status)


def _region(asked: _Asked, result: _Result) -> dict[str, Any]:
    """The values of the part of the page that a query changes."""
    chart = asked.chart._asdict()
    return {"errors": result.errors, "table": result.table, "kinds": KINDS, "asked": chart}


def _result_table(frame: pl.DataFrame, choice: ChartChoice, every: int | None) -> _ResultTable:
    """The first rows of a query result; NULL is a dash, long cells end in an ellipsis.

    `every` is the number of its rows, None where it is not known.
    """
    rows: list[list[_Cell]] = []
    characters = 0
    first = frame.head(_MAX_ROWS)
    for row in first.iter_rows(named=True):
        cells = [_Cell(_cell_text(value), _cell_link(name, row)) for name, value in row.items()]
        characters += sum(len(cell.text) for cell in cells)
        if characters > _MAX_TABLE:
            break
        rows.append(cells)
    note = "" if len(rows) == frame.height else f"{_first_of(len(rows), every).capitalize()}."
    numeric = [dtype.is_numeric() for dtype in frame.dtypes]
    whole = first.height == frame.height
    in_chart = format_count(first.height, "row") if whole else _first_of(first.height, every)
    links = [_row_link(row) for row in first.iter_rows(named=True)]
    chart = result_chart(first, choice, links, rows=in_chart)
    return _ResultTable(frame.columns, numeric, rows, note, chart)


def _first_of(shown: int, every: int | None) -> str:
    if every is None:
        return f"the first {shown:,} rows; there are more"
    return f"the first {shown:,} of {every:,} rows"


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
    report = run_link(run_id)
    sample_id = row["sample_id"] if name == "sample_id" else None
    return f"{report}{address({'sample': sample_id})}" if isinstance(sample_id, str) else report


def _row_link(row: Mapping[str, Any]) -> str | None:
    """Where the mark of a row leads to in a chart: its sample, else its run."""
    return _cell_link("sample_id" if "sample_id" in row else "run_id", row)
