"""The answers of the local web server."""

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import unquote

import polars as pl
from markupsafe import escape

from claimflow.flows.errors import InputError, StoreError
from claimflow.flows.report.html import html_report
from claimflow.flows.report.templates import asset, content_policy, csp_hash, render_template
from claimflow.flows.store.query import query
from claimflow.flows.store.results import all_runs, chosen_run
from claimflow.flows.store.store import Store

# The pages that are not reports: runs, SQL, and what is told of a mistake.


Name = Literal["runs", "sql", "refused"]

_STYLE: Final = asset("claimflow.flows.report", "style.css") + asset(
    "claimflow.flows.viewer", "style.css"
)

POLICY: Final = str(
    content_policy(
        f"style-src {csp_hash(_STYLE)}",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
"""No script at all, no picture, no style but ours, and forms to nobody else."""


def page(name: Name, **facts: Any) -> str:
    """A page as HTML; the template says which facts it needs."""
    return render_template("claimflow.flows.viewer", f"{name}.html.j2", facts | {"style": _STYLE})


# The answer to a query as rows of words, no more than a browser can show.


_CELL: Final = 2_000
_ALL: Final = 4_000_000
"""Letters of a cell and of a page."""


class Table(NamedTuple):
    """Columns, whether each holds numbers, rows of words, and what was left out, in words."""

    columns: list[str]
    numbers: list[bool]
    rows: list[list[str]]
    left_out: str


def as_table(frame: pl.DataFrame, *, rows: int) -> Table:
    """The first rows of an answer, of which `frame` has one more where there are more.

    NULL is a dash; longer cells end in an ellipsis.
    """
    shown: list[list[str]] = []
    letters = 0
    for row in frame.head(rows).iter_rows():
        cells = [_cell(value) for value in row]
        letters += sum(map(len, cells))
        if letters > _ALL:
            break
        shown.append(cells)
    cut = "" if len(shown) == frame.height else f"The first {len(shown):,} rows; there are more."
    numbers = [kind.is_numeric() for kind in frame.dtypes]
    return Table(frame.columns, numbers, shown, cut)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    words = f"{value:.6g}" if isinstance(value, float) else str(value)
    return words if len(words) <= _CELL else f"{words[: _CELL - 1]}…"


# What each address answers.


SECONDS: Final = 30.0
ROWS: Final = 1_000

_REPORT: Final = (
    "sandbox allow-scripts; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
"""Beside the policy in the page: whatever ran in it could not reach the page for SQL."""

_FIRST: Final = "SELECT * FROM latest.scores ORDER BY score, sample_id, metric LIMIT 20"


class Asked(NamedTuple):
    """A request that was found to be the user's."""

    method: str
    path: str
    words: dict[str, str]
    form: dict[str, str]


class Answer(NamedTuple):
    """A page, the content security policy that it is sent with, and what else is said of it."""

    status: HTTPStatus
    page: str
    policy: str = POLICY
    headers: Mapping[str, str] = MappingProxyType({})


def answered(store: Store, asked: Asked, *, token: str) -> Answer:
    """The answer to a request; a mistake in it is told on a page."""
    try:
        if asked.method == "GET" and asked.path == "/":
            return Answer(HTTPStatus.OK, _runs(store))
        if asked.method == "GET" and asked.path.startswith("/run/"):
            return _report(store, unquote(asked.path.removeprefix("/run/")), asked.words)
        if asked.path == "/sql":
            return _sql(store, asked, token)
    except InputError as error:
        return refused(HTTPStatus.NOT_FOUND, *map(str, error.faults))
    except StoreError as error:
        return refused(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
    return refused(HTTPStatus.NOT_FOUND, "there is no such page")


def refused(status: HTTPStatus, *words: str) -> Answer:
    """A page that says why there is no other."""
    return Answer(status, page("refused", title=status.phrase, words=words))


def _runs(store: Store) -> str:
    """The runs of a store, and which of them come after a done one of their pipeline."""
    runs = all_runs(store).rows(named=True)
    later, done = set(), set()
    for run in reversed(runs):
        if run["pipeline"] in done:
            later.add(run["run_id"])
        if run["status"] == "done":
            done.add(run["pipeline"])
    return page("runs", runs=runs, later=later, store=str(store.path))


def _report(store: Store, name: str, words: dict[str, str]) -> Answer:
    run_id = chosen_run(store, name)
    against = words.get("against")
    before = chosen_run(store, against, before=run_id) if against else None
    return Answer(HTTPStatus.OK, html_report(store, run_id, against=before), _REPORT)


def _sql(store: Store, asked: Asked, token: str) -> Answer:
    if asked.method == "GET":
        return Answer(HTTPStatus.OK, _sql_page(token, _FIRST))
    sql = asked.form.get("sql", "").replace("\r\n", "\n")
    try:
        found = query(store, sql, seconds=SECONDS, rows=ROWS + 1)
    except InputError as error:
        told = [f"{fault.what}; {fault.hint}" for fault in error.faults]
        return Answer(HTTPStatus.BAD_REQUEST, _sql_page(token, sql, faults=told))
    return Answer(HTTPStatus.OK, _sql_page(token, sql, table=as_table(found, rows=ROWS)))


def _sql_page(
    token: str, sql: str, *, table: Table | None = None, faults: list[str] | None = None
) -> str:
    # As it was written, whatever is in it: it is sent again.
    written = escape(sql)
    return page("sql", token=token, sql=written, table=table, faults=faults or [], seconds=SECONDS)
