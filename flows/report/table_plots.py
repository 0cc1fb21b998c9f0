"""Charts of the columns of any table: bars, points, and lines that join them.

Whole numbers are `int`: their axis has no label between two of them.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from claimflow.flows.report.formatting import escape_controls, shorten
from claimflow.flows.report.vega_lite import (
    IN_ORDER,
    ROW,
    Chart,
    Part,
    links,
    marks,
    names,
    numbers,
    slanted_names,
    told_number,
)

LOOKS: Final = (
    ("#3b82c4", "circle"),
    ("#c2571a", "square"),
    ("#2e8b57", "triangle-up"),
    ("#b0499a", "diamond"),
    ("#a67c00", "cross"),
    ("#1f8a96", "triangle-down"),
    ("#d04a4a", "M-1,-1L1,-1L-1,1L1,1Z"),
    ("#7f6bd1", "triangle-right"),
    ("#7a7f87", "M-1,-1L-1,1L1,-1L1,1Z"),
    ("#6b8e23", "triangle-left"),
)
"""Colour and shape of each series, at most ten; all stand out from white and from a dark page."""


class Series(NamedTuple):
    """What a table is divided by: the title, and the name for each point or bar."""

    title: str
    names: Sequence[str]


def bar_chart(
    bars: Sequence[tuple[str, float]],
    *,
    label: str,
    title: str | None = None,
    series: Series | None = None,
    leads_to: Sequence[str | None] = (),
) -> Chart:
    """A bar for each name and finite value, from 0, in the given order.

    `label` is the title of the axis of values and `title` of that of names; a row of the plot is 24
    pixels high, or higher. With `series`, of at most ten names, the bars of equal names stand in
    one row; each has a colour and, at its end, a sign, which a legend explains. `leads_to` has the
    address for each bar, or None.
    """
    named = [name for name, _ in bars]
    shown = _shown_names(series.names) if series else [""] * len(bars)
    beside = _differing_rows(named, shown)
    rows: list[Part] = [
        {
            "name": one,
            "value": value,
            "told": f"{name}{', ' if of else ''}{of}: {told_number(value)}",
        }
        for one, (name, value), of in zip(beside, bars, shown, strict=True)
    ]
    led = _lead_on(rows, leads_to)
    places = list(dict.fromkeys(beside))
    y = names("name", title, places)
    y["scale"] |= {"padding": 0.3}
    x = numbers("value", label, [0, *(value for _, value in bars)])
    looks: Part = {}
    signs: Part = {}
    height = ROW
    if series:
        looks, signs = _series_looks(rows, series, shown)
        if len(places) < len(rows):
            every = list(dict.fromkeys(shown))
            offset = {"yOffset": {"field": "series", "type": "nominal", "sort": every}}
            looks, signs = looks | offset, signs | offset
            height = max(ROW, _GROUPED * len(every))
    from_0 = {"x2": {"datum": 0}} | looks
    layers = [marks("bar", from_0, where="!datum.link", told=True)]
    if led:
        # The whole row can be hit, since a bar may be a pixel wide.
        whole = {"x": {"value": 0}, "x2": {"value": "width"}}
        row = links("rect", whole | {key: looks[key] for key in looks if key == "yOffset"})
        layers += [marks("bar", from_0, where="datum.link"), row]
    if series:
        # Beyond the end of its bar, where its shape is seen.
        for where, beyond in (("datum.value >= 0", 8), ("datum.value < 0", -8)):
            sign = marks("point", signs, where=where, size=60, filled=True, xOffset=beyond)
            layers.append(sign)
    return Chart(
        "bars",
        f"{label}; bars: {len(bars):,}{_among(series, shown)}",
        (360, height * max(len(places), 1)),
        layers,
        data={"values": rows},
        encoding={"x": x, "y": y},
    )


_GROUPED: Final = 16
"""Pixels of the place of each bar in a row of several, the space between rows included."""


def _differing_rows(named: Sequence[str], series: Sequence[str]) -> list[str]:
    """The names as `differing` has them, in which those of two series may be equal."""
    of_series: dict[str, list[int]] = {}
    for at, of in enumerate(series):
        of_series.setdefault(of, []).append(at)
    found = list(named)
    for places in of_series.values():
        for at, name in zip(places, differing([named[at] for at in places]), strict=True):
            found[at] = name
    return found


def _among(series: Series | None, shown: Sequence[str]) -> str:
    """How many series a chart has, in the text that is read aloud of it."""
    return f"; {series.title}: {len(set(shown)):,}" if series else ""


def _lead_on(rows: Sequence[Part], addresses: Sequence[str | None]) -> bool:
    """Give each row its address; returns whether there is one."""
    for row, address in zip(rows, addresses, strict=False):
        if address is not None:
            row["link"] = address
    return any(addresses)


def differing(texts: Sequence[str]) -> list[str]:
    """The texts, in which one that came before has a number behind it: `a`, `b`, `a (2)`."""
    found: dict[str, None] = {}
    for name in map(escape_controls, texts):
        one, times = name, 1
        while one in found:
            times += 1
            one = f"{name} ({times})"
        found[one] = None
    return list(found)


def xy_chart(
    x: Sequence[float] | Sequence[datetime] | Sequence[str],
    y: Sequence[float],
    *,
    titles: tuple[str, str],
    joined: bool,
    series: Series | None = None,
    leads_to: Sequence[str | None] = (),
) -> Chart:
    """A point for each pair of finite values, `joined` in the given order or not.

    `x` are numbers, times in UTC or names, which are evenly spaced; `titles` are those of the two
    axes. The axes need not begin at 0. With `series`, of at most ten names, the points of each name
    have a colour, a shape and a line of their own, which a legend explains. `leads_to` has the
    address for each point, or None.
    """
    places, along = _along(x, titles[0], shared=series is not None)
    named = [one if isinstance(one, str) else _told(one) for one in x]
    shown = _shown_names(series.names) if series else [""] * len(named)
    rows: list[Part] = [
        {
            "at": at,
            "x": place,
            "y": value,
            "told": f"{of}{', ' if of else ''}{titles[0]} {name}: {titles[1]} {told_number(value)}",
        }
        for at, (place, name, value, of) in enumerate(zip(places, named, y, shown, strict=True))
    ]
    led = _lead_on(rows, leads_to)
    colour, looks = _series_looks(rows, series, shown) if series else ({}, {})
    kind, size = ("point", 60) if series else ("circle", 30)
    layers = [marks("line", {"order": IN_ORDER, **colour}, strokeWidth=2)] if joined else []
    layers += [marks(kind, looks, where="!datum.link", told=True, size=size, filled=True)]
    if led:
        layers += [marks(kind, looks, where="datum.link", size=size, filled=True)]
        layers += [links("circle", size=150)]
    return Chart(
        "line" if joined else "points",
        f"{titles[1]} by {titles[0]}; points: {len(rows):,}{_among(series, shown)}",
        (640, 240),
        layers,
        data={"values": rows},
        encoding={"x": along, "y": numbers("y", titles[1], y)},
    )


def _shown_names(texts: Sequence[str]) -> list[str]:
    """The names as charts show them, shortened; those of two differing ones differ."""
    every = list(dict.fromkeys(texts))
    # Cut here, since Vega would cut between the two halves of an emoji, which no file can have.
    short = differing([shorten(one, 40) for one in every])
    shown = dict(zip(every, short, strict=True))
    return [shown[one] for one in texts]


def _series_looks(rows: Sequence[Part], series: Series, shown: Sequence[str]) -> tuple[Part, Part]:
    """How lines or bars, and how points of the series look, whose names the rows get."""
    for row, name in zip(rows, shown, strict=True):
        row["series"] = name
    every = list(dict.fromkeys(shown))
    # Below the plot, since names beside it would make it wider than a page.
    legend = {"orient": "bottom", "columns": 2, "labelLimit": 0, "symbolSize": 80}
    of: Part = {"field": "series", "type": "nominal", "title": series.title, "legend": legend}
    colours, shapes = zip(*LOOKS, strict=True)
    colour, shape = (
        of | {"scale": {"domain": every, "range": list(found[: len(every)])}}
        for found in (colours, shapes)
    )
    return {"color": colour}, {"color": colour, "shape": shape}


_EPOCH: Final = datetime(1970, 1, 1)


def _along(
    values: Sequence[float] | Sequence[datetime] | Sequence[str],
    title: str,
    *,
    shared: bool,
) -> tuple[Sequence[float | str], Part]:
    """The values as they stand in rows of data, and their horizontal axis.

    Equal names have one place where it is `shared`, else one each.
    """
    times = [one for one in values if isinstance(one, datetime)]
    if times:
        axis = {"tickCount": 6, "labelExpr": _TIMES, "labelOverlap": True}
        along = {"field": "x", "type": "temporal", "title": title, "scale": {"type": "utc"}}
        return [(one - _EPOCH) / timedelta(milliseconds=1) for one in times], along | {"axis": axis}
    found = [one for one in values if isinstance(one, int | float)]
    if found:
        return found, numbers("x", title, found)
    texts = [str(one) for one in values]
    places = _shown_names(texts) if shared else differing(texts)
    return places, slanted_names("x", title, list(dict.fromkeys(places)))


_OF_DAY: Final = (
    "utcmilliseconds(datum.value) ? '%H:%M:%S.%L' : utcseconds(datum.value) ? '%H:%M:%S' : '%H:%M'"
)

_TIMES: Final = (
    "utchours(datum.value) || utcminutes(datum.value) || utcseconds(datum.value)"
    f" || utcmilliseconds(datum.value) ? [utcFormat(datum.value, {_OF_DAY}),"
    " utcFormat(datum.value, '%Y-%m-%d')] : utcFormat(datum.value, '%Y-%m-%d')"
)
"""The label of a time on an axis: the date, below the time of day unless that is midnight."""


def _told(value: datetime | float) -> str:
    if isinstance(value, datetime):
        return value.isoformat(" ", "seconds").removesuffix(" 00:00:00")
    return told_number(value)
