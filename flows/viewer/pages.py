"""Request handling of the local web server: the list of runs, reports and SQL queries."""

from collections.abc import Mapping
from http import HTTPStatus
from threading import BoundedSemaphore
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import unquote

import polars as pl
from markupsafe import escape

from claimflow.flows.errors import InputError, StoreError
from claimflow.flows.report.html import html_report
from claimflow.flows.report.run_document import RunDocument
from claimflow.flows.report.templates import asset, content_policy, csp_hash, render_template
from claimflow.flows.store.query import query
from claimflow.flows.store.results import all_runs, chosen_run
from claimflow.flows.store.store import Store

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

_STYLE: Final = asset("claimflow.flows.report", "style.css") + asset(
    "claimflow.flows.viewer", "style.css"
)

CONTENT_SECURITY_POLICY: Final = str(
    content_policy(
        f"style-src {csp_hash(_STYLE)}",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
"""Allows no scripts, no images, only the style sheet of the page, and forms to this server."""

_REPORT_POLICY: Final = (
    "sandbox allow-scripts; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
"""In addition to the policy in the report: a script in it could not reach the SQL page."""


class Request(NamedTuple):
    """An authenticated request: the path, the query parameters and the form fields."""

    method: str
    path: str
    query: Mapping[str, str]
    form: Mapping[str, str]


class Response(NamedTuple):
    """An HTML page, its content security policy, and further headers."""

    status: HTTPStatus
    body: str
    policy: str = CONTENT_SECURITY_POLICY
    headers: Mapping[str, str] = MappingProxyType({})


def handle_request(store: Store, request: Request, *, token: str) -> Response:
    """The response to a request; errors become pages. `token` goes into the SQL form."""
    try:
        if request.method == "GET" and request.path == "/":
            return Response(HTTPStatus.OK, _runs_page(store))
        if request.method == "GET" and request.path.startswith("/run/"):
            return _report(store, unquote(request.path.removeprefix("/run/")), request.query)
        if request.path == "/sql":
            return _sql(store, request, token)
    except InputError as error:
        return error_response(HTTPStatus.NOT_FOUND, *map(str, error.faults))
    except StoreError as error:
        return error_response(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
    return error_response(HTTPStatus.NOT_FOUND, "there is no such page")


def error_response(status: HTTPStatus, *messages: str) -> Response:
    """A page with the reason phrase of `status` and messages."""
    return Response(status, _page("error", title=status.phrase, messages=messages))


def _page(name: Literal["runs", "sql", "error"], **values: Any) -> str:
    values |= {"style": _STYLE}
    return render_template("claimflow.flows.viewer", f"{name}.html.j2", values)


def _runs_page(store: Store) -> str:
    """The list of runs; a run with an earlier whole run of its pipeline can be compared."""
    runs = all_runs(store).rows(named=True)
    comparable, finished = set(), set()
    for run in reversed(runs):
        if run["pipeline"] in finished:
            comparable.add(run["run_id"])
        if run["status"] == "done" and run["partial"] is None:
            finished.add(run["pipeline"])
    return _page("runs", runs=runs, comparable=comparable, store=str(store.path))


def _report(store: Store, name: str, parameters: Mapping[str, str]) -> Response:
    run_id = chosen_run(store, name)
    against = parameters.get("against")
    before = chosen_run(store, against, before=run_id) if against else None
    body = html_report(RunDocument(store, run_id), against=before)
    return Response(HTTPStatus.OK, body, _REPORT_POLICY)


def _sql(store: Store, request: Request, token: str) -> Response:
    if request.method == "GET":
        return Response(HTTPStatus.OK, _sql_page(token, _DEFAULT_QUERY))
    sql = request.form.get("sql", "").replace("\r\n", "\n")
    if not _QUERIES.acquire(blocking=False):
        messages = [f"{_MAX_QUERIES} queries are running; try again when one has ended"]
        return Response(HTTPStatus.SERVICE_UNAVAILABLE, _sql_page(token, sql, errors=messages))
    try:
        frame = query(
            store,
            sql,
            seconds=QUERY_SECONDS,
            # One row more than is shown, to know whether there are more.
            rows=_MAX_ROWS + 1,
            result_bytes=_MAX_BYTES,
        )
    except InputError as error:
        messages = [f"{fault.what}; {fault.hint}" for fault in error.faults]
        return Response(HTTPStatus.BAD_REQUEST, _sql_page(token, sql, errors=messages))
    finally:
        _QUERIES.release()
    return Response(HTTPStatus.OK, _sql_page(token, sql, table=_result_table(frame)))


class _ResultTable(NamedTuple):
    """The rows of a query result as text, and a note where some are left out."""

    columns: list[str]
    numeric: list[bool]
    rows: list[list[str]]
    note: str


def _sql_page(
    token: str, sql: str, *, table: _ResultTable | None = None, errors: list[str] | None = None
) -> str:
    # Escaped here, so that the template does not replace control characters: it is sent again.
    values = {"token": token, "sql": escape(sql), "table": table, "errors": errors or []}
    return _page("sql", **values, seconds=QUERY_SECONDS)


def _result_table(frame: pl.DataFrame) -> _ResultTable:
    """The first rows of a query result; NULL is a dash, long cells end in an ellipsis."""
    rows: list[list[str]] = []
    characters = 0
    for row in frame.head(_MAX_ROWS).iter_rows():
        cells = [_cell_text(value) for value in row]
        characters += sum(map(len, cells))
        if characters > _MAX_TABLE:
            break
        rows.append(cells)
    note = "" if len(rows) == frame.height else f"The first {len(rows):,} rows; there are more."
    numeric = [dtype.is_numeric() for dtype in frame.dtypes]
    return _ResultTable(frame.columns, numeric, rows, note)


def _cell_text(value: object) -> str:
    if value is None:
        return "-"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _MAX_CELL else f"{text[: _MAX_CELL - 1]}…"
