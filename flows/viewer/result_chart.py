"""The chart of a query's result: what the reader may choose, and what is drawn by default."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import polars as pl

from claimflow.flows.report.formatting import format_count, shorten
from claimflow.flows.report.table_plots import LOOKS, Series, bar_chart, xy_chart
from claimflow.flows.report.vega_lite import Chart

KINDS: Final = ("bars", "line", "points")
"""The kinds of charts, as in the address and the form."""

_BARS: Final = 40
_NAMES: Final = 200
"""Rows that are drawn as bars, and as points beside names: more labels could not be read."""

_NAMED: Final = 20
"""Names of series that are not drawn, in the note; the others are counted."""

_LARGEST: Final = 1e150
"""Numbers that are larger have no place on an axis: the difference of two could be infinite."""


class ChartChoice(NamedTuple):
    """What a reader asks for; an empty text, or what the result lacks, means the default."""

    kind: str = ""
    x: str = ""
    y: str = ""
    series: str = ""


class ResultChart(NamedTuple):
    """A chart with the choice that it shows, and the columns that may be chosen.

    `note` says which rows it shows. `chart` is None where none can be made of the choice, or of the
    result, which then has no `ys`: `note` says why.
    """

    chart: Chart | None
    note: str
    choice: ChartChoice = ChartChoice()
    xs: Sequence[str] = ()
    ys: Sequence[str] = ()
    texts: Sequence[str] = ()


def result_chart(
    frame: pl.DataFrame, asked: ChartChoice, links: Sequence[str | None], *, rows: str
) -> ResultChart:
    """The chart of a result of two rows or more with a column of numbers and another column.

    By default the first column of times is x, else the first of differing texts, else the first
    column. Times make a line, texts bars, and numbers points. A line joins no rows that differ in a
    column of texts whose values come again at another x; bars of equal names are told apart by
    such texts. `links` has the address that each row leads to, or None; `rows` says in words which
    rows of the result `frame` has.
    """
    xs = [name for name, kind in frame.schema.items() if _is_axis(kind)]
    ys = [name for name, kind in frame.schema.items() if kind.is_numeric()]
    x = asked.x if asked.x in xs else _default_x(frame, xs)
    others = [name for name in ys if name != x]
    if why := _why_none(frame, ys, found=asked.y in ys or bool(others)):
        return ResultChart(None, why)
    y = asked.y if asked.y in ys else others[0]
    usual = "line" if _is_time(frame.schema[x]) else "points" if x in ys else "bars"
    kind = asked.kind if asked.kind in KINDS else usual
    texts = [name for name, one in frame.schema.items() if _is_text(one) and name != x]
    found = _pairs(frame, x, y, kind, links, texts)
    most = _BARS if kind == "bars" else _NAMES if _is_text(frame.schema[x]) else None
    notes = [_rows_note(found.height, frame.height, rows, most)]
    divided: list[int] = []
    if asked.series in texts:
        divided = [texts.index(asked.series)]
    elif kind == "line" or (kind == "bars" and found["x"].is_duplicated().any()):
        divided = _dividing(found, len(texts))
    if divided:
        found, left_out = _with_series(found, divided)
        notes += left_out
    if kind == "line" and _has_several(found):
        kind = "points"
        notes.append("points, not a line: rows with the same x differ in no text of the result")
    title = f"{x} (UTC)" if frame.schema[x] == pl.Datetime else x
    series = ", ".join(texts[at] for at in divided)
    whole = _is_whole(frame.schema[x]), _is_whole(frame.schema[y])
    choice = ChartChoice(kind, x, y, series or "none")
    if found.is_empty():
        why = "No row has values of both columns that can be drawn: choose others."
        return ResultChart(None, why, choice, xs, ys, texts)
    chart = _drawn(found, kind, (title, y), series, whole)
    return ResultChart(chart, "; ".join(notes), choice, xs, ys, texts)


def _why_none(frame: pl.DataFrame, ys: Sequence[str], *, found: bool) -> str:
    """Why no chart can be made of a result, and what would do; empty where one can be made."""
    needs = "a chart needs two rows or more"
    if frame.height < 2:
        return f"No chart: the result has {format_count(frame.height, 'row')}, and {needs}."
    wanted = "a column of numbers for y, such as count(*) or a mean"
    if not ys:
        return (
            f"No chart: a chart needs {wanted}, and for x a column of times, texts or numbers. "
            "No column of the result has numbers; CAST(... AS DOUBLE) makes them of texts."
        )
    if not found:
        return (
            "No chart: beside the one column of numbers a chart needs a column of times, texts or "
            "numbers for x."
        )
    return ""


def _rows_note(drawn: int, read: int, rows: str, most: int | None) -> str:
    """How many rows a chart shows, and why others are left out; it has room for `most`."""
    if drawn == read:
        return rows
    why = f"at most {most}" if drawn == most else "the others have no value or too large a number"
    return f"{drawn:,} of {rows} ({why})"


def _is_time(kind: pl.DataType) -> bool:
    return kind in (pl.Date, pl.Datetime)


def _is_text(kind: pl.DataType) -> bool:
    return kind in (pl.String, pl.Boolean, pl.Enum)


def _is_whole(kind: pl.DataType) -> bool:
    # A sum of whole numbers is a decimal number without decimals.
    return kind.is_integer() or (isinstance(kind, pl.Decimal) and kind.scale == 0)


def _is_axis(kind: pl.DataType) -> bool:
    return kind.is_numeric() or _is_time(kind) or _is_text(kind)


def _default_x(frame: pl.DataFrame, xs: Sequence[str]) -> str:
    times = [name for name in xs if _is_time(frame.schema[name])]
    texts = [name for name in xs if frame.schema[name] == pl.String]
    # The id of a run that all rows share tells nothing apart.
    differing = [name for name in texts if frame[name].n_unique() > 1]
    return next(iter([*times, *differing, *texts, *xs]), "")


def _pairs(
    frame: pl.DataFrame,
    x: str,
    y: str,
    kind: str,
    links: Sequence[str | None],
    texts: Sequence[str],
) -> pl.DataFrame:
    """The rows with both values: x, y, link, and the `texts` as columns named by their places.

    A line over numbers or times is sorted.
    """
    beside = [frame[name].cast(pl.String).alias(str(at)) for at, name in enumerate(texts)]
    link = pl.Series("link", links, dtype=pl.String)
    both = pl.DataFrame([frame[x].alias("x"), frame[y].cast(pl.Float64).alias("y"), link, *beside])
    both = both.drop_nulls(["x", "y"]).filter(pl.col("y").abs() < _LARGEST)
    along = both.schema["x"]
    if kind == "bars":
        return both.with_columns(pl.col("x").cast(pl.String)).head(_BARS)
    if _is_time(along):
        times = both["x"].cast(pl.Datetime("us")) if along == pl.Date else both["x"]
        if times.dtype.time_zone:  # type: ignore[attr-defined]
            times = times.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        return both.with_columns(times.dt.cast_time_unit("us")).sort("x", maintain_order=True)
    if along.is_numeric():
        numbers = both.with_columns(pl.col("x").cast(pl.Float64))
        within = numbers.filter(pl.col("x").abs() < _LARGEST)
        return within.sort("x", maintain_order=True)
    return both.with_columns(pl.col("x").cast(pl.String)).head(_NAMES)


def _dividing(pairs: pl.DataFrame, count: int) -> list[int]:
    """The places of the texts that tell the lines of a chart apart, of `count` texts.

    These are texts with a value at several x. A text that tells no more apart than the others do,
    such as the step of a metric, is left out.
    """
    found = [
        str(at)
        for at in range(count)
        if pairs[str(at)].n_unique() > 1
        and pairs.group_by(str(at)).agg(pl.col("x").n_unique())["x"].max() != 1
    ]
    for one in list(found):
        others = [other for other in found if other != one]
        if others and pairs.n_unique(others) == pairs.n_unique(found):
            found = others
    return [int(one) for one in found]


def _with_series(pairs: pl.DataFrame, places: Sequence[int]) -> tuple[pl.DataFrame, list[str]]:
    """The rows of the first ten series of the result, by name, and a note on the others."""
    texts = [pl.col(str(at)).fill_null("(none)").replace("", "(empty)") for at in places]
    named = pairs.with_columns(series=pl.concat_str(texts, separator=", "))
    every = named["series"].unique(maintain_order=True).to_list()
    shown, others = every[: len(LOOKS)], every[len(LOOKS) :]
    if not others:
        return named, []
    left_out = ", ".join(shorten(one, 40) for one in others[:_NAMED])
    more = f" and {len(others) - _NAMED:,} more" if len(others) > _NAMED else ""
    note = f"{len(shown)} of {len(every):,} series, left out: {left_out}{more}"
    return named.filter(pl.col("series").is_in(shown)), [note]


def _has_several(pairs: pl.DataFrame) -> bool:
    """Whether a line would go up and down at one x. Equal names without series have places each."""
    if "series" in pairs.columns:
        return bool(pairs.select("x", "series").is_duplicated().any())
    return pairs.schema["x"] != pl.String and bool(pairs["x"].is_duplicated().any())


def _drawn(
    pairs: pl.DataFrame,
    kind: str,
    titles: tuple[str, str],
    of: str,
    whole: tuple[bool, bool],
) -> Chart:
    """The chart of the pairs; `whole` says whether x and y are whole numbers."""
    values = _numbers(pairs["y"], whole=whole[1])
    links = pairs["link"].to_list()
    series = Series(of, pairs["series"].to_list()) if "series" in pairs.columns else None
    if kind == "bars":
        bars = list(zip(pairs["x"].to_list(), values, strict=True))
        return bar_chart(bars, label=titles[1], title=titles[0], series=series, leads_to=links)
    numeric = pairs.schema["x"].is_numeric()
    return xy_chart(
        _numbers(pairs["x"], whole=whole[0]) if numeric else pairs["x"].to_list(),
        values,
        titles=titles,
        joined=kind == "line",
        series=series,
        leads_to=links,
    )


def _numbers(column: pl.Series, *, whole: bool) -> list[float]:
    return [int(value) if whole else float(value) for value in column]
