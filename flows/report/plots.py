"""Charts of runs as SVG, and their rendering as PNG."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal, NamedTuple
from xml.sax.saxutils import escape, quoteattr

import numpy as np
from rich.cells import cell_len, set_cell_size

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.quality.calibration import CorrectedStep
from claimflow.flows.quality.comparison import Comparison
from claimflow.flows.quality.corrected_rates import Bin
from claimflow.flows.quality.metric_differences import MetricDifference
from claimflow.flows.report.formatting import escape_controls
from claimflow.flows.report.run_document import (
    PastMean,
    named_metrics,
    past_means,
    scored_values,
)
from claimflow.flows.store.store import Store

MARK: Final = "#3b82c4"
"""The colour of marks, which stands out from white and black (contrast 4.0 and 5.2)."""

_LETTER: Final = 6.0
"""The width in pixels of a letter of a label, on average; wide characters take two."""

_LINE: Final = 14.0
"""Pixels from one line of text to the next."""

_LONGEST: Final = 33
"""Letters after which a label is cut."""

_SLANT: Final = 40
"""Degrees by which the labels of runs rise."""


class Axis(NamedTuple):
    """One axis: `ticks` are places in pixels along it with their labels."""

    title: str | None
    ticks: list[tuple[float, str]]
    grid: bool = True
    slanted: bool = False


class Chart(NamedTuple):
    """Marks in a plot of `width` by `height` pixels with its two axes.

    `about` is read aloud. `marks` are SVG elements with the origin at the top left of the plot.
    """

    about: str
    width: int
    height: int
    x: Axis
    y: Axis
    marks: list[str]

    def _repr_svg_(self) -> str:
        """The picture in a notebook."""
        return to_svg(self)


class _Scale(NamedTuple):
    """Places of numbers in pixels: `low` is at `start`, `high` at `end`."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def over(
        cls, values: Sequence[float | None], start: float, end: float, ticks: int
    ) -> "tuple[_Scale, list[tuple[float, str]]]":
        """The scale over the values, widened to round numbers, and about so many ticks."""
        known = [value for value in values if value is not None] or [0.0, 1.0]
        low, high = min(known), max(known)
        if high - low < 1e-9 * max(abs(low), abs(high), 1e-3):
            around = abs(low) / 10 or 0.5
            low, high = low - around, high + around
        step = _round_step((high - low) / ticks)
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        scale = cls(first * step, last * step, start, end)
        numbers = [place * step for place in range(first, last + 1)]
        return scale, [(scale(number), _number(number)) for number in numbers]

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def _round_step(least: float) -> float:
    """The least number of 1, 2 and 5 times a power of ten that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(times * power for times in (1, 2, 5, 10) if times * power >= least * (1 - 1e-9))


def _number(value: float) -> str:
    return f"{round(value, 12) + 0:,.6g}".replace("-", "\u2212")


def _with_interval(value: float, low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return _number(value)
    return f"{_number(value)}, 95 % interval {_number(low)} to {_number(high)}"


def _element(name: str, label: str = "", **attributes: float | str | None) -> str:
    """An SVG element; one with a label is a mark that screen readers can go to."""
    given = {key.replace("_", "-"): value for key, value in attributes.items() if value is not None}
    written = "".join(
        f" {key}={quoteattr(f'{value:.5g}' if isinstance(value, float) else str(value))}"
        for key, value in given.items()
    )
    if label:
        name_aloud = quoteattr(escape_controls(label))
        written += f' role="graphics-symbol" aria-label={name_aloud}'
    return f"<{name}{written}/>"


def _link(address: str, label: str, drawing: str) -> str:
    name = quoteattr(escape_controls(label))
    return f"<a href={quoteattr(address)} aria-label={name}>{drawing}</a>"


def _point(x: float, y: float, label: str, *, area: float = 60) -> str:
    return _element("circle", label, cx=x, cy=y, r=math.sqrt(area / math.pi), fill=MARK)


def _rule(x1: float, y1: float, x2: float, y2: float, *, width: int) -> str:
    return _element(
        "line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=MARK, stroke_width=width, opacity=0.6
    )


def _dashed(x1: float, y1: float, x2: float, y2: float) -> str:
    dashes = "4 3"
    return _element(
        "line",
        x1=x1,
        y1=y1,
        x2=x2,
        y2=y2,
        stroke="currentColor",
        stroke_dasharray=dashes,
        opacity=0.7,
    )


def _text(text: str, x: float, y: float, anchor: str, *, turn: int = 0) -> str:
    turned = f' transform="rotate({turn} {x:.5g} {y:.5g})"' if turn else ""
    shown = escape(escape_controls(text))
    return f'<text x="{x:.5g}" y="{y:.5g}" text-anchor="{anchor}"{turned}>{shown}</text>'


def _cut(text: str, longest: int = _LONGEST) -> str:
    flat = " ".join(text.split())
    return flat if cell_len(flat) <= longest else set_cell_size(flat, longest - 1).rstrip() + "…"


def to_svg(chart: Chart) -> str:
    """The chart as one `<svg>` element without scripts, style attributes or external resources.

    Text and axes are in `currentColor`, so that they take the text colour of a page. Text in the
    chart is escaped. Screen readers get a description, and can go from mark to mark.
    """
    x, y, width, height = chart.x, chart.y, chart.width, chart.height
    below = [(place, _cut(label)) for place, label in x.ticks]
    beside = [(place, _cut(label)) for place, label in y.ticks]
    slant = math.radians(_SLANT)
    down, left = _LINE, 0.0
    if x.slanted:
        lengths = [(place, cell_len(label) * _LETTER) for place, label in below]
        down = max((length * math.sin(slant) for _, length in lengths), default=0) + _LINE
        left = max((length * math.cos(slant) - place for place, length in lengths), default=0)
    widest = max((cell_len(label) for _, label in beside), default=0) * _LETTER
    margin = max(left, widest + 10 + (_LINE if y.title else 0)) + 4
    right = max((cell_len(label) * _LETTER / 2 for _, label in below[-1:]), default=0)
    titles = [_cut(axis.title or "", 2 * _LONGEST) for axis in (x, y)]
    top = max(8, (cell_len(titles[1]) * _LETTER - height) / 2)
    parts = []
    for place, label in below:
        if x.grid:
            parts.append(_axis_line(place, 0, place, height, opacity=0.15))
        parts.append(_axis_line(place, height, place, height + 4))
        turned = (place + 3, height + 12, "end") if x.slanted else (place, height + 15, "middle")
        parts.append(_text(label, *turned, turn=-_SLANT if x.slanted else 0))
    for place, label in beside:
        if y.grid:
            parts.append(_axis_line(0, place, width, place, opacity=0.15))
        parts.append(_axis_line(-4, place, 0, place))
        parts.append(_text(label, -7, place + 3.5, "end"))
    parts += [_axis_line(0, height, width, height), _axis_line(0, 0, 0, height), *chart.marks]
    if titles[0]:
        parts.append(_text(titles[0], width / 2, height + down + 18, "middle"))
        down += _LINE + 4
    if titles[1]:
        parts.append(_text(titles[1], -widest - 14, height / 2, "middle", turn=-90))
    whole = (round(margin + width + max(right, 8)), round(top + height + max(down, top) + 8))
    drawing = (
        f'<g transform="translate({margin:.5g} {top:.5g})" fill="currentColor" '
        f'font-family="sans-serif" font-size="11">{"".join(parts)}</g>'
    )
    return _svg(chart, drawing, *whole)


def _svg(chart: Chart, drawing: str, width: int, height: int) -> str:
    return (
        f'<svg role="graphics-document" aria-roledescription="chart" '
        f"aria-label={quoteattr(escape_controls(chart.about))} "
        f'xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">{drawing}</svg>'
    )


def _axis_line(x1: float, y1: float, x2: float, y2: float, *, opacity: float | None = None) -> str:
    return _element("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke="currentColor", opacity=opacity)


_SHARP: Final = 2.0
"""Pixels of a PNG per pixel of the chart, for high-resolution screens."""


def to_png(chart: Chart) -> bytes:
    """The chart as a PNG on white, at twice its size.

    Raises `InputError` where the extra `charts` is not installed.
    """
    try:
        import vl_convert
    except ImportError:
        what = "PNG plots need claimflow[charts]"
        hint = "run: pip install 'claimflow[charts]', or name a file that ends in .svg"
        raise InputError([Fault("plot", what, hint)]) from None
    # What draws it knows neither the colour of a page nor a background.
    white = '<rect width="100%" height="100%" fill="white"/>'
    black = to_svg(chart).replace("currentColor", "black")
    drawn: bytes = vl_convert.svg_to_png(black.replace("<g ", f"{white}<g ", 1), scale=_SHARP)
    return drawn


_ROW: Final = 24


def comparison_chart(
    metrics: Sequence[MetricDifference], *, label: str = "difference of the means"
) -> Chart:
    """Each metric's difference, b - a, and its interval against a line at 0, in the given order.

    `label` is the title of the axis; each metric is 24 pixels high. A metric that is not scored in
    both runs has an empty row.
    """
    width, height = 360, _ROW * max(len(metrics), 1)
    known = [(at, one.metric, one.difference) for at, one in enumerate(metrics) if one.difference]
    ends = [end for *_, found in known for end in (found.mean, found.low, found.high)]
    x, ticks = _Scale.over([0.0, *ends], 0, width, 6)
    marks = [_dashed(x(0), 0, x(0), height)]
    for at, metric, found in known:
        y = _ROW * (at + 0.5)
        if found.low is not None and found.high is not None:
            marks.append(_rule(x(found.low), y, x(found.high), y, width=3))
        told = f"{metric}: {_with_interval(found.mean, found.low, found.high)}"
        marks.append(_point(x(found.mean), y, told))
    names = [(_ROW * (at + 0.5), one.metric) for at, one in enumerate(metrics)]
    about = f"{label} of two runs, with 95 % intervals; metrics: {len(metrics):,}"
    return Chart(about, width, height, Axis(label, ticks), Axis(None, names, grid=False), marks)


_BINS: Final = 20


def distribution_chart(
    values: Sequence[float],
    *,
    label: str = "score",
    width: int = 300,
    height: int = 100,
    leads_to: Callable[[float, float], str] | None = None,
) -> Chart:
    """A histogram: 20 bars from 0 to 1, or over the range of `values` where it is wider.

    A bar includes its lower end; only the last one includes its upper end. `label` is the title
    of the axis; the size is in pixels without axes. With `leads_to` a bar is a link to the address
    that this returns for its least and its greatest value.
    """
    within = all(0 <= value <= 1 for value in values)
    # Not numpy's edges: the fourth bar begins at exactly 0.15.
    nice = [place / _BINS for place in range(_BINS + 1)]
    counts, edges = np.histogram(values, nice if within else _BINS)
    most = max(int(counts.max()), 1)
    high = math.ceil(most / (step := math.ceil(_round_step(most / 3)))) * step
    x = _Scale(float(edges[0]), float(edges[-1]), 0, width)
    y = _Scale(0, high, height, 0)
    marks = []
    for low, up, count in zip(edges, edges[1:], counts, strict=False):
        told = f"{label}: {_number(low)} \u2013 {_number(up)}; samples: {count:,}"
        left, thick = x(low) + 0.5, x(up) - x(low) - 1
        linked = leads_to is not None and count
        bar = _element(
            "rect",
            "" if linked else told,
            x=left,
            y=y(count),
            width=thick,
            height=height - y(count),
            fill=MARK,
        )
        if leads_to is None or not count:
            marks.append(bar)
            continue
        last = up == edges[-1]
        inside = [one for one in values if low <= one and (one < up or last)]
        # The whole column can be hit, since a bar of one sample may be a pixel high.
        column = (
            f'<rect class="column" x="{left:.5g}" y="0" width="{thick:.5g}" height="{height}" '
            f'fill-opacity="0"/>'
        )
        marks.append(_link(leads_to(min(inside), max(inside)), told, bar + column))
    numbers = [x.low + (x.high - x.low) * place / 5 for place in range(6)]
    across = Axis(label, [(x(number), _number(number)) for number in numbers])
    up_to = Axis("samples", [(y(number), f"{number:,}") for number in range(0, high + 1, step)])
    about = f"Distribution of {label}; samples: {len(values):,}"
    return Chart(about, width, height, across, up_to, marks)


def reliability_chart(bins: Sequence[Bin], *, label: str = "p entailed") -> Chart:
    """A reliability diagram: the share that people call entailed, by predicted probability.

    Points on the diagonal are calibrated; below it the judge is overconfident. The size of a
    point grows with its rows. `label` is the title of the axis.
    """
    size, share = 220, "entailed by people"
    x, across = _Scale.over([0.0, 1.0], 0, size, 5)
    y, up = _Scale.over([0.0, 1.0], size, 0, 5)
    marks = [_dashed(0, size, size, 0)]
    most = max((one.n for one in bins), default=1)
    for one in bins:
        found = one.entailed
        if found.value is None:
            continue
        if found.low is not None and found.high is not None:
            marks.append(_rule(x(one.mean), y(found.low), x(one.mean), y(found.high), width=2))
        told = (
            f"{label}: {_number(one.mean)}; {share}: "
            f"{_with_interval(found.value, found.low, found.high)}; rows: {one.n:,}"
        )
        marks.append(_point(x(one.mean), y(found.value), told, area=20 + 180 * one.n / most))
    number = sum(one.n for one in bins)
    about = f"Share entailed by people over {label}, {number:,} rows, with 95 % intervals"
    return Chart(about, size, size, Axis(label, across), Axis(share, up), marks)


def bar_chart(bars: Sequence[tuple[str, float]], *, label: str, names: str | None = None) -> Chart:
    """A bar for each name and finite value, from 0, in the given order.

    `label` is the title of the axis of values and `names` of that of names; each bar is 24 pixels
    high.
    """
    width, height = 360, _ROW * max(len(bars), 1)
    x, ticks = _Scale.over([0.0, *(value for _, value in bars)], 0, width, 6)
    marks = []
    for at, (name, value) in enumerate(bars):
        left, right = sorted((x(0), x(value)))
        marks.append(
            _element(
                "rect",
                f"{name}: {_number(value)}",
                x=left,
                y=float(_ROW * at + 4),
                width=max(right - left, 1.0),
                height=float(_ROW - 8),
                fill=MARK,
            )
        )
    beside = [(_ROW * (at + 0.5), name) for at, (name, _) in enumerate(bars)]
    about = f"{label}; bars: {len(bars):,}"
    return Chart(about, width, height, Axis(label, ticks), Axis(names, beside, grid=False), marks)


def xy_chart(
    x: Sequence[float] | Sequence[datetime] | Sequence[str],
    y: Sequence[float],
    *,
    titles: tuple[str, str],
    joined: bool,
) -> Chart:
    """A point for each pair of finite values, `joined` in the given order or not.

    `x` are numbers, times or names, which are evenly spaced; `titles` are those of the two axes.
    The axes need not begin at 0.
    """
    width, height = 640, 240
    up, up_ticks = _Scale.over(y, height, 0, 6)
    places, across = _across(x, width)
    named = [_moment(one) if isinstance(one, datetime) else one for one in x]
    points = [(place, up(value)) for place, value in zip(places, y, strict=True)]
    marks = []
    if joined and points:
        line = "L".join(f"{place:.5g} {at:.5g}" for place, at in points)
        marks.append(_element("path", d=f"M{line}", fill="none", stroke=MARK, stroke_width=2))
    for (place, at), name, value in zip(points, named, y, strict=True):
        told = name if isinstance(name, str) else _number(name)
        marks.append(
            _point(place, at, f"{titles[0]} {told}: {titles[1]} {_number(value)}", area=30)
        )
    about = f"{titles[1]} by {titles[0]}; points: {len(points):,}"
    return Chart(
        about, width, height, across._replace(title=titles[0]), Axis(titles[1], up_ticks), marks
    )


def _across(
    values: Sequence[float] | Sequence[datetime] | Sequence[str], width: int
) -> tuple[list[float], Axis]:
    """The places of values along a horizontal axis, and the axis."""
    times = [one for one in values if isinstance(one, datetime)]
    if times:
        scale = _Scale(_seconds(min(times)), _seconds(max(times)), 0, width)
        if scale.low == scale.high:
            scale = scale._replace(low=scale.low - 1, high=scale.high + 1)
        ticks = [(scale(_seconds(one)), label) for one, label in _time_ticks(times)]
        return [scale(_seconds(one)) for one in times], Axis(None, ticks)
    numbers = [one for one in values if isinstance(one, int | float)]
    if numbers:
        scale, ticks = _Scale.over(numbers, 0, width, 6)
        return [scale(one) for one in numbers], Axis(None, ticks)
    apart = width / max(len(values), 1)
    places = [apart * (at + 0.5) for at in range(len(values))]
    every = max(1, math.ceil(_LINE / apart))
    names = [(place, str(one)) for place, one in zip(places, values, strict=True)][::every]
    return places, Axis(None, names, grid=False, slanted=True)


_EPOCH: Final = datetime(1970, 1, 1)

_DAY: Final = 86_400

_STEPS: Final = (
    *(1, 2, 5, 10, 30, 60, 120, 300, 600, 1800),
    *(3600, 2 * 3600, 6 * 3600, 12 * 3600, _DAY, 2 * _DAY, 7 * _DAY),
)
"""Seconds between the ticks of a short time."""

_MONTHS: Final = (1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200, 2400, 6000, 12_000, 24_000)
"""Months between the ticks of a longer time."""


def _seconds(moment: datetime) -> float:
    return (moment - _EPOCH).total_seconds()


def _moment(moment: datetime) -> str:
    return moment.isoformat(" ", "seconds").removesuffix(" 00:00:00")


def _time_ticks(times: Sequence[datetime]) -> list[tuple[datetime, str]]:
    """About six round times between the first and the last one, with their labels."""
    low, high = min(times), max(times)
    least = (high - low).total_seconds() / 6
    step = next((step for step in _STEPS if step >= least), None)
    if step is None:
        months = next(one for one in _MONTHS if one * 30 * _DAY >= least)
        first = -(-(low.year * 12 + low.month) // months)
        last = (high.year * 12 + high.month - 1) // months
        numbers = [place * months for place in range(first, last + 1)]
        starts = [datetime(one // 12, one % 12 + 1, 1) for one in numbers if one >= 12]
        return [(one, one.isoformat()[:7]) for one in starts]
    first, last = math.ceil(_seconds(low) / step), math.floor(_seconds(high) / step)
    ticks = [_EPOCH + timedelta(seconds=place * step) for place in range(first, last + 1)] or [low]
    letters = slice(0, 10) if step >= _DAY else slice(5, 16) if step >= 60 else slice(11, 19)
    return [(one, one.isoformat(" ", "seconds")[letters]) for one in ticks]


class GateLimit(NamedTuple):
    """A gate of a run: its rule, its outcome, and the mean at which it would be at its limit."""

    rule: str
    outcome: str
    line: float | None

    @property
    def sign(self) -> str:
        """The sign that stands beside the colour of an outcome."""
        return {"pass": "✓", "fail": "✗"}.get(self.outcome, "?")


class TrendDetail(NamedTuple):
    """What a trend may show of a run: where its point leads, a note beside it, and its gates."""

    link: str
    note: str
    gates: Sequence[GateLimit]


def trend_chart(
    means: Mapping[str, PastMean],
    *,
    label: str = "mean",
    width: int = 480,
    height: int = 160,
    details: Mapping[str, TrendDetail] | None = None,
) -> Chart:
    """The means of runs, by their names on the axis: evenly spaced, each with its interval.

    A run without a mean leaves a gap in the line. `label` is the title of the axis, which need
    not begin at 0; the size is in pixels without axes. `details` are by the names of runs.
    """
    shown = details or {}
    bounds = [end for one in means.values() for end in (one.mean, one.low, one.high)]
    bounds += [gate.line for name in means if name in shown for gate in shown[name].gates]
    y, up = _Scale.over(bounds, height, 0, max(2, height // 30))
    apart = width / max(len(means), 1)
    places = {name: apart * (at + 0.5) for at, name in enumerate(means)}
    marks, points, drawing = [], [], False
    line = ""
    for name, one in means.items():
        if one.mean is None:
            drawing = False
            continue
        x, at = places[name], y(one.mean)
        line += f"{'L' if drawing else 'M'}{x:.5g} {at:.5g}"
        drawing = True
        if one.low is not None and one.high is not None:
            marks.append(_rule(x, y(one.low), x, y(one.high), width=2))
        told = f"{name}: {label} {_with_interval(one.mean, one.low, one.high)}"
        point = _point(x, at, told, area=40)
        points.append(_linked(point, x, at, shown[name], apart) if name in shown else point)
    marks += _gate_lines(
        [(places[name], shown[name].gates) for name in means if name in shown], y, apart
    )
    if line:
        marks.append(_element("path", d=line, fill="none", stroke=MARK, stroke_width=2))
    # Every second name, or fewer, where they would overlap.
    every = max(1, math.ceil(_LINE / apart))
    names = [(x, name) for at, (name, x) in enumerate(places.items()) if at % every == 0]
    about = f"{label} over the runs, with 95 % intervals; runs: {len(means):,}"
    across = Axis(None, names, grid=False, slanted=True)
    return Chart(about, width, height, across, Axis(label, up), [*marks, *points])


def _linked(point: str, x: float, y: float, detail: TrendDetail, apart: float) -> str:
    """A point that leads to its run, with its note beside it."""
    # A point is too small for a finger.
    around = _element("circle", cx=x, cy=y, r=12.0, fill="transparent")
    link = f"<a href={quoteattr(detail.link)}>{around}{point}</a>"
    # Notes of runs that stand close are above and below in turn.
    below = apart < 24 and int(x / apart) % 2
    return link + (
        _text(detail.note, x + 6, y + (15 if below else -7), "start") if detail.note else ""
    )


def _gate_lines(
    runs: Sequence[tuple[float, Sequence[GateLimit]]], y: _Scale, apart: float
) -> Iterator[str]:
    """The limits of gates at their runs, with signs of the outcomes, and each rule named once."""
    named = set()
    for x, gates in runs:
        for gate in gates:
            if gate.line is None:
                continue
            at = y(gate.line)
            yield _dashed(x - apart / 2, at, x + apart / 2, at)
            # Where runs are too close for every sign, what did not pass is marked.
            if apart >= 14 or gate.outcome != "pass":
                yield _text(gate.sign, x + apart / 2 - 3, at - 4, "end")
            if gate.rule not in named:
                yield _text(gate.rule, x - apart / 2 + 4, at + 12, "start")
            named.add(gate.rule)


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


def distribution_svg(
    values: Sequence[float], metric: str, leads_to: Callable[[float, float], str]
) -> str | None:
    """The distribution of a metric's scores, with links; None where there are no scores."""
    if not values:
        return None
    chart = distribution_chart(values, label=metric, width=200, height=44, leads_to=leads_to)
    return to_svg(chart)


