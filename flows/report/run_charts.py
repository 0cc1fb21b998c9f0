"""Charts of stored runs for a place without a heading: each has a title that says what it shows."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.quality.calibration import reliability_of_step
from claimflow.flows.quality.comparison import Comparison, RunFacts
from claimflow.flows.report.comparison_text import run_facts_text
from claimflow.flows.report.formatting import format_count
from claimflow.flows.report.plots import (
    comparison_chart,
    distribution_chart,
    reliability_chart,
    trend_chart,
)
from claimflow.flows.report.run_document import (
    RunDocument,
    named_metrics,
    past_means,
    scored_values,
)
from claimflow.flows.report.vega_lite import Chart
from claimflow.flows.store.store import Store

_INTERVALS: Final = "95 % intervals"


def metric_chart(
    store: Store,
    run_id: str,
    name: str,
    *,
    kind: Literal["distribution", "trend"],
    place: str,
    why: str,
) -> Chart:
    """The distribution of a metric's scores in a run, or its means over the runs of the pipeline.

    `name` is `metric`, or `step.metric` where several steps make it. Raises `InputError` where
    there is nothing to draw: its fault is at `place`, and `why` is the hint to the reason.
    """
    [metric] = named_metrics(store, run_id, [name], place=place)
    run = RunDocument(store, run_id)
    if kind == "distribution":
        values = scored_values(store, run_id, metric)
        if not values:
            raise InputError([Fault(place, f"no sample has a score for {name}", why)])
        counts = f"n = {len(values):,} scored of {format_count(run.samples, 'sample')}"
        chart = distribution_chart(values, label=name)
        return chart.titled(f"Distribution of {name}", _run_text(run), counts)
    past = past_means(store, run_id).get(metric, [])
    if all(one.mean is None for one in past):
        hint = why if past else "add a step that uses summarize_scores"
        raise InputError([Fault(place, f"no run has a mean for {name}", hint)])
    chart = trend_chart({one.run_id: one for one in past}, label=name)
    runs = f"{format_count(len(past), 'run')}, the last is {_run_text(run)}"
    counts = f"n = {_range([one.scored for one in past])} scored samples in each run"
    return chart.titled(f"{name} over the runs", runs, f"{counts}, {_INTERVALS}")


def step_chart(store: Store, run_id: str, step: str) -> Chart:
    """The reliability of the probabilities of a step that verifies claims.

    Raises `InputError` where there is no such step, or it has no labels or no probabilities.
    """
    found = reliability_of_step(store, run_id, step)
    chart = reliability_chart(found.bins, label=f"p entailed, {step}")
    counts = f"n = {format_count(found.n, 'verdict')} with a label, {_INTERVALS}"
    return chart.titled(f"Reliability of {step}", _run_text(RunDocument(store, run_id)), counts)


def comparison_of_runs(found: Comparison) -> Chart:
    """The differences of the means of two runs, with their intervals.

    The title names the metrics, up to three of them.
    """
    chart = comparison_chart(found.metrics)
    counts = [one.difference.samples for one in found.metrics if one.difference]
    units = f", in units of {found.by}" if found.by else ""
    return chart.titled(
        f"{_differences_text([one.metric for one in found.metrics])} from run A to run B",
        *(_side_text(side, run) for side, run in (("A", found.a), ("B", found.b))),
        f"n = {_range(counts)} samples scored in both{units}, {_INTERVALS}",
    )


_NAMED: Final = 3
"""Metrics that a title names; of more it says how many."""


def _differences_text(metrics: Sequence[str]) -> str:
    if len(metrics) == 1:
        return f"Difference of the mean of {metrics[0]}"
    if not 0 < len(metrics) <= _NAMED:
        return f"Differences of the means of {len(metrics):,} metrics"
    *first, last = metrics
    return f"Differences of the means of {', '.join(first)} and {last}"


def _side_text(side: str, run: RunFacts) -> str:
    return f"{side}: run {run.run_id}, {_time(run.started_at)}, {run_facts_text(run)}"


def _run_text(run: RunDocument) -> str:
    head = run.head
    partial = f", partial: {head.partial}" if head.partial else ""
    return f"run {run.run_id} of {head.pipeline}, {_time(head.started_at)}{partial}"


def _time(started_at: datetime) -> str:
    return f"{started_at:%Y-%m-%d %H:%M} UTC"


def _range(counts: Sequence[int]) -> str:
    """`38`, or `38 to 40` where they differ."""
    low, high = min(counts, default=0), max(counts, default=0)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
