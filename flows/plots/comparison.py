"""Two runs side by side, metric by metric."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import altair as alt

from claimflow.flows.engine.compare.metrics import MetricDifference
from claimflow.flows.plots.style import MARK, Chart, styled

_ROW: Final = 24


class Apart(NamedTuple):
    """How far two runs lie apart in one metric, b less a, with the 95 % interval.

    None where there is none. `metric` is its own among those of a chart.
    """

    metric: str
    difference: float | None
    low: float | None = None
    high: float | None = None


def apart(metrics: Iterable[MetricDifference]) -> list[Apart]:
    """What a comparison of two runs found of each metric; none that is not in both is left out."""
    return [
        Apart(one.metric, one.difference.mean, one.difference.low, one.difference.high)
        if one.difference
        else Apart(one.metric, None)
        for one in metrics
    ]


def comparison(
    metrics: Sequence[Apart], *, label: str = "difference of the means", width: int = 360
) -> Chart:
    """Each metric's difference and its interval against a line at 0, in the order given.

    `label` is the word beneath; `width` is in pixels, axes not counted, and each metric takes
    24 of height. A metric without a difference keeps its row, which is empty.
    """
    rows = [one._asdict() for one in metrics]
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
    return styled(layers, about=about, width=width, height=_ROW * max(len(metrics), 1))
