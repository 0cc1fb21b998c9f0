"""The answer to a query as rows of words, no more than a browser can show."""

from typing import Final, NamedTuple

import polars as pl

_CELL: Final = 2_000
_ALL: Final = 4_000_000
"""Letters of a cell and of a page."""


class Table(NamedTuple):
    """Columns, whether each holds numbers, rows of words, and what was left out, in words."""

    columns: list[str]
    numbers: list[bool]
    rows: list[list[str]]
    left_out: str


def as_table(frame: pl.DataFrame, *, rows: int) -> Table:
    """The first rows of an answer, of which `frame` has one more where there are more.

    NULL is a dash; longer cells end in an ellipsis.
    """
    shown: list[list[str]] = []
    letters = 0
    for row in frame.head(rows).iter_rows():
        cells = [_cell(value) for value in row]
        letters += sum(map(len, cells))
        if letters > _ALL:
            break
        shown.append(cells)
    cut = "" if len(shown) == frame.height else f"The first {len(shown):,} rows; there are more."
    numbers = [kind.is_numeric() for kind in frame.dtypes]
    return Table(frame.columns, numbers, shown, cut)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    words = f"{value:.6g}" if isinstance(value, float) else str(value)
    return words if len(words) <= _CELL else f"{words[: _CELL - 1]}…"
