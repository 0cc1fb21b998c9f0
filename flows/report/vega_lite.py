"""Charts as Vega-Lite specifications, which pages and notebooks draw, and as files.

Rows of data have the text that is read aloud of a mark as `told`, and the address that it leads to
as `link`. Texts are values of data and titles, never names of fields or expressions.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import quoteattr

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.files import checked_path, faults_of_writing
from claimflow.flows.report.formatting import escape_controls

MARK: Final = "#3b82c4"
"""The colour of marks, which stands out from white and black (contrast 4.0 and 5.2)."""

Part = dict[str, Any]
"""A part of a specification."""

_SCHEMA: Final = "https://vega.github.io/schema/vega-lite/v6.json"
_MIME: Final = "application/vnd.vegalite.v6+json"
_CONVERTED: Final = "6.4"
"""The version of Vega-Lite that `vl_convert` draws with: the newest that all its releases have."""


def _config(ink: str) -> Part:
    """How charts look: text and axes in one colour, no frame and no background."""
    return {
        "background": None,
        "font": "sans-serif",
        "view": {"stroke": None},
        "text": {"color": ink, "fontSize": 11},
        "title": {
            **dict.fromkeys(("color", "subtitleColor"), ink),
            "anchor": "start",
            "frame": "bounds",
            "offset": 10,
            "fontSize": 13,
            "subtitleFontSize": 11,
            "limit": 640,
        },
        "axisX": {"titleLimit": {"expr": "width"}},
        "axis": {
            **dict.fromkeys(
                ("labelColor", "titleColor", "domainColor", "tickColor", "gridColor"), ink
            ),
            "gridOpacity": 0.15,
            "labelFontSize": 11,
            "labelLimit": 200,
            "titleFontSize": 11,
            "titleFontWeight": "normal",
            "titleLimit": 400,
        },
        "legend": {
            **dict.fromkeys(("labelColor", "titleColor"), ink),
            "labelFontSize": 11,
            "titleFontSize": 11,
            "titleFontWeight": "normal",
        },
    }


class Chart:
    """A chart: `about` is read aloud, and stands in its place where no script draws it.

    `form` says in a word or two what is drawn, such as `histogram`. `spec` is its Vega-Lite
    specification, in which text has no control characters. A notebook shows it by Vega-Lite, or as
    SVG where the extra `charts` is installed.
    """

    def __init__(
        self,
        form: str,
        about: str,
        size: tuple[int, int],
        layers: Sequence[Part],
        **more: Any,
    ) -> None:
        width, height = size
        self.form: Final = form
        self.about: Final = escape_controls(about)
        self.spec: Part = _escaped(
            {
                "$schema": _SCHEMA,
                "description": about,
                "width": width,
                "height": height,
                **more,
                "layer": list(layers),
                # Text and axes take the colour of the page.
                "config": _config("currentColor"),
            }
        )

    def titled(self, title: str, *lines: str) -> "Chart":
        """This chart with a title and lines below it, for a place that has no heading."""
        found = copy(self)
        found.spec = self.spec | {"title": _escaped({"text": title, "subtitle": lines})}
        return found

    def __repr__(self) -> str:
        title = self.spec.get("title")
        words = "; ".join([title["text"], *title["subtitle"]]) if title else self.about
        return f"<Chart: {words} ({self.form})>"

    def save(self, path: str | Path) -> Path:
        """Write the chart as SVG, PNG or JSON, by the suffix of `path`; returns the path.

        Raises `InputError` for another suffix, where the file cannot be written, and for SVG and
        PNG where the extra `charts` is not installed.
        """
        target = checked_path("path", path, "give the path of the file to write")
        if fault := ending_fault(target):
            raise InputError([fault])
        content = self.encoded(target.suffix.lower())
        with faults_of_writing(target):
            target.write_bytes(content)
        return target

    def encoded(self, ending: str) -> bytes:
        """The content of a file with this ending, one of `ENDINGS`.

        JSON is the specification. SVG has no script and a ground of its own, which is dark where
        the reader prefers dark pages; PNG is on white, at twice its size. Raises `InputError` for
        these two where the extra `charts` is not installed.
        """
        if ending == ".json":
            return json.dumps(self.spec, ensure_ascii=False, indent=2).encode()
        try:
            import vl_convert
        except ImportError:
            what = "SVG and PNG plots need claimflow[charts]"
            hint = "run: pip install 'claimflow[charts]', or name a file that ends in .json"
            raise InputError([Fault("plot", what, hint)]) from None
        if ending == ".png":
            black = self.spec | {"background": "white", "config": _config("black")}
            drawn: bytes = vl_convert.vegalite_to_png(black, _CONVERTED, scale=2)
            return drawn
        svg: str = vl_convert.vegalite_to_svg(self.spec | {"background": _PAPER}, _CONVERTED)
        # Vega names the element that holds a picture, which a file lacks.
        named = f'role="graphics-document" aria-label={quoteattr(self.about)}'
        start = f'<svg color="{_INK}" {named} '
        return svg.replace("<svg ", start, 1).replace(">", f">{_DARK}", 1).encode()

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """What a notebook may show."""
        found = {_MIME: self.spec, "text/plain": repr(self)}
        with suppress(InputError):
            found["image/svg+xml"] = self.encoded(".svg").decode()
        return found


_PAPER, _INK = "#ffffff", "#1b1f24"

_DARK: Final = (
    f'<style>@media (prefers-color-scheme: dark) {{svg[color="{_INK}"] {{color: #e6eaef}} '
    f'svg[color="{_INK}"] > rect[fill="{_PAPER}"] {{fill: #14181d}}}}</style>'
)
"""Makes the ground of an SVG dark and its ink light, in the colours of the pages."""

ENDINGS: Final = (".svg", ".png", ".json")
"""The endings of files that a chart can be written to."""


def ending_fault(path: Path) -> Fault | None:
    """What is wrong with the name of a file that a chart is to be written to."""
    if path.suffix.lower() in ENDINGS:
        return None
    hint = "let its name end in .svg, .png or .json"
    return Fault(str(path), "is neither SVG, PNG nor JSON", hint)


_INHERITED: Final = frozenset(
    (
        *("__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__"),
        *("__proto__", "constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable"),
        *("toLocaleString", "toString", "valueOf"),
    )
)
"""Names that every object of JavaScript has. Vega looks texts up in objects, and finds these."""

_JOINER: Final = "\u2060"
"""A character without width, which makes another text of such a name."""


def _escaped(value: Any) -> Any:
    """The value with control characters of texts replaced, and texts that Vega can draw."""
    if isinstance(value, str):
        return f"{value}{_JOINER}" if value in _INHERITED else escape_controls(value)
    if isinstance(value, dict):
        return {name: _escaped(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(one) for one in value]
    return value


def layer(
    kind: str, encoding: Part | None = None, *, where: str = "", told: bool = False, **looks: Any
) -> Part:
    """Marks of the rows that the expression `where` lets through; `told` ones are read aloud.

    `encoding` is added to that of the chart; `looks` are properties of the marks.
    """
    described = {"description": {"field": "told", "type": "nominal"}} if told else {}
    found: Part = {"mark": {"type": kind, "aria": told, **looks}}
    found["encoding"] = {**(encoding or {}), **described}
    return found | ({"transform": [{"filter": where}]} if where else {})


def marks(kind: str, encoding: Part | None = None, **looks: Any) -> Part:
    """A layer in the colour of marks."""
    return layer(kind, encoding, color=MARK, opacity=1, **looks)


def intervals(encoding: Part, *, thickness: int) -> Part:
    """Lines over the intervals, from `low` to `high`, of the rows that have one."""
    known = "isValid(datum.low)"
    return layer("rule", encoding, where=known, color=MARK, opacity=0.6, size=thickness)


def dashed(encoding: Part, rows: Sequence[Part], dash: Sequence[int] = (4, 3)) -> Part:
    """Dashed lines, one for each of `rows`."""
    drawn = layer("rule", encoding, color="currentColor", strokeDash=list(dash), opacity=0.7)
    return drawn | {"data": {"values": list(rows)}}


def links(kind: str, encoding: Part | None = None, **looks: Any) -> Part:
    """Invisible marks that lead on, which can be large enough for a finger."""
    led = {**(encoding or {}), "href": {"field": "link", "type": "nominal"}}
    return layer(kind, led, where="datum.link", told=True, fillOpacity=0, **looks)


def numbers(field: str, title: str | None, values: Sequence[float | None], **axis: Any) -> Part:
    """An axis of numbers over the values, which need not begin at 0.

    Where all of them are `int`, the labels are whole numbers.
    """
    known = [value for value in values if value is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    looks = {"tickCount": 6, "format": ",.6~g", "grid": True, **axis}
    scale: Part = {"zero": False, "nice": looks["tickCount"]}
    if known and all(isinstance(value, int) for value in known):
        looks |= _whole(int(low), int(high))
    if high - low < 1e-9 * max(abs(low), abs(high), 1e-3):
        around = abs(low) / 10 or 0.5
        scale = {"zero": False, "domain": [low - around, high + around]}
    return {"field": field, "type": "quantitative", "title": title, "scale": scale, "axis": looks}


def _whole(low: int, high: int) -> Part:
    """How an axis looks that counts: no label between two whole numbers."""
    looks: Part = {"tickMinStep": 1, "format": ",d"}
    if high - low <= 6:
        # The Vega of `vl_convert` makes steps that are shorter than `tickMinStep`.
        looks["values"] = list(range(low, high + 1))
    return looks


ROW: Final = 24
"""Pixels of a row with a name beside it."""

LINE: Final = 14
"""Pixels from one slanted name to the next."""


IN_ORDER: Final = {"field": "at", "type": "quantitative"}
"""Joins the points of a line as the rows are numbered."""


def told_number(value: float) -> str:
    """A number in the text that is read aloud of a mark: up to three digits after the point.

    One that is near 0 has three significant digits, and a huge one a power of ten.
    """
    size = abs(value)
    if _TINY < size < 0.01:
        text = f"{value:.3g}"
    elif size >= 1e15:
        text = f"{value:.6g}"
    else:
        text = f"{round(value, 3) + 0:,.3f}".rstrip("0").rstrip(".")
    return text.replace("-", "\u2212")


_TINY: Final = 1e-12
"""What is closer to 0 is an error of rounding."""


def names(field: str, title: str | None, texts: Sequence[str], **axis: Any) -> Part:
    """An axis of texts that differ, evenly spaced in the given order."""
    scale = {"type": "band", "domain": list(texts), "padding": 0}
    looks = {"grid": False, "labelOverlap": False, **axis}
    return {"field": field, "type": "ordinal", "title": title, "scale": scale, "axis": looks}


def slanted_names(field: str, title: str | None, texts: Sequence[str]) -> Part:
    """As `names`, below a plot: where they would overlap, every second one, or fewer, is shown.

    The last one is always shown.
    """
    last = len(texts) - 1
    shown = f"({last} - round(datum.index * {last})) % ceil({LINE * len(texts)} / width) == 0"
    ticks = {"condition": {"test": shown, "value": 1}, "value": 0}
    label = f"{shown} ? datum.label : ''"
    return names(field, title, texts, labelAngle=-40, labelExpr=label, tickOpacity=ticks)


def ends_of_names(field: str, texts: Sequence[str], *, letters: int) -> Part:
    """As `names`, below a small plot: the first and the last one, each by its first `letters`.

    Where these are closer than 140 pixels, the first word of each is shown.
    """
    cut = f"slice(datum.label, 0, {letters})"
    apart = f"width * {len(texts) - 1} / {max(len(texts), 1)}"
    label = f"{apart} < 140 ? split({cut}, ' ')[0] : {cut}"
    align = {"expr": "datum.index ? 'right' : 'left'"}
    looks = {"labelAngle": 0, "labelExpr": label, "labelAlign": align}
    ends = [*texts[:1], *texts[1:][-1:]]
    return names(field, None, texts, values=ends, ticks=False, **looks)
