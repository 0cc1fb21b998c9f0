"""Request handling of the local web server: the runs, a metric over the runs, reports."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode

import polars as pl

from claimflow.flows.errors import InputError, StoreError
from claimflow.flows.quality.comparison import Comparison, compare
from claimflow.flows.report.formatting import escape_controls
from claimflow.flows.report.html import html_report, sample_entry
from claimflow.flows.report.run_document import RunDocument
from claimflow.flows.report.samples import searched_samples
from claimflow.flows.store.arrow import read_table
from claimflow.flows.store.results import chosen_run
from claimflow.flows.store.runs import account, add_tag, remove_tag, tags
from claimflow.flows.store.store import Store
from claimflow.flows.viewer.history import (
    claim_history,
    pipeline_means,
    small_trends,
    trend,
    trend_plot,
)
from claimflow.flows.viewer.labelling import (
    LABEL_PATHS,
    check_name,
    handle_label_request,
    live_store,
)
from claimflow.flows.viewer.overview import (
    SMALL_TREND,
    SORTS,
    RunFilter,
    filter_choices,
    pipelines,
    runs_table,
)
from claimflow.flows.viewer.responses import (
    FILES,
    REPORT_POLICY,
    Request,
    Response,
    charted_page,
    error_response,
    file_response,
    json_response,
    page,
    run_link,
)
from claimflow.flows.viewer.workbench import cancel_query, sql_page

_REFRESH_SECONDS: Final = 5
"""After that long the list of runs is read again while a run is in progress."""

WRITTEN: Final = ("/tags", "/label/save")
"""Where a form writes to the store."""


def handle_request(store: Store, request: Request, *, token: str) -> Response:
    """The response to a request; errors become pages. `token` goes into the forms."""
    try:
        if request.method == "GET" and request.path in _PAGES:
            return _PAGES[request.path](store, request.query)
        if request.method == "GET" and request.path.startswith("/run/"):
            return _of_run(store, request.path.removeprefix("/run/"), request.query)
        if request.path in _FORMS:
            return _FORMS[request.path](store, request, token)
    except InputError as error:
        wrong = HTTPStatus.BAD_REQUEST if request.path in _FORMS else HTTPStatus.NOT_FOUND
        return error_response(wrong, *map(str, error.faults))
    except StoreError as error:
        return error_response(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
    return error_response(HTTPStatus.NOT_FOUND, "there is no such page")


def _runs_page(store: Store, query: Mapping[str, str]) -> Response:
    """The runs by pipeline, with the means of the newest and their change."""
    wanted = RunFilter(*(query.get(name, "") for name in RunFilter._fields))
    chosen = wanted._asdict() | {name: query.get(name, "") for name in ("sort", "all", "metrics")}
    sort = chosen["sort"] if chosen["sort"].lstrip("-") in SORTS else "-started"
    if query.get("as") in FILES:
        return file_response(runs_table(store, wanted, sort=sort), query["as"], "runs")

    def link(**changes: str) -> str:
        kept = {name: value for name, value in (chosen | changes).items() if value}
        return f"/?{urlencode(kept)}"

    found = pipelines(
        store, wanted, sort=sort, every=bool(chosen["all"]), every_metric=chosen["metrics"] == "all"
    )
    going = sum(run["status"] == "running" for one in found for run in one.runs)
    return charted_page(
        "runs",
        charts=any(row.plot for one in found for row in one.headlines),
        pipelines=found,
        choices=filter_choices(store),
        filtered=any(wanted),
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


def _tags_page(store: Store, request: Request, token: str) -> Response:
    """The tags of a run, which a form gives and removes; they are written to the store itself."""
    live = live_store(store)
    run_id = chosen_run(live, request.query.get("run", ""))
    tag, who = (request.form.get(name, "").strip() for name in ("tag", "who"))
    errors: list[str] = []
    if request.method == "POST":
        try:
            check_name(who)
            if request.form.get("do") == "remove":
                remove_tag(live, tag, who=who)
            else:
                add_tag(live, run_id, tag, who=who)
            tag = ""
        except InputError as error:
            errors = [str(fault) for fault in error.faults]
    current = tags(live)
    with live.reading() as connection:
        history = read_table(connection, _TAGS, run=run_id)
    body = page(
        "tags",
        run_id=run_id,
        token=token,
        tag=tag,
        who=who or account() or "",
        tags=current.filter(pl.col("run_id") == run_id)["tag"].to_list(),
        errors=errors,
        history=history.to_dicts(),
    )
    return Response(HTTPStatus.BAD_REQUEST if errors else HTTPStatus.OK, body)


_TAGS: Final = """
SELECT tag, tagged_at, who, removed FROM audit.tags WHERE run_id = $run
ORDER BY tagged_at DESC, tags.rowid DESC
"""


def _trend_link(pipeline: str, scores: str, metric: str) -> str:
    return "/trend?" + urlencode({"pipeline": pipeline, "scores": scores, "metric": metric})


def _trend_page(store: Store, query: Mapping[str, str]) -> Response:
    pipeline, scores, metric = (query.get(name, "") for name in ("pipeline", "scores", "metric"))
    wanted = query.get("as", "")
    if not (scores or metric):
        return _trends_page(store, pipeline, wanted)
    rows = trend(store, pipeline, scores, metric, every=wanted in FILES)
    if not rows:
        message = f"no whole run of {pipeline!r} has a mean of {metric!r}"
        return error_response(HTTPStatus.NOT_FOUND, message)
    if wanted in FILES:
        table = pl.DataFrame([_flat(row._asdict()) for row in rows], infer_schema_length=None)
        return file_response(table, wanted, "trend")
    return charted_page(
        "trend",
        pipeline=pipeline,
        metric=metric,
        plot=trend_plot(rows, metric),
        rows=rows,
        here=_here("/trend", query),
        every=_trends_link(pipeline),
    )


def _trends_link(pipeline: str) -> str:
    return f"/trend?{urlencode({'pipeline': pipeline})}"


def _trends_page(store: Store, pipeline: str, wanted: str) -> Response:
    """Every metric of a pipeline over the runs."""
    if wanted in FILES:
        return file_response(pipeline_means(store, pipeline), wanted, "trends")
    found = small_trends(store, pipeline)
    if not found:
        message = f"no whole run of {pipeline!r} has a mean"
        return error_response(HTTPStatus.NOT_FOUND, message)
    return charted_page(
        "trends",
        pipeline=pipeline,
        metrics=found,
        runs=SMALL_TREND,
        here=_trends_link(pipeline),
        trend_link=_trend_link,
    )


def _claim_page(store: Store, query: Mapping[str, str]) -> Response:
    run, sample_id, claim = (query.get(name, "") for name in ("run", "sample", "claim"))
    wanted = query.get("as", "")
    rows = claim_history(store, chosen_run(store, run), sample_id, claim, every=wanted in FILES)
    if not rows:
        message = f"no run has a verdict on the claim {claim!r} of the sample {sample_id!r}"
        return error_response(HTTPStatus.NOT_FOUND, message)
    if wanted in FILES:
        table = pl.DataFrame([_flat(row._asdict()) for row in rows], infer_schema_length=None)
        return file_response(table, wanted, "claim")
    here = _here("/claim", query)
    body = page("claim", sample_id=sample_id, claim=claim, rows=rows, here=here)
    return Response(HTTPStatus.OK, body)


def _here(path: str, query: Mapping[str, str]) -> str:
    """The address of a page, to which the link of a file adds `&as=`."""
    return f"{path}?{urlencode(query)}"


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of a file: lists are one text."""
    gates = [f"{one.rule}: {one.outcome}" for one in row.get("gates", ())]
    lists = {"gates": gates} if "gates" in row else {}
    texts = {
        name: "; ".join(value) for name, value in (lists | {"changed": row["changed"]}).items()
    }
    return {**row, **texts}


