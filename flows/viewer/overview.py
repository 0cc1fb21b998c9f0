"""The runs of a store by pipeline, with their means, gates and cost, for the viewer."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import polars as pl

from claimflow.flows.quality.metric_differences import (
    Finding,
    MetricDifference,
    conversation_units,
    metric_differences,
    paired_scores,
)
from claimflow.flows.report.page_charts import Sparkline, sparkline
from claimflow.flows.report.run_document import PastMean, with_names
from claimflow.flows.store.arrow import read_table
from claimflow.flows.store.results import all_runs, metric_kinds
from claimflow.flows.store.store import Store

SHOWN: Final = 50
"""Runs of a pipeline that are listed, the newest, unless all are asked for."""

_HEADLINES: Final = 8
"""Metrics of a pipeline that are shown beside its name."""

SMALL_TREND: Final = 20
"""Runs in a small plot."""

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

    The change with its 95 % interval is over the samples scored in both, and `finding` that of
    `claimflow diff`. `before` is the run before, and `moved` the number of metrics that moved
    since, for which p is corrected.
    """

    scores: str
    metric: str
    name: str
    lower: bool
    newest: PastMean
    of: int
    before: str | None
    change: float | None
    change_low: float | None
    change_high: float | None
    finding: Finding
    moved: int
    plot: Sparkline | None

    @property
    def blurred(self) -> bool:
        """Whether the change is unclear, and p is corrected for further metrics."""
        return self.change is not None and self.finding == "unclear" and self.moved > 1


class PipelineRuns(NamedTuple):
    """The runs of a pipeline as rows for the page, and its metrics.

    `more_metrics` and `left_out`, older runs, are not in them.
    """

    name: str
    headlines: list[Headline]
    more_metrics: int
    runs: list[dict[str, Any]]
    left_out: int


class RunFilter(NamedTuple):
    """Which runs are listed; an empty text lets every run through.

    `text` is contained in id, tags, status or reason.
    """

    pipeline: str = ""
    text: str = ""
    status: str = ""
    tag: str = ""

    def of(self, runs: pl.DataFrame) -> pl.DataFrame:
        """The runs of `all_runs` that the filter lets through."""
        if self.pipeline:
            runs = runs.filter(pl.col("pipeline") == self.pipeline)
        if self.status:
            runs = runs.filter(pl.col("status") == self.status)
        if self.tag:
            runs = runs.filter(pl.col("tags").str.split(", ").list.contains(self.tag))
        if self.text:
            words = pl.concat_str(
                "run_id", "tags", "status", "reason", separator=" ", ignore_nulls=True
            )
            text = self.text.lower()
            runs = runs.filter(words.str.to_lowercase().str.contains(text, literal=True))
        return runs


class FilterChoices(NamedTuple):
    """The values that the runs of a store can be filtered by."""

    pipelines: list[str]
    statuses: list[str]
    tags: list[str]


def filter_choices(store: Store) -> FilterChoices:
    """The pipelines, statuses and tags of all runs."""
    runs = all_runs(store)
    tags = runs["tags"].drop_nulls().str.split(", ").explode()
    return FilterChoices(
        *(one.unique().sort().to_list() for one in (runs["pipeline"], runs["status"], tags))
    )


def pipelines(
    store: Store,
    wanted: RunFilter = RunFilter(),  # noqa: B008, it is immutable
    *,
    sort: str = "-started",
    every: bool = False,
    every_metric: bool = False,
) -> list[PipelineRuns]:
    """The pipelines of a store, that with the newest run first, with their runs.

    With `every` all runs are listed, not only the newest, and with `every_metric` all metrics.
    `sort` is one of `SORTS`, behind a minus for the largest first.
    """
    runs = wanted.of(all_runs(store))
    chosen = runs if every else runs.group_by("pipeline", maintain_order=True).head(SHOWN)
    rows, means = _with_details(store, chosen, sort)
    counts = dict(runs.group_by("pipeline").len().iter_rows())
    return [
        _pipeline(
            store,
            name,
            rows.filter(pl.col("pipeline") == name),
            means.filter(pl.col("pipeline") == name),
            counts[name],
            every_metric=every_metric,
        )
        for name in chosen["pipeline"].unique(maintain_order=True)
    ]


