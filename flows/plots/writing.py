"""A chart as the bytes of a picture."""

from typing import Final
from xml.sax.saxutils import quoteattr

import vl_convert

from claimflow.flows.plots.style import Chart

_SHARP: Final = 2.0
"""Pixels of a PNG for each of a chart, so that it is sharp on screens of today."""


def svg(chart: Chart) -> str:
    """The chart as one `<svg>` element: no script, no style attribute, nothing to fetch.

    Words and lines are in `currentColor`, so that within a page they follow its text. Words in
    the chart are escaped. A screen reader is told what it is about, and may go from mark to mark.
    """
    whole = chart.to_dict()
    drawn: str = vl_convert.vegalite_to_svg(whole, allowed_base_urls=[])
    name = quoteattr(whole["description"])
    aloud = f'role="graphics-document" aria-roledescription="chart" aria-label={name}'
    return drawn.replace("<svg ", f"<svg {aloud} ", 1)


def png(chart: Chart) -> bytes:
    """The chart as a PNG on white, at twice its size."""
    white = chart.to_dict() | {"background": "white"}
    drawn: bytes = vl_convert.vegalite_to_png(white, scale=_SHARP, allowed_base_urls=[])
    return drawn