def trend_svg(past: Sequence[PastMean], metric: str) -> str | None:
    """The means of a metric over the runs; None where fewer than two have one."""
    if sum(one.mean is not None for one in past) < 2:
        return None
    return to_svg(trend_chart(_by_start(past), label=metric, width=240, height=44))


def long_trend_svg(
    past: Sequence[PastMean], metric: str, details: Mapping[str, TrendDetail]
) -> str:
    """As `trend_svg`, as wide as a page; `details` are by the ids of runs."""
    named = {name: details[one.run_id] for name, one in _by_start(past).items()}
    return to_svg(trend_chart(_by_start(past), label=metric, width=900, height=240, details=named))


def sparkline_svg(past: Sequence[PastMean], metric: str) -> str | None:
    """As `trend_svg`, without axes."""
    if sum(one.mean is not None for one in past) < 2:
        return None
    chart = trend_chart(_by_start(past), label=metric, width=160, height=28)
    around = 4
    drawing = f'<g transform="translate({around} {around})">{"".join(chart.marks)}</g>'
    return _svg(chart, drawing, chart.width + 2 * around, chart.height + 2 * around)


def _by_start(past: Sequence[PastMean]) -> dict[str, PastMean]:
    # With the end of the id, since two runs can start in one minute.
    return {f"{one.started_at:%m-%d %H:%M} {one.run_id[-4:]}": one for one in past}


def reliability_svgs(found: Sequence[CorrectedStep]) -> Iterator[str]:
    """A reliability diagram of each step whose judge gives probabilities."""
    for one in found:
        if one.reliability is not None:
            label = f"p entailed, {one.step}"
            yield to_svg(reliability_chart(one.reliability.bins, label=label))


def slice_reliability_svgs(
    found: Sequence[CorrectedStep], field: str
) -> Iterator[tuple[str, str | None, str]]:
    """The step, the value of `field`, and the reliability diagram of these samples."""
    for one in found:
        for part in one.slices:
            if part.field == field:
                label = f"p entailed, {one.step}"
                yield (
                    one.step,
                    part.value,
                    to_svg(reliability_chart(part.reliability.bins, label=label)),
                )


def comparison_svg(found: Comparison) -> str | None:
    """The differences of the means; None where no metric is scored in both runs."""
    both = [one for one in found.metrics if one.difference is not None]
    return to_svg(comparison_chart(both, label="B - A")) if both else None
