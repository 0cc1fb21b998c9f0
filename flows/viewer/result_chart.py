"""The chart of a query's result: what the reader may choose, and what is drawn by default."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import polars as pl

from claimflow.flows.report.plots import bar_chart, xy_chart
from claimflow.flows.report.vega_lite import Chart

KINDS: Final = ("bars", "line", "points")
"""The kinds of charts, as in the address and the form."""

_BARS: Final = 40
_NAMES: Final = 200
"""Rows that are drawn as bars, and as points beside names: more labels could not be read."""

_LARGEST: Final = 1e150
"""Numbers that are larger have no place on an axis: the difference of two could be infinite."""


class ChartChoice(NamedTuple):
    """What a reader asks for; an empty text, or what the result lacks, means the default."""

    kind: str = ""
    x: str = ""
    y: str = ""


class ResultChart(NamedTuple):
    """A chart with the choice that it shows, the columns that may be chosen, and how many rows."""

    chart: Chart
    choice: ChartChoice
    xs: list[str]
    ys: list[str]
    note: str


def result_chart(frame: pl.DataFrame, asked: ChartChoice) -> ResultChart | None:
    """The chart of a result; None without two rows, a column of numbers and another column.

    By default the first column of times is x, else the first of differing texts, else the first
    column. Times make a line, texts bars, and numbers points.
    """
    xs = [name for name, kind in frame.schema.items() if _is_axis(kind)]
    ys = [name for name, kind in frame.schema.items() if kind.is_numeric()]
    x = asked.x if asked.x in xs else _default_x(frame, xs)
    others = [name for name in ys if name != x]
    if frame.height < 2 or not (asked.y in ys or others):
        return None
    y = asked.y if asked.y in ys else others[0]
    usual = "line" if _is_time(frame.schema[x]) else "points" if x in ys else "bars"
    kind = asked.kind if asked.kind in KINDS else usual
    found = _pairs(frame, x, y, kind)
    # Where no row has both values it is empty, so that another choice can be made.
    chart = _drawn(found, kind, (x, y))
    left_out = frame.height - found.height
    note = f"n = {found.height:,} of {frame.height:,} rows" if left_out else f"n = {found.height:,}"
    return ResultChart(chart, ChartChoice(kind, x, y), xs, ys, note)


def _is_time(kind: pl.DataType) -> bool:
    return kind in (pl.Date, pl.Datetime)


def _is_axis(kind: pl.DataType) -> bool:
    return kind.is_numeric() or _is_time(kind) or kind in (pl.String, pl.Boolean, pl.Enum)


def _default_x(frame: pl.DataFrame, xs: Sequence[str]) -> str:
    times = [name for name in xs if _is_time(frame.schema[name])]
    texts = [name for name in xs if frame.schema[name] == pl.String]
    # The id of a run that all rows share tells nothing apart.
    differing = [name for name in texts if frame[name].n_unique() > 1]
    return next(iter([*times, *differing, *texts, *xs]), "")


def _pairs(frame: pl.DataFrame, x: str, y: str, kind: str) -> pl.DataFrame:
    """The rows with both values, as columns `x` and `y`; a line over numbers or times is sorted."""
    both = frame.select(x=pl.col(x), y=pl.col(y).cast(pl.Float64)).drop_nulls()
    both = both.filter(pl.col("y").abs() < _LARGEST)
    along = both.schema["x"]
    if kind == "bars":
        return both.with_columns(pl.col("x").cast(pl.String)).head(_BARS)
    if _is_time(along):
        times = pl.col("x").cast(pl.Datetime("us")).dt.replace_time_zone(None)
        return both.with_columns(times).sort("x", maintain_order=True)
    if along.is_numeric():
        numbers = both.with_columns(pl.col("x").cast(pl.Float64))
        within = numbers.filter(pl.col("x").abs() < _LARGEST)
        return within.sort("x", maintain_order=True)
    return both.with_columns(pl.col("x").cast(pl.String)).head(_NAMES)


def _drawn(pairs: pl.DataFrame, kind: str, titles: tuple[str, str]) -> Chart:
    values = [float(value) for value in pairs["y"]]
    if kind == "bars":
        bars = list(zip(pairs["x"].to_list(), values, strict=True))
        return bar_chart(bars, label=titles[1], title=titles[0])
    return xy_chart(pairs["x"].to_list(), values, titles=titles, joined=kind == "line")
