"""Request handling of the local web server: the list of runs, reports and SQL queries."""

from collections.abc import Mapping
from http import HTTPStatus
from threading import BoundedSemaphore
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import quote, unquote, urlencode

import polars as pl
from markupsafe import escape

from claimflow.flows.errors import InputError, StoreError
from claimflow.flows.report.html import html_report
from claimflow.flows.report.run_document import RunDocument
from claimflow.flows.report.templates import asset, content_policy, csp_hash, render_template
from claimflow.flows.store.query import query
from claimflow.flows.store.results import chosen_run
from claimflow.flows.store.store import Store
from claimflow.flows.viewer.overview import (
    SORTS,
    pipeline_names,
    pipelines,
    sort_links,
    trend,
)

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
    "connect-src 'none'; frame-src 'none'; object-src 'none'; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'none'"
)
"""In addition to the policy in the report, which allows its own script alone by hash."""

_REFRESH_SECONDS: Final = 5
"""After that long the list of runs is read again while a run is in progress."""


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
            return Response(HTTPStatus.OK, _runs_page(store, request.query))
        if request.method == "GET" and request.path == "/compare":
            return _compare(store, request.query)
        if request.method == "GET" and request.path == "/trend":
            return _trend_page(store, request.query)
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


def _page(name: Literal["runs", "trend", "sql", "error"], **values: Any) -> str:
    values |= {"style": _STYLE}
    return render_template("claimflow.flows.viewer", f"{name}.html.j2", values)


def _runs_page(store: Store, query: Mapping[str, str]) -> str:
    """The runs by pipeline, with the means of the newest and their change."""
    chosen = {name: query.get(name, "") for name in ("pipeline", "text", "sort", "all")}
    sort = chosen["sort"] if chosen["sort"].lstrip("-") in SORTS else "-started"

    def link(**changes: str) -> str:
        kept = {name: value for name, value in (chosen | changes).items() if value}
        return f"/?{urlencode(kept)}"

    found = pipelines(
        store,
        pipeline=chosen["pipeline"],
        text=chosen["text"],
        sort=sort,
        every=bool(chosen["all"]),
    )
    going = sum(run["status"] == "running" for one in found for run in one.runs)
    return _page(
        "runs",
        pipelines=found,
        names=pipeline_names(store),
        chosen=chosen,
        sort=sort,
        sorts=sort_links(sort, SORTS),
        link=link,
        trend_link=_trend_link,
        going=going,
        again=_REFRESH_SECONDS if going else None,
        store=str(store.path),
    )


def _trend_link(pipeline: str, scores: str, metric: str) -> str:
    return "/trend?" + urlencode({"pipeline": pipeline, "scores": scores, "metric": metric})


def _trend_page(store: Store, query: Mapping[str, str]) -> Response:
    pipeline, scores, metric = (query.get(name, "") for name in ("pipeline", "scores", "metric"))
    plot, rows = trend(store, pipeline, scores, metric)
    if not rows:
        message = f"no whole run of {pipeline!r} has a mean of {metric!r}"
        return error_response(HTTPStatus.NOT_FOUND, message)
    body = _page("trend", pipeline=pipeline, metric=metric, plot=plot, rows=rows)
    return Response(HTTPStatus.OK, body)


def _compare(store: Store, query: Mapping[str, str]) -> Response:
    """To the report of run `b` against run `a`; each is named as on the command line."""
    names = [query.get("a", ""), query.get("b", "")]
    if not all(names):
        return error_response(HTTPStatus.BAD_REQUEST, "choose a run as A and another one as B")
    a, b = (chosen_run(store, name) for name in names)
    if a == b:
        return error_response(HTTPStatus.BAD_REQUEST, f"A and B are the same run, {a}")
    to = f"/run/{quote(b, safe='')}?against={quote(a, safe='')}"
    redirect = error_response(HTTPStatus.SEE_OTHER, "the comparison")
    return redirect._replace(headers={"Location": to})


def _report(store: Store, name: str, parameters: Mapping[str, str]) -> Response:
    run_id = chosen_run(store, name)
    against = parameters.get("against")
    before = chosen_run(store, against, before=run_id) if against else None
    body = html_report(RunDocument(store, run_id), against=before, viewer=True)
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
