"""CSV and Parquet files as records."""

import glob
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import duckdb
import polars as pl

from claimflow.flows.pipeline.limits import RECORD_BYTES
from claimflow.flows.samples.records import (
    TOO_LARGE,
    Record,
    RecordError,
    json_object,
    too_many_columns,
)

# A year beyond 9999; Polars panics for a date.
_NO_VALUE: Final = (ValueError, OverflowError, pl.exceptions.PanicException)

_BATCH_ROWS: Final = 250
_ROWS_AT_ONCE: Final = 16

_CHECK_CSV: Final = """
    SELECT count(*) FROM read_csv(
        $file, columns = $columns, max_line_size = $longest, auto_detect = false, header = true,
        delim = ',', quote = '"', escape = '"', store_rejects = true, rejects_limit = 0
    )
"""
_REJECTED_ROWS: Final = """
    SELECT line_byte_position - 1 AS start, any_value(error_type)
    FROM reject_errors WHERE error_type <> 'INVALID ENCODING'
    GROUP BY start ORDER BY start
"""
_ROW_ERRORS: Final = {
    "LINE SIZE OVER MAXIMUM": TOO_LARGE,
    "MISSING COLUMNS": RecordError("fewer cells than the header names", "write every cell"),
    "TOO MANY COLUMNS": RecordError(
        "more cells than the header names", 'quote a comma: "one, two"'
    ),
    "UNQUOTED VALUE": RecordError(
        "text behind a closing quote, or no closing quote", 'write a quote twice: "a ""b"" c"'
    ),
}
_MIXED_LINE_ENDS: Final = RecordError("mixed line ends, or not CSV", r"end every line in \n")
_REPEATED_NAME: Final = re.compile(r"(?P<name>.*)_duplicated_\d+", re.DOTALL)
"""The name that Polars gives to a column whose name an earlier column has."""


def read_parquet(path: Path) -> Iterator[Record]:
    """One record per row, numbered from 1, with the values of `json_value`."""
    number = 0
    rows = pl.scan_parquet(path, glob=False, low_memory=True)
    if error := too_many_columns(rows.collect_schema().len()):
        yield Record(1, error, ends_file=True)
        return
    for batch in rows.collect_batches(chunk_size=_BATCH_ROWS, lazy=True):
        for values in frame_rows(batch):
            number += 1
            if isinstance(values, RecordError):
                yield Record(number, values)
                continue
            yield Record(number, json_object(values))


def frame_rows(frame: pl.DataFrame) -> Iterator[dict[str, Any] | RecordError]:
    """The rows of a table; in place of one with a value that Python cannot hold, what is wrong."""
    done = 0
    try:
        # Equal texts share memory in a table, but not as rows.
        for row in frame.iter_rows(named=True, buffer_size=_ROWS_AT_ONCE):
            yield row
            done += 1
    except _NO_VALUE:
        yield from (_frame_row(frame, number) for number in range(done, frame.height))


def _frame_row(frame: pl.DataFrame, number: int) -> dict[str, Any] | RecordError:
    try:
        return frame.row(number, named=True)
    except _NO_VALUE as error:
        return RecordError(f"a time that Python cannot hold ({error})", "write it as text")


def read_csv(path: Path) -> Iterator[Record]:
    """One record per row that is not blank, numbered by the line it starts on.

    An empty cell is None, a quoted empty cell (`""`) is the empty text. If any row is malformed,
    only the malformed rows are returned.
    """
    if not path.stat().st_size:
        return
    rows = pl.scan_csv(path, infer_schema=False, glob=False)
    header = rows.collect_schema().names()
    if error := too_many_columns(len(header)):
        yield Record(1, error, ends_file=True)
        return
    if other := next(_other_separator(header), None):
        # Every row would be malformed too.
        yield other._replace(ends_file=True)
        return
    malformed = [*_repeated_names(header)]
    malformed += _malformed_rows(path, len(header))
    if malformed:
        yield from (record._replace(ends_file=True) for record in malformed)
    else:
        yield from _csv_rows(rows, header)


def _csv_rows(rows: pl.LazyFrame, header: list[str]) -> Iterator[Record]:
    line = 1 + _line_breaks(header)
    for batch in rows.collect_batches(chunk_size=_BATCH_ROWS, lazy=True):
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
        repeated = _REPEATED_NAME.fullmatch(column)
        if repeated and repeated["name"] in header:
            what = f"two columns are named {repeated['name']!r}"
            yield Record(1, RecordError(what, "name every column once"))


def _malformed_rows(path: Path, width: int) -> Iterator[Record]:
    """The rows that DuckDB's strict CSV reader rejects; Polars reads some of them silently."""
    options = {
        "file": glob.escape(str(path)),
        "columns": {f"column_{n}": "VARCHAR" for n in range(width)},
        "longest": RECORD_BYTES,
    }
    with duckdb.connect(config={"threads": 1}) as connection:
        try:
            connection.execute(_CHECK_CSV, options).fetchall()
        except duckdb.InvalidInputException:
            yield Record(1, _MIXED_LINE_ENDS)
            return
        rejected = connection.execute(_REJECTED_ROWS).fetchall()
    lines = _line_numbers(path, [start for start, _ in rejected])
    for line, (_, kind) in zip(lines, rejected, strict=True):
        error = _ROW_ERRORS.get(kind) or RecordError(kind.lower(), "write a row of cells")
        yield Record(line, error)


def _line_numbers(path: Path, starts: list[int]) -> Iterator[int]:
    """The numbers of the lines at the byte offsets `starts`, which ascend."""
    line, position = 1, 0
    with path.open("rb") as file:
        for start in starts:
            line += file.read(start - position).count(b"\n")
            position = start
            yield line
