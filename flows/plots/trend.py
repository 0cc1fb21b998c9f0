"""A metric over the runs."""

from collections.abc import Sequence
from typing import NamedTuple

import altair as alt

from claimflow.flows.plots.style import MARK, Chart, styled


class Point(NamedTuple):
    """The mean of a metric in one run, with its 95 % interval; None where there is none.

    `label` names the run on the axis and is its own among the points of a chart.
    """

    label: str
    mean: float | None
    low: float | None = None
    high: float | None = None


def trend(
    points: Sequence[Point], *, label: str = "mean", width: int = 480, height: int = 160
) -> Chart:
    """The means of runs in the order given, evenly spaced, each with its interval.

    A run without a mean keeps its place and breaks the line. `label` is the word beside the
    axis, which need not begin at 0; the size is in pixels, axes not counted.
    """
    rows = [point._asdict() for point in points]
    axis = alt.Axis(labelAngle=-40, labelOverlap=True)
    order = alt.Scale(domain=[point.label for point in points])
    runs = alt.X("label:O", scale=order, title=None, axis=axis)
    base = alt.Chart(alt.InlineData(values=rows)).encode(x=runs)
    mean = alt.Y("mean:Q", title=label, scale=alt.Scale(zero=False))
    intervals = base.mark_rule(color=MARK, opacity=0.6, strokeWidth=2).encode(
        y=alt.Y("low:Q", title=label, scale=alt.Scale(zero=False)), y2="high:Q"
    )
    line = base.mark_line(color=MARK, point={"color": MARK, "size": 40}).encode(y=mean)
    about = f"{label} over the runs, with 95 % intervals; runs: {len(points):,}"
    return styled(intervals + line, about=about, width=width, height=height)
