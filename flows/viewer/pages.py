"""Request handling of the local web server: the runs, a metric over the runs, reports."""

import json
from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, unquote, urlencode

from claimflow.flows.errors import InputError, StoreError
from claimflow.flows.quality.comparison import Comparison, compare
from claimflow.flows.report.formatting import escape_controls
from claimflow.flows.report.html import html_report, sample_entry
from claimflow.flows.report.run_document import RunDocument
from claimflow.flows.report.samples import searched_samples
from claimflow.flows.store.results import chosen_run
from claimflow.flows.store.store import Store
from claimflow.flows.viewer.overview import (
    SORTS,
    claim_history,
    pipeline_names,
    pipelines,
    trend,
)
from claimflow.flows.viewer.responses import Request, Response, error_response, page
from claimflow.flows.viewer.workbench import sql_page

_REPORT_POLICY: Final = (
    "connect-src 'self'; frame-src 'none'; object-src 'none'; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'none'"
)
"""In addition to the policy in the report, which allows its own script alone by hash."""

_REFRESH_SECONDS: Final = 5
"""After that long the list of runs is read again while a run is in progress."""


def handle_request(store: Store, request: Request, *, token: str) -> Response:
    """The response to a request; errors become pages. `token` goes into the SQL form."""
    try:
        if request.method == "GET" and request.path == "/":
            return Response(HTTPStatus.OK, _runs_page(store, request.query))
        if request.method == "GET" and request.path == "/compare":
            return _compare(store, request.query)
        if request.method == "GET" and request.path == "/trend":
            return _trend_page(store, request.query)
        if request.method == "GET" and request.path == "/claim":
            return _claim_page(store, request.query)
        if request.method == "GET" and request.path.startswith("/run/"):
            return _of_run(store, request.path.removeprefix("/run/"), request.query)
        if request.path == "/sql":
            return sql_page(store, request, token)
    except InputError as error:
        return error_response(HTTPStatus.NOT_FOUND, *map(str, error.faults))
    except StoreError as error:
        return error_response(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
    return error_response(HTTPStatus.NOT_FOUND, "there is no such page")


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
    return page(
        "runs",
        pipelines=found,
        names=pipeline_names(store),
        chosen=chosen,
        sort=sort,
        # A click sorts by the largest first, the next one by the smallest.
        sorts={name: name if sort == f"-{name}" else f"-{name}" for name in SORTS},
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
    body = page("trend", pipeline=pipeline, metric=metric, plot=plot, rows=rows)
    return Response(HTTPStatus.OK, body)


def _claim_page(store: Store, query: Mapping[str, str]) -> Response:
    run, sample_id, claim = (query.get(name, "") for name in ("run", "sample", "claim"))
    rows = claim_history(store, chosen_run(store, run), sample_id, claim)
    if not rows:
        message = f"no run has a verdict on the claim {claim!r} of the sample {sample_id!r}"
        return error_response(HTTPStatus.NOT_FOUND, message)
    return Response(HTTPStatus.OK, page("claim", sample_id=sample_id, claim=claim, rows=rows))


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


def _of_run(store: Store, path: str, parameters: Mapping[str, str]) -> Response:
    """The report of a run, or what its script asks for: a sample, or the samples with a text."""
    name, _, part = path.partition("/")
    run_id = chosen_run(store, unquote(name))
    against = parameters.get("against")
    before = chosen_run(store, against, before=run_id) if against else None
    comparison = _comparison(store, before, run_id) if before else None
    if part == "sample":
        found = sample_entry(store, run_id, parameters.get("id", ""), comparison)
        if found is not None:
            return Response(HTTPStatus.OK, found, headers=_JSON)
    if part == "search":
        ids = searched_samples(store, run_id, parameters.get("text", ""))
        text = json.dumps([escape_controls(one) for one in ids])
        return Response(HTTPStatus.OK, text, headers=_JSON)
    if part:
        return error_response(HTTPStatus.NOT_FOUND, "there is no such page")
    body = html_report(RunDocument(store, run_id), against=comparison, viewer=True)
    return Response(HTTPStatus.OK, body, _REPORT_POLICY)


_JSON: Final = {"Content-Type": "application/json; charset=utf-8"}


def _comparison(store: Store, a: str, b: str) -> Comparison:
    """As `compare`; remembered of runs that have ended, since each opened sample needs it."""
    statuses = {RunDocument(store, run_id).head.status for run_id in (a, b)}
    return compare(store, a, b) if "running" in statuses else _remembered(store, a, b)


@lru_cache(maxsize=4)
def _remembered(store: Store, a: str, b: str) -> Comparison:
    return compare(store, a, b)
