"""CSV files as records."""

import glob
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import duckdb
import polars as pl

from claimflow.flows.samples.records import Record, RecordError

_AT_A_TIME: Final = 250
_LONGEST_ROW: Final = 1 << 26
_CHECK: Final = """
    SELECT count(*) FROM read_csv(
        $file, columns = $columns, max_line_size = $longest, auto_detect = false, header = true,
        delim = ',', quote = '"', escape = '"', store_rejects = true, rejects_limit = 0
    )
"""
_BROKEN_ROWS: Final = """
    SELECT line_byte_position - 1 AS start, any_value(error_type)
    FROM reject_errors WHERE error_type <> 'INVALID ENCODING'
    GROUP BY start ORDER BY start
"""
_WRONG: Final = {
    "MISSING COLUMNS": RecordError("fewer cells than the header names", "write every cell"),
    "TOO MANY COLUMNS": RecordError(
        "more cells than the header names", 'quote a comma: "one, two"'
    ),
    "UNQUOTED VALUE": RecordError(
        "text behind a closing quote, or no closing quote", 'write a quote twice: "a ""b"" c"'
    ),
}
_MIXED: Final = RecordError("not one kind of line end, or no CSV", r"end every line in \n")
_REPEATED: Final = re.compile(r"(?P<name>.*)_duplicated_\d+", re.DOTALL)


def read_csv(path: Path) -> Iterator[Record]:
    """One record per row that is not blank, numbered by the line it starts on.

    An empty cell is None, a quoted empty cell (`""`) is the empty text. When the form of
    any row is broken, the records are all such rows and no other.
    """
    if not path.stat().st_size:
        return
    rows = pl.scan_csv(path, infer_schema=False, glob=False)
    header = rows.collect_schema().names()
    broken = [*_other_separator(header), *_repeated_names(header)]
    broken += _broken_rows(path, len(header))
    yield from broken or _rows(rows, header)


def _rows(rows: pl.LazyFrame, header: list[str]) -> Iterator[Record]:
    line = 1 + _line_breaks(header)
    for batch in rows.collect_batches(chunk_size=_AT_A_TIME, lazy=True):
        for cells in batch.iter_rows():
            line += 1
            if any(cell is not None for cell in cells):
                yield Record(line, dict(zip(header, cells, strict=True)))
                line += _line_breaks(cells)


def _line_breaks(cells: Iterable[str | None]) -> int:
    return sum(cell.count("\n") for cell in cells if cell)


def _other_separator(header: list[str]) -> Iterator[Record]:
    used = next((sign for sign in ";\t|" if len(header) == 1 and sign in header[0]), None)
    if used:
        what = f"one column, named {header[0]!r}"
        yield Record(1, RecordError(what, f"separate the cells by commas, not by {used!r}"))


def _repeated_names(header: list[str]) -> Iterator[Record]:
    for column in header:
        repeated = _REPEATED.fullmatch(column)
        if repeated and repeated["name"] in header:
            what = f"two columns are named {repeated['name']!r}"
            yield Record(1, RecordError(what, "name every column once"))


def _broken_rows(path: Path, width: int) -> Iterator[Record]:
    options = {
        "file": glob.escape(str(path)),
        "columns": {f"column_{n}": "VARCHAR" for n in range(width)},
        "longest": _LONGEST_ROW,
    }
    with duckdb.connect(config={"threads": 1}) as connection:
        try:
            connection.execute(_CHECK, options).fetchall()
        except duckdb.InvalidInputException:
            yield Record(1, _MIXED)
            return
        broken = connection.execute(_BROKEN_ROWS).fetchall()
    lines = _lines_at(path, [start for start, _ in broken])
    for line, (_, kind) in zip(lines, broken, strict=True):
        yield Record(line, _WRONG.get(kind) or RecordError(kind.lower(), "write a row of cells"))


def _lines_at(path: Path, starts: list[int]) -> Iterator[int]:
    """The numbers of the lines at the byte offsets `starts`, which ascend."""
    line, position = 1, 0
    with path.open("rb") as file:
        for start in starts:
            line += file.read(start - position).count(b"\n")
            position = start
            yield line
