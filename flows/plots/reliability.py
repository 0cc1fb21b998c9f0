"""Whether probabilities can be believed."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import altair as alt

from claimflow.flows.plots.style import MARK, Chart, styled

_WHOLE: Final = alt.Scale(domain=[0, 1])


class Believed(NamedTuple):
    """Rows of about one probability: their mean `said`, the `share` that is entailed, how many.

    `low` and `high` bound the 95 % interval of the share.
    """

    said: float
    share: float | None
    low: float | None
    high: float | None
    rows: int


def reliability(points: Sequence[Believed], *, label: str = "p entailed", side: int = 220) -> Chart:
    """The share that people call entailed over the probability of it, beside the diagonal.

    Points on the diagonal can be believed; below it the judge says so too often. The larger a
    point, the more rows. `label` is the word beneath; `side` is in pixels, axes not counted.
    """
    rows = [point._asdict() for point in points]
    share = "entailed by people"
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        x=alt.X("said:Q", title=label, scale=_WHOLE)
    )
    ends = alt.InlineData(values=[{"said": 0, "share": 0}, {"said": 1, "share": 1}])
    diagonal = (
        alt.Chart(ends)
        .mark_line(color="currentColor", strokeDash=[4, 3], opacity=0.7)
        .encode(x="said:Q", y=alt.Y("share:Q", title=share, scale=_WHOLE))
    )
    intervals = base.mark_rule(color=MARK, strokeWidth=2, opacity=0.6).encode(
        y=alt.Y("low:Q", title=share), y2="high:Q"
    )
    marks = base.mark_point(color=MARK, filled=True, opacity=1).encode(
        y=alt.Y("share:Q", title=share),
        size=alt.Size("rows:Q", legend=None, scale=alt.Scale(range=[20, 200], domainMin=0)),
    )
    number = sum(point.rows for point in points)
    about = f"Share entailed by people over {label}, {number:,} rows, with 95 % intervals"
    return styled(diagonal + intervals + marks, about=about, width=side, height=side)
