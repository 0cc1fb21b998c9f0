"""Requests and responses of the local web server, and its page template."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import quote

import polars as pl

from claimflow.flows.quality.csv_sheets import escape_formula
from claimflow.flows.report.table_files import encode_table
from claimflow.flows.report.templates import (
    asset,
    chart_scripts,
    content_policy,
    csp_hash,
    render_template,
    script_source,
)

_STYLE: Final = asset("claimflow.flows.report", "style.css") + asset(
    "claimflow.flows.viewer", "style.css"
)


def _policy(*directives: str) -> str:
    return str(
        content_policy(
            f"style-src {csp_hash(_STYLE)}",
            *directives,
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        )
    )


CONTENT_SECURITY_POLICY: Final = _policy()
"""Allows no scripts, no images, only the style sheet of the page, and forms to this server."""

FILES: Final = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}
"""The content types of tables that are downloaded, by the values of `as` in an address or form."""


REPORT_POLICY: Final = (
    "connect-src 'self'; frame-src 'none'; object-src 'none'; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'none'"
)
"""In addition to the policy in a report or a label sheet, which allows its own script by hash."""


class Request(NamedTuple):
    """An authenticated request: the path, the query parameters and the form fields."""

    method: str
    path: str
    query: Mapping[str, str]
    form: Mapping[str, str]


class Response(NamedTuple):
    """A page, or a file with its own `Content-Type`; its security policy and further headers."""

    status: HTTPStatus
    body: str | bytes
    policy: str = CONTENT_SECURITY_POLICY
    headers: Mapping[str, str] = MappingProxyType({})


def error_response(status: HTTPStatus, *messages: str) -> Response:
    """A page with the reason phrase of `status` and messages."""
    return Response(status, page("error", title=status.phrase, messages=messages))


def json_response(value: Any) -> Response:
    """What a script of a page asks for."""
    headers = {"Content-Type": "application/json; charset=utf-8"}
    return Response(HTTPStatus.OK, json.dumps(value, ensure_ascii=False), headers=headers)


def file_response(frame: pl.DataFrame, wanted: str, name: str) -> Response:
    """A table as a file of the kind `wanted`, one of `FILES`; `name` is that of the file.

    No spreadsheet evaluates a cell of the CSV: an apostrophe precedes what may be a formula.
    """
    if wanted == "csv":
        frame = frame.with_columns(
            pl.col(pl.String, pl.Categorical, pl.Enum)
            .cast(pl.String)
            .map_elements(escape_formula, return_dtype=pl.String)
        ).rename({column: escape_formula(column) for column in frame.columns})
    headers = {
        "Content-Type": FILES[wanted],
        "Content-Disposition": f'attachment; filename="{name}.{wanted}"',
    }
    try:
        content = encode_table(frame, "csv" if wanted == "csv" else "parquet")
    except pl.exceptions.ComputeError as error:
        return error_response(HTTPStatus.BAD_REQUEST, f"cast it to a type of {wanted}: {error}")
    return Response(HTTPStatus.OK, content, headers=headers)


def run_link(run_id: str) -> str:
    """The address of the report of a run."""
    return f"/run/{quote(run_id, safe='')}"


_Page = Literal["claim", "result", "label", "label_results", "tags", "error"]


def page(name: _Page, **values: Any) -> str:
    """A page of the server from its template, without a script."""
    values |= {"style": _STYLE, "scripts": ()}
    return render_template("claimflow.flows.viewer", f"{name}.html.j2", values)


def charted_page(
    name: Literal["runs", "trend", "trends", "sql"],
    *scripts: str,
    charts: bool = True,
    **values: Any,
) -> Response:
    """A page of the server with charts, and the `scripts`, files of this package.

    Its policy allows these scripts by their hashes, and requests of the latter to this server.
    Without `charts` what draws them is left out.
    """
    own = [asset("claimflow.flows.viewer", script) for script in scripts]
    every = [*(chart_scripts() if charts else ()), *own]
    values |= {"style": _STYLE, "scripts": every}
    body = render_template("claimflow.flows.viewer", f"{name}.html.j2", values)
    directives = [script_source(every)] if every else []
    directives += ["connect-src 'self'"] if own else []
    return Response(HTTPStatus.OK, body, _policy(*directives))