def _compare(store: Store, query: Mapping[str, str]) -> Response:
    """To the report of run `b` against run `a`; each is named as on the command line."""
    names = [query.get("a", ""), query.get("b", "")]
    if not all(names):
        return error_response(HTTPStatus.BAD_REQUEST, "choose a run as A and another one as B")
    a, b = (chosen_run(store, name) for name in names)
    if a == b:
        return error_response(HTTPStatus.BAD_REQUEST, f"A and B are the same run, {a}")
    to = f"{run_link(b)}?against={quote(a, safe='')}"
    redirect = error_response(HTTPStatus.SEE_OTHER, "the comparison")
    return redirect._replace(headers={"Location": to})


def _of_run(store: Store, path: str, parameters: Mapping[str, str]) -> Response:
    """The report of a run, or what its script asks for: a sample, or the samples with a text."""
    name, _, part = path.partition("/")
    run_id = chosen_run(store, unquote(name))
    against = parameters.get("against")
    before = chosen_run(store, against, before=run_id) if against else None
    if not part and (unquote(name), against or None) != (run_id, before):
        # A word such as latest or previous would mean other runs in a link that is opened later.
        compared = f"?{urlencode({'against': before})}" if before else ""
        to = f"{run_link(run_id)}{compared}"
        redirect = error_response(HTTPStatus.SEE_OTHER, "the report")
        return redirect._replace(headers={"Location": to})
    comparison = _comparison(store, before, run_id) if before else None
    if part == "sample":
        found = sample_entry(store, run_id, parameters.get("id", ""), comparison)
        if found is not None:
            return json_response(found)
    if part == "search":
        ids = searched_samples(store, run_id, parameters.get("text", ""))
        return json_response([escape_controls(one) for one in ids])
    if part:
        return error_response(HTTPStatus.NOT_FOUND, "there is no such page")
    body = html_report(RunDocument(store, run_id), against=comparison, viewer=True)
    return Response(HTTPStatus.OK, body, REPORT_POLICY)


def _comparison(store: Store, a: str, b: str) -> Comparison:
    """As `compare`; remembered of runs that have ended, since each opened sample needs it."""
    statuses = {RunDocument(store, run_id).head.status for run_id in (a, b)}
    return compare(store, a, b) if "running" in statuses else _remembered(store, a, b)


@lru_cache(maxsize=4)
def _remembered(store: Store, a: str, b: str) -> Comparison:
    return compare(store, a, b)


_PAGES: Final[Mapping[str, Callable[[Store, Mapping[str, str]], Response]]] = {
    "/": _runs_page,
    "/compare": _compare,
    "/trend": _trend_page,
    "/claim": _claim_page,
}

_FORMS: Final[Mapping[str, Callable[[Store, Request, str], Response]]] = {
    "/sql": sql_page,
    "/sql/cancel": cancel_query,
    "/tags": _tags_page,
    **dict.fromkeys(LABEL_PATHS, handle_label_request),
}
"""The pages with forms, and what their scripts ask for."""
