"""Charts of runs, and their rendering as SVG or PNG."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal
from xml.sax.saxutils import quoteattr

import altair as alt
import numpy as np
import vl_convert

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.quality.calibration import CorrectedStep
from claimflow.flows.quality.comparison import Comparison
from claimflow.flows.quality.corrected_rates import Bin
from claimflow.flows.quality.metric_differences import MetricDifference
from claimflow.flows.report.run_document import (
    PastMean,
    named_metrics,
    past_means,
    scored_values,
)
from claimflow.flows.store.store import Store

Chart = alt.Chart | alt.LayerChart

MARK: Final = "#3b82c4"
"""The colour of marks, which stands out from white and black (contrast 4.0 and 5.2)."""

_INK: Final = "currentColor"
"""The colour of text and axes: that of the surrounding text, or black where there is none."""


def styled_chart(chart: Chart, *, about: str, width: int, height: int) -> Chart:
    """The chart in the common style; `about` is read aloud, the size is in pixels without axes."""
    titled = chart.properties(width=width, height=height, description=about)
    inked: Chart = (
        titled.configure(background="transparent", font="sans-serif")
        .configure_axis(
            labelColor=_INK,
            titleColor=_INK,
            domainColor=_INK,
            tickColor=_INK,
            gridColor=_INK,
            gridOpacity=0.15,
            labelLimit=200,
            titleFontWeight="normal",
        )
        .configure_view(stroke=None)
    )
    return inked


_SHARP: Final = 2.0
"""Pixels of a PNG per pixel of the chart, for high-resolution screens."""


def to_svg(chart: Chart) -> str:
    """The chart as one `<svg>` element without scripts, style attributes or external resources.

    Text and axes are in `currentColor`, so that they take the text colour of a page. Text in the
    chart is escaped. Screen readers get a description, and can go from mark to mark.
    """
    whole = chart.to_dict()
    drawn: str = vl_convert.vegalite_to_svg(whole, allowed_base_urls=[])
    name = quoteattr(whole["description"])
    aloud = f'role="graphics-document" aria-roledescription="chart" aria-label={name}'
    return drawn.replace("<svg ", f"<svg {aloud} ", 1)


def to_png(chart: Chart) -> bytes:
    """The chart as a PNG on white, at twice its size."""
    white = chart.to_dict() | {"background": "white"}
    drawn: bytes = vl_convert.vegalite_to_png(white, scale=_SHARP, allowed_base_urls=[])
    return drawn


_ROW: Final = 24


def comparison_chart(
    metrics: Sequence[MetricDifference], *, label: str = "difference of the means"
) -> Chart:
    """Each metric's difference, b - a, and its interval against a line at 0, in the given order.

    `label` is the title of the axis; each metric is 24 pixels high. A metric that is not scored in
    both runs has an empty row.
    """
    rows: list[dict[str, Any]] = [{"metric": one.metric, **_interval(one)} for one in metrics]
    order = [one.metric for one in metrics]
    names = alt.Y("metric:N", scale=alt.Scale(domain=order), title=None)
    base = alt.Chart(alt.InlineData(values=rows)).encode(y=names)
    zero = alt.Chart(alt.InlineData(values=[{"zero": 0}])).mark_rule(
        color="currentColor", strokeDash=[4, 3], opacity=0.7
    )
    intervals = base.mark_rule(color=MARK, strokeWidth=3, opacity=0.6).encode(
        x=alt.X("low:Q", title=label), x2="high:Q"
    )
    points = base.mark_point(color=MARK, filled=True, size=60, opacity=1).encode(
        x=alt.X("difference:Q", title=label)
    )
    about = f"{label} of two runs, with 95 % intervals; metrics: {len(metrics):,}"
    layers = zero.encode(x=alt.X("zero:Q", title=label)) + intervals + points
    return styled_chart(layers, about=about, width=360, height=_ROW * max(len(metrics), 1))


def _interval(metric: MetricDifference) -> dict[str, float | None]:
    if metric.difference is None:
        return dict.fromkeys(("difference", "low", "high"))
    found = metric.difference
    return {"difference": found.mean, "low": found.low, "high": found.high}


_BINS: Final = 20


def distribution_chart(
    values: Sequence[float], *, label: str = "score", width: int = 300, height: int = 100
) -> Chart:
    """A histogram: 20 bars from 0 to 1, or over the range of `values` where it is wider.

    A bar includes its lower end; only the last one includes its upper end. `label` is the title
    of the axis; the size is in pixels without axes.
    """
    within = all(0 <= value <= 1 for value in values)
    # Not numpy's edges: the fourth bar begins at exactly 0.15.
    nice = [place / _BINS for place in range(_BINS + 1)]
    counts, edges = np.histogram(values, nice if within else _BINS)
    ends = [float(f"{edge:.9g}") for edge in edges]
    bars = [
        {"low": low, "high": high, "samples": int(count)}
        for low, high, count in zip(ends, ends[1:], counts, strict=False)
    ]
    whole = alt.Scale(domain=[ends[0], ends[-1]])
    chart = (
        alt.Chart(alt.InlineData(values=bars))
        .mark_bar(color=MARK, binSpacing=1)
        .encode(
            x=alt.X("low:Q", bin="binned", title=label, scale=whole),
            x2="high:Q",
            y=alt.Y("samples:Q", title="samples", axis=alt.Axis(tickMinStep=1, tickCount=4)),
        )
    )
    about = f"Distribution of {label}; samples: {len(values):,}"
    return styled_chart(chart, about=about, width=width, height=height)


_WHOLE: Final = alt.Scale(domain=[0, 1])


def reliability_chart(bins: Sequence[Bin], *, label: str = "p entailed") -> Chart:
    """A reliability diagram: the share that people call entailed, by predicted probability.

    Points on the diagonal are calibrated; below it the judge is overconfident. The size of a
    point grows with its rows. `label` is the title of the axis.
    """
    rows = [
        {
            "predicted": one.mean,
            "share": one.entailed.value,
            "low": one.entailed.low,
            "high": one.entailed.high,
            "rows": one.n,
        }
        for one in bins
    ]
    share = "entailed by people"
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        x=alt.X("predicted:Q", title=label, scale=_WHOLE)
    )
    ends = alt.InlineData(values=[{"predicted": 0, "share": 0}, {"predicted": 1, "share": 1}])
    diagonal = (
        alt.Chart(ends)
        .mark_line(color="currentColor", strokeDash=[4, 3], opacity=0.7)
        .encode(x="predicted:Q", y=alt.Y("share:Q", title=share, scale=_WHOLE))
    )
    intervals = base.mark_rule(color=MARK, strokeWidth=2, opacity=0.6).encode(
        y=alt.Y("low:Q", title=share), y2="high:Q"
    )
    marks = base.mark_point(color=MARK, filled=True, opacity=1).encode(
        y=alt.Y("share:Q", title=share),
        size=alt.Size("rows:Q", legend=None, scale=alt.Scale(range=[20, 200], domainMin=0)),
    )
    number = sum(one.n for one in bins)
    about = f"Share entailed by people over {label}, {number:,} rows, with 95 % intervals"
    return styled_chart(diagonal + intervals + marks, about=about, width=220, height=220)


def trend_chart(
    means: Mapping[str, PastMean], *, label: str = "mean", width: int = 480, height: int = 160
) -> Chart:
    """The means of runs, by their names on the axis: evenly spaced, each with its interval.

    A run without a mean leaves a gap in the line. `label` is the title of the axis, which need
    not begin at 0; the size is in pixels without axes.
    """
    rows = [
        {"label": name, "mean": one.mean, "low": one.low, "high": one.high}
        for name, one in means.items()
    ]
    axis = alt.Axis(labelAngle=-40, labelOverlap=True)
    order = alt.Scale(domain=list(means))
    runs = alt.X("label:O", scale=order, title=None, axis=axis)
    base = alt.Chart(alt.InlineData(values=rows)).encode(x=runs)
    mean = alt.Y("mean:Q", title=label, scale=alt.Scale(zero=False))
    intervals = base.mark_rule(color=MARK, opacity=0.6, strokeWidth=2).encode(
        y=alt.Y("low:Q", title=label, scale=alt.Scale(zero=False)), y2="high:Q"
    )
    line = base.mark_line(color=MARK, point={"color": MARK, "size": 40}).encode(y=mean)
    about = f"{label} over the runs, with 95 % intervals; runs: {len(means):,}"
    return styled_chart(intervals + line, about=about, width=width, height=height)


def metric_chart(
    store: Store, run_id: str, name: str, *, kind: Literal["distribution", "trend"]
) -> Chart:
    """The distribution of a metric's scores in a run, or its means over the runs of the pipeline.

    `name` is `metric`, or `step.metric` where several steps make it. Raises `InputError` where
    there is nothing to draw.
    """
    [metric] = named_metrics(store, run_id, [name], place="METRIC")
    if kind == "distribution":
        values = scored_values(store, run_id, metric)
        if not values:
            what, hint = f"no sample has a score for {name}", "`claimflow show` says why"
            raise InputError([Fault("METRIC", what, hint)])
        return distribution_chart(values, label=name)
    past = past_means(store, run_id).get(metric, [])
    if all(one.mean is None for one in past):
        why = "`claimflow show` says why" if past else "add a step that uses summarize_scores"
        what, hint = f"no run has a mean for {name}", why
        raise InputError([Fault("--kind trend", what, hint)])
    return trend_chart({one.run_id: one for one in past}, label=name)


def distribution_svg(values: Sequence[float], metric: str) -> str | None:
    """The distribution of a metric's scores; None where there are no scores."""
    return (
        to_svg(distribution_chart(values, label=metric, width=200, height=44)) if values else None
    )


def trend_svg(past: Sequence[PastMean], metric: str) -> str | None:
    """The means of a metric over the runs; None where fewer than two have one."""
    if sum(one.mean is not None for one in past) < 2:
        return None
    # With the end of the id, since two runs can start in one minute.
    means = {f"{one.started_at:%m-%d %H:%M} {one.run_id[-4:]}": one for one in past}
    return to_svg(trend_chart(means, label=metric, width=240, height=44))


def reliability_svgs(found: Sequence[CorrectedStep]) -> Iterator[str]:
    """A reliability diagram of each step whose judge gives probabilities."""
    for one in found:
        if one.reliability is not None:
            label = f"p entailed, {one.step}"
            yield to_svg(reliability_chart(one.reliability.bins, label=label))


def comparison_svg(found: Comparison) -> str | None:
    """The differences of the means; None where no metric is scored in both runs."""
    both = [one for one in found.metrics if one.difference is not None]
    return to_svg(comparison_chart(both, label="B - A")) if both else None
