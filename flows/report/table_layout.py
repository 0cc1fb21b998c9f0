"""The layout of tables in a window: which columns are shown, how wide, and which are wrapped."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from rich.cells import cell_len

_NARROWEST: Final = 16
"""The least width of a column of texts, where its longest word is no longer."""

_LONGEST_WORD: Final = 40
"""A longer word in a text, such as an address, may be broken."""

_GAP: Final = 3
"""What rich's `box.SIMPLE_HEAD` puts between two columns."""

_EDGES: Final = 2
"""What it puts on the left and the right of a table."""

_COUNTED: Final = frozenset({"failed", "failures"})
"""Columns that count failures, which a note names where such a column is left out."""

_NAMED: Final = 5
"""Rows with failures that a note names."""


class Column(NamedTuple):
    """A column that is shown: its place in the table, its width, and whether it is wrapped."""

    place: int
    width: int
    wrapped: bool


class Layout(NamedTuple):
    """The columns that are shown, the names of those left out, and the width of the table.

    `full` is the least width of the table with all its columns.
    """

    shown: list[Column]
    left_out: list[str]
    width: int
    full: int


def lay_out(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    texts: Collection[str] = (),
    drop: Sequence[str] = (),
    may_exceed: bool = False,
) -> Layout | None:
    """Fit a table into `width` characters; None if it does not fit.

    Columns in `texts` are wrapped between words, all others are as wide as their longest line.
    Where that does not fit, the columns in `drop` are left out, the first one first; a table that
    `may_exceed` the width has all of them.
    """
    cells = [[name, *(row[place] for row in rows)] for place, name in enumerate(columns)]
    natural = [max(cell_len(line) for cell in each for line in cell.split("\n")) for each in cells]
    least = [
        _least(each, longest) if name in texts else longest
        for name, each, longest in zip(columns, cells, natural, strict=True)
    ]
    places = [*range(len(columns))]
    left_out: list[str] = []
    droppable = iter([name for name in dict.fromkeys(drop) if name in columns])
    while _table_width([least[place] for place in places]) > width and not may_exceed:
        name = next(droppable, None)
        if name is None:
            return None
        left_out.append(name)
        places.remove(list(columns).index(name))
    extra = max(width - _table_width([least[place] for place in places]), 0)
    widths = _widened(places, natural, least, extra)
    shown = [Column(place, widths[place], widths[place] < natural[place]) for place in places]
    return Layout(shown, left_out, _table_width([*widths.values()]), _table_width(least))


def _least(cells: Sequence[str], natural: int) -> int:
    words = [cell_len(word) for cell in cells for word in cell.split()]
    longest_word = max((length for length in words if length <= _LONGEST_WORD), default=0)
    return min(natural, max(_NARROWEST, longest_word))


def _table_width(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1) + _EDGES


def _widened(
    places: Sequence[int], natural: Sequence[int], least: Sequence[int], extra: int
) -> dict[int, int]:
    """The widths of columns when `extra` characters are shared by those that need more."""
    widths = {}
    needy = sorted(places, key=lambda place: natural[place] - least[place])
    for number, place in enumerate(needy):
        more = min(natural[place] - least[place], extra // (len(needy) - number))
        widths[place] = least[place] + more
        extra -= more
    return widths


def left_out_note(
    columns: Sequence[str], rows: Sequence[Sequence[str]], found: Layout, width: int
) -> str:
    """A line on the columns that are left out, and on the rows whose failures they count."""
    counts = (_failed(columns, rows, name) for name in found.left_out if name in _COUNTED)
    failures = [part for parts in counts for part in parts]
    more = f" and {len(failures) - _NAMED} more" if len(failures) > _NAMED else ""
    failed = f" (failed: {', '.join(failures[:_NAMED])}{more})" if failures else ""
    names = f"{', '.join(found.left_out)}{failed}"
    return f"columns left out at {width}: {names}; a wider window or COLUMNS={found.full} shows all"


def _failed(columns: Sequence[str], rows: Sequence[Sequence[str]], name: str) -> Iterator[str]:
    place = list(columns).index(name)
    return (f"{row[0]} {row[place]}" for row in rows if row[place] not in ("", "0", "-"))
