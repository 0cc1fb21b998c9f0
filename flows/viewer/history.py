"""What metrics and claims were over the runs of a pipeline, and what changed, for the viewer."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import polars as pl

from claimflow.flows.quality.claim_changes import Provenance, step_changes, step_provenance
from claimflow.flows.report.comparison_text import step_change_text
from claimflow.flows.report.formatting import escape_controls
from claimflow.flows.report.page_charts import long_trend, multiple_trend
from claimflow.flows.report.plots import GateLimit, TrendDetail
from claimflow.flows.report.run_document import PastMean
from claimflow.flows.report.samples import matching_sample
from claimflow.flows.report.vega_lite import Chart
from claimflow.flows.store.arrow import read_table
from claimflow.flows.store.store import Store
from claimflow.flows.viewer.overview import (
    SMALL_TREND,
    means_of_runs,
    newest_means,
    past_mean,
)
from claimflow.flows.viewer.responses import run_link
from claimflow.stages.rows import Sample

_LONG_TREND: Final = 100
"""Runs on the page of a metric."""


class TrendRow(NamedTuple):
    """A run on the page of a metric; `changed` says how its steps differ from the run before."""

    run_id: str
    started_at: datetime
    mean: float | None
    low: float | None
    high: float | None
    n_scored: int
    n: int
    gates: list[GateLimit]
    changed: list[str]


def trend(
    store: Store, pipeline: str, scores: str, metric: str, *, every: bool = False
) -> list[TrendRow]:
    """The means of a metric over the newest whole runs of a pipeline, or `every` one of them.

    The newest row comes first. No rows where there is no such pipeline or metric.
    """
    with store.reading() as connection:
        found = read_table(
            connection,
            _TREND_ROWS,
            pipeline=pipeline,
            scores=scores,
            metric=metric,
            most=None if every else _LONG_TREND,
        )
        made = {run_id: step_provenance(connection, run_id) for run_id in found["run_id"]}
    rows: list[TrendRow] = []
    for row in found.iter_rows(named=True):
        before = made[rows[-1].run_id] if rows else {}
        gates = [GateLimit(**one) for one in row.pop("gates") or []]
        changed = _changed(before, made[row["run_id"]], samples=_OTHER_SAMPLES)
        rows.append(TrendRow(**row, gates=gates, changed=changed))
    return rows[::-1]


def trend_plot(rows: Sequence[TrendRow], metric: str) -> Chart:
    """The plot of the rows of `trend`: points lead to their runs.

    A run whose steps were made otherwise has the number of its row, unless the samples alone
    differ, as they do each night in many pipelines.
    """
    past = [past_mean(row._asdict()) for row in reversed(rows)]
    details = {
        row.run_id: TrendDetail(
            link=run_link(row.run_id),
            note=str(number) if set(row.changed) - {_OTHER_SAMPLES} else "",
            gates=row.gates,
        )
        for number, row in enumerate(rows, 1)
    }
    return long_trend(past, metric, details)


class SmallTrend(NamedTuple):
    """A metric on the page of all: `newest` is its mean in the newest run, `lower` is better."""

    scores: str
    metric: str
    name: str
    lower: bool
    newest: PastMean
    plot: Chart


def small_trends(store: Store, pipeline: str) -> list[SmallTrend]:
    """The metrics of the newest run of a pipeline over its whole runs, those of claims first."""
    means = pipeline_means(store, pipeline, most=SMALL_TREND)
    found = []
    for row in newest_means(store, means).iter_rows(named=True):
        same = (pl.col("scores") == row["scores"]) & (pl.col("metric") == row["metric"])
        past = [past_mean(one) for one in means.filter(same).iter_rows(named=True)]
        plot = multiple_trend(
            past, row["metric"], {one.run_id: run_link(one.run_id) for one in past}
        )
        found.append(
            SmallTrend(row["scores"], row["metric"], row["name"], row["lower"], past[-1], plot)
        )
    return found


def pipeline_means(store: Store, pipeline: str, *, most: int | None = None) -> pl.DataFrame:
    """The means of every metric over the newest whole runs of a pipeline, the oldest run first."""
    with store.reading() as connection:
        runs = read_table(connection, _WHOLE_RUNS, pipeline=pipeline, most=most)
    return means_of_runs(store, runs["run_id"].to_list())


_WHOLE_RUNS: Final = """
SELECT run_id FROM audit.whole_runs WHERE pipeline = $pipeline
ORDER BY started_at DESC, run_id DESC LIMIT $most
"""


class ClaimRow(NamedTuple):
    """A verdict on a claim in a run, or `ABSENT`; `changed` says what differs from the run before.

    `before` is that run, None for the first one, and `flipped` says that it has another verdict of
    the same step against the same text. Of the samples, `changed` says whether this one differs.
    """

    run_id: str
    started_at: datetime
    step: str
    against: str
    verdict: str
    reason: str | None
    flipped: bool
    changed: list[str]
    before: str | None


def claim_history(
    store: Store, run_id: str, sample_id: str, claim: str, *, every: bool = False
) -> list[ClaimRow]:
    """The verdicts on a claim in the newest runs of the pipeline of a run, the newest first.

    With `every`, in all of its runs. Over several passages, an entailed one decides, else a
    contradicted one. Control characters of `sample_id` and `claim` may be replaced, as in reports.
    """
    named = matching_sample(store, run_id, sample_id)
    with store.reading() as connection:
        found = read_table(
            connection,
            _HISTORY,
            run=run_id,
            sample=named or sample_id,
            most=None if every else _LONG_TREND,
        )
        found = found.filter(
            pl.col("claim").map_elements(escape_controls, return_dtype=pl.String)
            == escape_controls(claim)
        )
        runs = read_table(
            connection, _RUNS_BEFORE, run=run_id, most=None if every else _LONG_TREND
        ).rows()[::-1]
        made = {one: step_provenance(connection, one) for one, _ in runs}
        texts = read_table(
            connection, _SAMPLE, runs=[one for one, _ in runs], sample=named or sample_id
        ).rows_by_key("run_id", named=True, unique=True)
    judged = {(row["run_id"], row["step"], row["against"]): row for row in found.to_dicts()}
    before: dict[tuple[str, str], ClaimRow] = {}
    rows = []
    for run, started_at in runs:
        for step, against in dict.fromkeys((step, against) for _, step, against in judged):
            row, earlier = judged.get((run, step, against)), before.get((step, against))
            if step not in made[run] or (row is None and earlier is None):
                continue
            changed = []
            if earlier:
                of_sample = _sample_change(texts.get(earlier.run_id), texts.get(run))
                changed = _changed(made[earlier.run_id], made[run], samples=of_sample)
            verdict = row["verdict"] if row else ABSENT
            flipped = earlier is not None and ABSENT not in (pair := {verdict, earlier.verdict})
            flipped = flipped and len(pair) == 2
            reason = row["reason"] if row else None
            last = earlier.run_id if earlier else None
            now = ClaimRow(run, started_at, step, against, verdict, reason, flipped, changed, last)
            before[step, against] = now
            rows.append(now)
    return rows[::-1]


ABSENT: Final = "absent"
"""Stands for a verdict where a run has the step, and the claim is not among its claims."""

_RUNS_BEFORE: Final = """
SELECT run_id, started_at FROM audit.runs
WHERE pipeline = (SELECT pipeline FROM audit.runs WHERE run_id = $run)
ORDER BY started_at DESC, run_id DESC LIMIT $most
"""


_FIELDS: Final = tuple(name for name in Sample.model_fields if name != "sample_id")

_SAMPLE: Final = f"""
SELECT run_id, {", ".join(f"hash({name}) AS {name}" for name in _FIELDS)} FROM samples
WHERE sample_id = $sample AND run_id IN (SELECT unnest($runs::VARCHAR[]))
"""


def _sample_change(before: Mapping[str, int] | None, now: Mapping[str, int] | None) -> str:
    """How a sample differs between two runs whose samples differ.

    `before` and `now` have a hash of each of its fields, and are None where a run lacks it.
    """
    if before is None or now is None:
        return "this sample: " + ("not in this run" if now is None else "not in the run before")
    fields = [name for name in _FIELDS if before[name] != now[name]]
    return f"this sample: {', '.join(fields)}" if fields else "samples: only others, not this one"


def _changed(
    before: dict[str, Provenance], now: dict[str, Provenance], *, samples: str
) -> list[str]:
    """How the steps of a run were made otherwise than those of another.

    `samples` is said where the samples differ.
    """
    return [
        samples if one.step == "samples" else step_change_text(one)
        for one in step_changes(before, now)
        if one.causes or one.edits or (one.step == "samples" and not one.same)
    ]


_OTHER_SAMPLES: Final = "samples: other ids or texts"

_TREND_ROWS: Final = """
WITH newest AS (
  SELECT run_id, started_at FROM audit.whole_runs WHERE pipeline = $pipeline
  ORDER BY started_at DESC, run_id DESC LIMIT $most
)
SELECT run_id, started_at, mean, low, high, n_scored, n, gates
FROM summaries JOIN newest USING (run_id)
-- A limit of a difference is drawn where the mean would have it: off the mean by what is missing.
LEFT JOIN (SELECT run_id,
                  list({rule: rule, outcome: outcome, line: CASE
                    WHEN regexp_matches(rule, '^(min|max) ') THEN line
                    WHEN starts_with(rule, 'no worse') THEN of_run.mean - value + line
                  END} ORDER BY rule) AS gates
           FROM audit.gates JOIN (
             SELECT run_id, mean FROM summaries
             WHERE slice_field IS NULL AND scores = $scores AND summaries.metric = $metric
           ) AS of_run USING (run_id)
           WHERE metric IN ($metric, $scores || '.' || $metric)
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
