"""The runs of a store by pipeline, and the means of a metric over the runs, for the viewer."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import polars as pl
from markupsafe import Markup

from claimflow.flows.quality.claim_changes import Provenance, step_changes, step_provenance
from claimflow.flows.report.comparison_text import step_change_text
from claimflow.flows.report.formatting import escape_controls
from claimflow.flows.report.plots import long_trend_svg, sparkline_svg
from claimflow.flows.report.run_document import PastMean, with_names
from claimflow.flows.report.samples import matching_sample
from claimflow.flows.store.arrow import read_table
from claimflow.flows.store.results import all_runs, metric_kinds
from claimflow.flows.store.store import Store

SHOWN: Final = 50
"""Runs of a pipeline that are listed, the newest, unless all are asked for."""

_HEADLINES: Final = 8
"""Metrics of a pipeline that are shown beside its name."""

_TREND: Final = 20
"""Runs in a small plot."""

_LONG_TREND: Final = 100
"""Runs on the page of a metric."""

SORTS: Final = {
    "started": "started_at",
    "duration": "seconds",
    "samples": "sample_count",
    "failed": "failures",
    "tokens": "tokens",
    "cost": "cost",
}
"""The columns by which runs can be sorted, by their names in the address."""


class Headline(NamedTuple):
    """A metric of a pipeline: its newest mean, and the change since the run before with one.

    `finding` is better or worse where the intervals of the two do not overlap, else unclear.
    """

    scores: str
    metric: str
    name: str
    lower: bool
    newest: PastMean
    scored: int
    of: int
    change: float | None
    finding: str
    plot: Markup | None


class PipelineRuns(NamedTuple):
    """The runs of a pipeline as rows for the page, and its metrics; `left_out` are older runs."""

    name: str
    headlines: list[Headline]
    runs: list[dict[str, Any]]
    left_out: int


def pipelines(
    store: Store, *, pipeline: str = "", text: str = "", sort: str = "-started", every: bool = False
) -> list[PipelineRuns]:
    """The pipelines of a store, that with the newest run first, with their runs.

    `pipeline` chooses one, `text` the runs whose id, tags, status or reason contain it; `sort` is
    one of `SORTS`, behind a minus for the largest first.
    """
    runs = all_runs(store)
    if pipeline:
        runs = runs.filter(pl.col("pipeline") == pipeline)
    if text:
        words = pl.concat_str(
            "run_id", "tags", "status", "reason", separator=" ", ignore_nulls=True
        )
        runs = runs.filter(words.str.to_lowercase().str.contains(text.lower(), literal=True))
    chosen = runs if every else runs.group_by("pipeline", maintain_order=True).head(SHOWN)
    ids = chosen["run_id"].to_list()
    means = _means(store, ids)
    rows = (
        chosen.join(_details(store, ids), on="run_id", how="left", maintain_order="left")
        .with_columns(
            seconds=(pl.col("ended_at") - pl.col("started_at")).dt.total_milliseconds() / 1000
        )
        .sort(
            SORTS.get(sort.lstrip("-"), "started_at"),
            descending=sort.startswith("-"),
            nulls_last=True,
            maintain_order=True,
        )
    )
    counts = dict(runs.group_by("pipeline").len().iter_rows())
    return [
        _pipeline(
            store,
            name,
            rows.filter(pl.col("pipeline") == name),
            means.filter(pl.col("pipeline") == name),
            counts[name],
        )
        for name in chosen["pipeline"].unique(maintain_order=True)
    ]


def _pipeline(
    store: Store, name: str, rows: pl.DataFrame, means: pl.DataFrame, count: int
) -> PipelineRuns:
    following = _followers(rows)
    by_run = means.rows_by_key("run_id", named=True)
    listed = [
        run
        | {
            "means": {one["name"]: one["mean"] for one in by_run.get(run["run_id"], [])},
            "before": run["run_id"] in following,
        }
        for run in rows.iter_rows(named=True)
    ]
    return PipelineRuns(name, list(_headlines(store, means)), listed, count - rows.height)


def _followers(table: pl.DataFrame) -> set[str]:
    """The runs of a pipeline that have a whole run before them, among `table`."""
    found, whole = set(), False
    for run in table.sort("started_at").iter_rows(named=True):
        if whole:
            found.add(run["run_id"])
        whole = whole or (run["status"] == "done" and run["partial"] is None)
    return found


def _headlines(store: Store, means: pl.DataFrame) -> Iterator[Headline]:
    """The metrics of the newest run that has means."""
    if means.is_empty():
        return
    newest_run = means["run_id"][-1]
    with store.reading() as connection:
        lower = metric_kinds(connection, newest_run).lower
    newest = means.filter(pl.col("run_id") == newest_run)
    for row in newest.head(_HEADLINES).iter_rows(named=True):
        same = (pl.col("scores") == row["scores"]) & (pl.col("metric") == row["metric"])
        past = [_past_mean(one) for one in means.filter(same).iter_rows(named=True)]
        earlier = [one for one in past[:-1] if one.mean is not None]
        change, finding = _change(earlier[-1], past[-1]) if earlier else (None, "unclear")
        if row["metric"] in lower:
            finding = {"better": "worse", "worse": "better"}.get(finding, finding)
        drawn = sparkline_svg(past[-_TREND:], row["metric"])
        yield Headline(
            row["scores"],
            row["metric"],
            row["name"],
            row["metric"] in lower,
            past[-1],
            row["n_scored"],
            row["n"],
            change,
            finding,
            None if drawn is None else Markup(drawn),  # noqa: S704, escaped where it is drawn
        )


def _change(before: PastMean, now: PastMean) -> tuple[float | None, str]:
    """The difference of two means, and whether it is for the better where more is better."""
    if before.mean is None or now.mean is None:
        return None, "unclear"
    change = now.mean - before.mean
    if None in (before.low, before.high, now.low, now.high):
        return change, "unclear"
    apart = now.low > before.high or now.high < before.low  # type: ignore[operator]
    return change, ("better" if change > 0 else "worse") if apart else "unclear"


def _past_mean(row: Mapping[str, Any]) -> PastMean:
    return PastMean(row["run_id"], row["started_at"], row["mean"], row["low"], row["high"])


def _means(store: Store, run_ids: Sequence[str]) -> pl.DataFrame:
    """The means of runs over all samples, the oldest run first; `name` as reports show it."""
    with store.reading() as connection:
        return with_names(read_table(connection, _MEANS, runs=list(run_ids)), "run_id")


def _details(store: Store, run_ids: Sequence[str]) -> pl.DataFrame:
    """Samples, gates, calls, tokens, cost and progress of runs."""
    with store.reading() as connection:
        return read_table(connection, _DETAILS, runs=list(run_ids))


class TrendRow(NamedTuple):
    """A run on the page of a metric; `changed` says how its steps differ from the run before."""

    run_id: str
    started_at: datetime
    mean: float | None
    low: float | None
    high: float | None
    n_scored: int
    n: int
    gate: str | None
    changed: list[str]


def trend(store: Store, pipeline: str, scores: str, metric: str) -> tuple[Markup, list[TrendRow]]:
    """The means of a metric over the newest whole runs of a pipeline: a plot, and rows.

    The newest row comes first. No rows where there is no such pipeline or metric.
    """
    with store.reading() as connection:
        found = read_table(
            connection,
            _TREND_ROWS,
            pipeline=pipeline,
            scores=scores,
            metric=metric,
            most=_LONG_TREND,
        )
        made = {run_id: step_provenance(connection, run_id) for run_id in found["run_id"]}
    rows: list[TrendRow] = []
    for row in found.iter_rows(named=True):
        before = made[rows[-1].run_id] if rows else {}
        rows.append(TrendRow(**row, changed=_changed(before, made[row["run_id"]])))
    past = [_past_mean(row._asdict()) for row in rows]
    drawn = long_trend_svg(past, metric)
    return Markup(drawn), rows[::-1]  # noqa: S704, escaped where it is drawn


class ClaimRow(NamedTuple):
    """A verdict on a claim in a run; `changed` says what differs from the run before.

    `flipped` says that the run before has another verdict of the same step against the same text.
    """

    run_id: str
    started_at: datetime
    step: str
    against: str
    verdict: str
    reason: str | None
    flipped: bool
    changed: list[str]


def claim_history(store: Store, run_id: str, sample_id: str, claim: str) -> list[ClaimRow]:
    """The verdicts on a claim in the newest runs of the pipeline of a run, the newest first.

    Over several passages, an entailed one decides, else a contradicted one. Control characters of
    `sample_id` and `claim` may be replaced, as in reports.
    """
    named = matching_sample(store, run_id, sample_id)
    with store.reading() as connection:
        found = read_table(
            connection, _HISTORY, run=run_id, sample=named or sample_id, most=_LONG_TREND
        )
        found = found.filter(
            pl.col("claim").map_elements(escape_controls, return_dtype=pl.String)
            == escape_controls(claim)
        )
        runs = found["run_id"].unique(maintain_order=True).to_list()
        made = {one: step_provenance(connection, one) for one in runs}
    before: dict[tuple[str, str], dict[str, Any]] = {}
    rows = []
    for row in found.drop("claim").iter_rows(named=True):
        earlier = before.get((row["step"], row["against"]))
        changed = [] if earlier is None else _changed(made[earlier["run_id"]], made[row["run_id"]])
        flipped = earlier is not None and earlier["verdict"] != row["verdict"]
        rows.append(ClaimRow(**row, flipped=flipped, changed=changed))
        before[row["step"], row["against"]] = row
    return rows[::-1]


def _changed(before: dict[str, Provenance], now: dict[str, Provenance]) -> list[str]:
    """How the steps of a run were made otherwise than those of another."""
    return [
        "samples: others" if one.step == "samples" else step_change_text(one)
        for one in step_changes(before, now)
        if one.causes or one.edits or (one.step == "samples" and not one.same)
    ]


def pipeline_names(store: Store) -> list[str]:
    """The names of all pipelines that have runs."""
    with store.reading() as connection:
        found = connection.execute("SELECT DISTINCT pipeline FROM audit.runs ORDER BY pipeline")
        return [name for (name,) in found.fetchall()]


_MEANS: Final = """
SELECT run_id, pipeline, started_at, scores, metric, mean, low, high, n_scored, n
FROM summaries JOIN (SELECT run_id, pipeline, started_at FROM audit.runs) USING (run_id)
WHERE slice_field IS NULL AND run_id IN (SELECT unnest($runs::VARCHAR[]))
ORDER BY started_at, run_id, scores, metric
"""

_DETAILS: Final = """
WITH chosen AS (SELECT unnest($runs::VARCHAR[]) AS run_id),
gates AS (
  SELECT run_id, count(*) FILTER (outcome = 'pass') AS passed,
         count(*) FILTER (outcome = 'fail') AS not_passed,
         count(*) FILTER (outcome NOT IN ('pass', 'fail')) AS open
  FROM audit.gates SEMI JOIN chosen USING (run_id) GROUP BY run_id
),
calls AS (
  SELECT run_id, count(*) AS calls,
         (sum(prompt_tokens) + sum(coalesce(completion_tokens, 0)))::BIGINT AS tokens,
         sum(cost)::DOUBLE AS cost, count(cost) AS priced
  FROM audit.calls SEMI JOIN chosen USING (run_id) GROUP BY run_id
),
-- The table that a run in progress is making.
going AS (
  SELECT run_id, stage AS making, shards AS parts, count(part) AS parts_made
  FROM audit.artifacts LEFT JOIN (SELECT artifact_id, part FROM audit.artifact_parts)
    USING (artifact_id)
  SEMI JOIN chosen USING (run_id)
  WHERE digest IS NULL GROUP BY run_id, stage, shards, made_at
  QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY made_at DESC) = 1
)
SELECT run_id, sample_count, passed, not_passed, open, calls, tokens, cost, priced,
       making, parts, parts_made
