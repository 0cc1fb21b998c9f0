"""How every plot looks, on light pages and on dark ones."""

from typing import Final

import altair as alt

Chart = alt.Chart | alt.LayerChart

MARK: Final = "#3b82c4"
"""Of marks: stands out from white and from black (contrast 4.0 and 5.2)."""

_INK: Final = "currentColor"
"""Of words and lines: the colour of the text that the plot stands in, black where there is none."""


def styled(chart: Chart, *, about: str, width: int, height: int) -> Chart:
    """The chart in our style: `width` by `height` pixels within its axes, told as `about` aloud."""
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
