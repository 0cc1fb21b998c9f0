"""How the scores of a metric lie."""

from collections.abc import Sequence
from typing import Final

import altair as alt
import numpy as np

from claimflow.flows.plots.style import MARK, Chart, styled

_BINS: Final = 20


def distribution(
    values: Sequence[float], *, label: str = "score", width: int = 300, height: int = 100
) -> Chart:
    """How many of `values` lie where: 20 bars from 0 to 1, or over their range where it is wider.

    Each bar has its lower end and lacks its upper one, but for the last. `label` is the word
    beneath; the size is in pixels, axes not counted.
    """
    within = all(0 <= value <= 1 for value in values)
    # Ends of their own rather than numpy's: 0.15 is where the fourth bar begins, not beside it.
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
    return styled(chart, about=about, width=width, height=height)
