"""Charts as pages show them, beside a heading that says what they are about."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import polars as pl

from claimflow.flows.quality.calibration import CorrectedStep
from claimflow.flows.quality.comparison import Comparison
from claimflow.flows.quality.metric_differences import MetricDifference
from claimflow.flows.report.formatting import format_interval
from claimflow.flows.report.plots import (
    PairedScore,
    TrendDetail,
    comparison_chart,
    distribution_chart,
    paired_chart,
    reliability_chart,
    small_trend_chart,
    trend_chart,
)
from claimflow.flows.report.run_document import PastMean
from claimflow.flows.report.vega_lite import Chart


def small_distribution(
    values: Sequence[float], metric: str, leads_to: Callable[[float, float], str]
) -> Chart | None:
    """The distribution of a metric's scores, with links; None where there are no scores."""
    if not values:
        return None
    return distribution_chart(
        values, label=metric, titled=False, width=140, height=44, leads_to=leads_to
    )


def small_trend(past: Sequence[PastMean], metric: str) -> Chart | None:
    """The means of a metric over the runs; None where fewer than two have one."""
    if sum(one.mean is not None for one in past) < 2:
        return None
    return small_trend_chart(_by_start(past), label=metric, size=(150, 44))


def multiple_trend(past: Sequence[PastMean], metric: str, leads_to: Mapping[str, str]) -> Chart:
    """As `small_trend`, to stand beside others; `leads_to` has the addresses by ids of runs."""
    runs = _by_start(past)
    details = {name: TrendDetail(leads_to[one.run_id], "", ()) for name, one in runs.items()}
    return small_trend_chart(runs, label=metric, size=(280, 90), details=details)


def long_trend(past: Sequence[PastMean], metric: str, details: Mapping[str, TrendDetail]) -> Chart:
    """The means of a metric, as wide as a page; `details` are by the ids of runs."""
    runs = _by_start(past)
    named = {name: details[one.run_id] for name, one in runs.items()}
    return trend_chart(runs, label=metric, width=900, height=240, details=named)


class Sparkline(NamedTuple):
    """A small trend without axes, and the range of its scale in words."""

    chart: Chart
    scale: str


def sparkline(past: Sequence[PastMean], metric: str) -> Sparkline | None:
    """As `small_trend`, without axes."""
    if sum(one.mean is not None for one in past) < 2:
        return None
    chart = small_trend_chart(_by_start(past), label=metric, size=(160, 30), axes=False)
    low, high = chart.spec["encoding"]["y"]["scale"]["domain"]
    whole = (low, high) == (0, 1)
    return Sparkline(chart, "0 to 1" if whole else format_interval(low, high))


def _by_start(past: Sequence[PastMean]) -> dict[str, PastMean]:
    # With the end of the id, since two runs can start in one minute.
    return {f"{one.started_at:%m-%d %H:%M} {one.run_id[-4:]}": one for one in past}


def reliability_charts(found: Sequence[CorrectedStep]) -> list[Chart]:
    """A reliability diagram of each step whose judge gives probabilities."""
    return [
        reliability_chart(one.reliability.bins, label=f"p entailed, {one.step}")
        for one in found
        if one.reliability is not None
    ]


def slice_reliability_charts(
    found: Sequence[CorrectedStep], field: str
) -> list[tuple[str, str | None, Chart]]:
    """The step, the value of `field`, and the reliability diagram of these samples."""
    return [
        (
            one.step,
            part.value,
            reliability_chart(part.reliability.bins, label=f"p entailed, {one.step}"),
        )
        for one in found
        for part in one.slices
        if part.field == field
    ]


def differences_chart(
    found: Comparison, leads_to: Callable[[MetricDifference], str]
) -> Chart | None:
    """The differences of the means, with links; None where no metric is scored in both runs."""
    both = [one for one in found.metrics if one.difference is not None]
    return comparison_chart(both, label="B - A", leads_to=leads_to) if both else None


_PAIRED: Final = 100
"""Samples in the chart of a metric of two runs: those that moved most."""


def paired_charts(found: Comparison, leads_to: Callable[[str, str], str]) -> list[Chart]:
    """A chart of the samples whose score moved, for each metric of which some did.

    `leads_to` returns the address for a metric and a sample.
    """
    moved = found.scores.filter(pl.col("difference").is_not_null())
    return [
        paired_chart(
            [
                PairedScore(sample, a, b, leads_to(one.metric, sample))
                for sample, a, b in rows.head(_PAIRED)
                .select("sample_id", "score_a", "score_b")
                .iter_rows()
            ],
            label=one.metric,
        )
        for one in found.metrics
        if not (rows := moved.filter(pl.col("name") == one.metric)).is_empty()
    ]