def _with_details(store: Store, runs: pl.DataFrame, sort: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Runs with what a row shows of them, sorted, and their means."""
    ids = runs["run_id"].to_list()
    rows = (
        runs.join(_details(store, ids), on="run_id", how="left", maintain_order="left")
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
    return rows, means_of_runs(store, ids)


def runs_table(store: Store, wanted: RunFilter, *, sort: str = "-started") -> pl.DataFrame:
    """The rows of `pipelines`, of all runs that the filter lets through, with a column per mean."""
    runs = wanted.of(all_runs(store))
    rows, means = _with_details(store, runs, sort)
    order = {name: at for at, name in enumerate(runs["pipeline"].unique(maintain_order=True))}
    place = pl.col("pipeline").replace_strict(order, return_dtype=pl.Int64)
    table = rows.sort(place, maintain_order=True).select(
        *("pipeline", "run_id", "tags", "started_at", "seconds", "status", "partial", "reason"),
        samples="sample_count",
        gates_passed="passed",
        gates_failed="not_passed",
        gates_open="open",
        failed_rows="failures",
        calls="calls",
        priced_calls="priced",
        tokens="tokens",
        usd="cost",
    )
    if means.is_empty():
        return table
    beside = means.select("run_id", "mean", name=pl.lit("mean ") + pl.col("name"))
    wide = beside.pivot("name", index="run_id", values="mean", aggregate_function="first")
    return table.join(wide, on="run_id", how="left", maintain_order="left")


def _pipeline(
    store: Store,
    name: str,
    rows: pl.DataFrame,
    means: pl.DataFrame,
    count: int,
    *,
    every_metric: bool,
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
    newest = newest_means(store, means)
    shown = newest if every_metric else newest.head(_HEADLINES)
    headlines = list(_headlines(store, means, shown))
    more_metrics = newest.height - shown.height
    return PipelineRuns(name, headlines, more_metrics, listed, count - rows.height)


def _followers(table: pl.DataFrame) -> set[str]:
    """The runs of a pipeline that have a whole run before them, among `table`."""
    found, whole = set(), False
    for run in table.sort("started_at").iter_rows(named=True):
        if whole:
            found.add(run["run_id"])
        whole = whole or (run["status"] == "done" and run["partial"] is None)
    return found


def newest_means(store: Store, means: pl.DataFrame) -> pl.DataFrame:
    """The means of the newest run that has some, those of claims first; with the column `lower`."""
    newest = means.tail(1).select("run_id")
    if newest.is_empty():
        return newest
    with store.reading() as connection:
        kinds = metric_kinds(connection, *newest["run_id"])
    return (
        means.join(newest, on="run_id", how="semi", maintain_order="left")
        .with_columns(lower=pl.col("metric").is_in(kinds.lower))
        .sort(pl.col("metric").is_in(kinds.claims), descending=True, maintain_order=True)
    )


def _headlines(store: Store, means: pl.DataFrame, shown: pl.DataFrame) -> Iterator[Headline]:
    """The rows of `newest_means` in `shown`, with what came before."""
    for row in shown.iter_rows(named=True):
        same = (pl.col("scores") == row["scores"]) & (pl.col("metric") == row["metric"])
        past = [past_mean(one) for one in means.filter(same).iter_rows(named=True)]
        before = next((one.run_id for one in past[-2::-1] if one.mean is not None), None)
        compared = {} if before is None else _differences(store, before, past[-1].run_id)
        found = compared.get(row["name"])
        change = found.difference if found else None
        tested = [one.difference for one in compared.values() if one.difference]
        moved = [one for one in tested if one.p is not None and not one.unchanged]
        yield Headline(
            scores=row["scores"],
            metric=row["metric"],
            name=row["name"],
            lower=row["lower"],
            newest=past[-1],
            of=row["n"],
            before=before,
            change=change.mean if change else None,
            change_low=change.low if change else None,
            change_high=change.high if change else None,
            finding=found.finding if found else "unclear",
            moved=len(moved),
            plot=sparkline(past[-SMALL_TREND:], row["metric"]),
        )


@lru_cache(maxsize=32)
def _differences(store: Store, a: str, b: str) -> Mapping[str, MetricDifference]:
    """The metrics of two runs that have ended, compared as `claimflow diff` does."""
    with store.reading() as connection:
        pairs = paired_scores(connection, a, b)
        units = conversation_units(connection, b)
        lower = metric_kinds(connection, a, b).lower
    return {one.metric: one for one in metric_differences(pairs, units, lower=lower)}


def past_mean(row: Mapping[str, Any]) -> PastMean:
    """A row of means as a point of a plot."""
    columns = ("run_id", "started_at", "mean", "low", "high", "n_scored")
    return PastMean(*(row[column] for column in columns))


def means_of_runs(store: Store, run_ids: Sequence[str]) -> pl.DataFrame:
    """The means of runs over all samples, the oldest run first; `name` as reports show it."""
    with store.reading() as connection:
        return with_names(read_table(connection, _MEANS, runs=list(run_ids)), "run_id")


def _details(store: Store, run_ids: Sequence[str]) -> pl.DataFrame:
    """Samples, gates, calls, tokens, cost and progress of runs."""
    with store.reading() as connection:
        return read_table(connection, _DETAILS, runs=list(run_ids))


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