FROM chosen JOIN (SELECT run_id, sample_count FROM audit.runs) USING (run_id)
LEFT JOIN gates USING (run_id) LEFT JOIN calls USING (run_id) LEFT JOIN going USING (run_id)
"""

_TREND_ROWS: Final = """
WITH newest AS (
  SELECT run_id, started_at FROM audit.whole_runs WHERE pipeline = $pipeline
  ORDER BY started_at DESC, run_id DESC LIMIT $most
)
SELECT run_id, started_at, mean, low, high, n_scored, n, gate
FROM summaries JOIN newest USING (run_id)
LEFT JOIN (SELECT run_id, string_agg(rule || ': ' || outcome, '; ' ORDER BY rule) AS gate
           FROM audit.gates WHERE metric IN ($metric, $scores || '.' || $metric)
           GROUP BY run_id) USING (run_id)
WHERE slice_field IS NULL AND scores = $scores AND metric = $metric
ORDER BY started_at, run_id
"""

_HISTORY: Final = """
WITH this AS (SELECT pipeline FROM audit.runs WHERE run_id = $run),
newest AS (
  SELECT run_id, started_at FROM audit.runs SEMI JOIN this USING (pipeline)
  ORDER BY started_at DESC, run_id DESC LIMIT $most
),
judged AS (
  SELECT run_id, verdicts.step, against, claim, if(verdicts.status = 'failed', 'failed', verdict)
           AS verdict, verdicts.reason,
         array_position(['entailed', 'contradicted', 'neutral', 'failed'],
                        if(verdicts.status = 'failed', 'failed', verdict)) AS place
  FROM claims JOIN verdicts USING (run_id, claim_id)
  WHERE sample_id = $sample AND run_id IN (SELECT run_id FROM newest)
)
SELECT run_id, started_at, step, against, claim, arg_min(verdict, place) AS verdict,
       arg_min(reason, place) AS reason
FROM judged JOIN newest USING (run_id) WHERE place IS NOT NULL
GROUP BY run_id, started_at, step, against, claim
ORDER BY started_at, run_id, step, against
"""
