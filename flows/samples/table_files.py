"""CSV and Parquet files as records."""

import csv
import glob
import re
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

import duckdb
import polars as pl

from claimflow.flows.files import large_csv_cells
from claimflow.flows.pipeline.limits import RECORD_BYTES
from claimflow.flows.samples.records import (
    NOT_UTF8,
    TOO_LARGE,
    Record,
    RecordError,
    json_object,
    too_many_columns,
)

# A year beyond 9999; Polars panics for a date.
_NO_VALUE: Final = (ValueError, OverflowError, pl.exceptions.PanicException)

_FAR_DAYS: Final = 70_000_000
_PER_DAY: Final = {None: 1, "ms": 86_400_000, "us": 86_400_000_000}
"""The days of a date, and units of time; 64 bits of nanoseconds do not go so far."""
_FAR_TIME: Final = RecordError(
    "a time that Python cannot hold (more than 190,000 years from 1970)", "write it as text"
)
_INTERVALS: Final = """
    SELECT name FROM parquet_schema($file) WHERE converted_type = 'INTERVAL' LIMIT 1
"""

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
    if error := _interval_column(path):
        yield Record(1, error, ends_file=True)
        return
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


def _interval_column(path: Path) -> RecordError | None:
    """The error of a column of intervals, for which Polars panics and prints so."""
    # What is damaged is told where the file is read.
    with suppress(duckdb.Error), duckdb.connect(config={"threads": 1}) as connection:
        found = connection.execute(_INTERVALS, {"file": glob.escape(str(path))}).fetchone()
        if found is not None:
            what = f"the column {found[0]!r} holds intervals of time"
            return RecordError(what, "write it as text, or leave it out")
    return None


def frame_rows(frame: pl.DataFrame) -> Iterator[dict[str, Any] | RecordError]:
    """The rows of a table; in place of one with a value that Python cannot hold, what is wrong."""
    far = _far_times(frame)
    if far.any():
        for number in range(frame.height):
            yield _FAR_TIME if far[number] else _frame_row(frame, number)
        return
    done = 0
    try:
        # Equal texts share memory in a table, but not as rows.
        for row in frame.iter_rows(named=True, buffer_size=_ROWS_AT_ONCE):
            yield row
            done += 1
    except _NO_VALUE:
        yield from (_frame_row(frame, number) for number in range(done, frame.height))


def _far_times(frame: pl.DataFrame) -> pl.Series:
    """Which rows have a date or time so far away that Polars panics, and prints so."""
    far = pl.repeat(value=False, n=frame.height, eager=True)
    for column in frame:
        unit = getattr(column.dtype, "time_unit", None)
        if column.dtype in (pl.Date, pl.Datetime) and unit in _PER_DAY:
            limit = _FAR_DAYS * _PER_DAY[unit]
            far |= ~column.to_physical().is_between(-limit, limit).fill_null(value=True)
    return far


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
    if error := _other_separator(header):
        # Every row would be malformed too.
        yield Record(1, error, ends_file=True)
        return
    malformed = [*_repeated_names(header)]
    malformed += _malformed_rows(path, len(header))
    if malformed:
        yield from (record._replace(ends_file=True) for record in malformed)
    else:
        yield from _csv_rows(rows, header)


def read_damaged_csv(path: Path) -> Iterator[Record]:
    """As `read_csv`, but a malformed row is a bad record, before and behind which others are read.

    An empty cell is None, quoted or not. Nothing can be read behind a malformed header.
    """
    header: list[str] = []
    with path.open("rb") as file:
        for line, cells in _split_rows(file):
            if isinstance(cells, RecordError):
                yield Record(line, cells, ends_file=not header)
                if not header:
                    return
            elif not header:
                if error := _header_error(cells):
                    yield Record(line, error, ends_file=True)
                    return
                header = cells
            elif len(cells) != len(header):
                kind = "MISSING COLUMNS" if len(cells) < len(header) else "TOO MANY COLUMNS"
                yield Record(line, _ROW_ERRORS[kind])
            elif any(cells):
                values = [cell or None for cell in cells]
                yield Record(line, dict(zip(header, values, strict=True)))


def _header_error(header: list[str]) -> RecordError | None:
    """What is wrong with the names of columns that no row can be read with."""
    if error := too_many_columns(len(header)) or _other_separator(header):
        return error
    repeated = next((name for name in header if header.count(name) > 1), None)
    return None if repeated is None else _repeated_name(repeated)


def _split_rows(file: IO[bytes]) -> Iterator[tuple[int, list[str] | RecordError]]:
    """(first line, cells or what is wrong) of each row that is not blank.

    A quote that nothing closes may take many rows for its text: behind a malformed row of several
    lines the next one is sought in its second line.
    """
    again: deque[tuple[int, bytes]] = deque()
    lines = enumerate(iter(lambda: file.readline(RECORD_BYTES + 1), b""), start=1)
    while True:
        row: list[tuple[int, bytes]] = []
        size = quotes = 0
        while (line := again.popleft() if again else next(lines, None)) is not None:
            row.append(line)
            size += len(line[1])
            quotes += line[1].count(b'"')
            if quotes % 2 == 0 or size > RECORD_BYTES:
                break
        if not row:
            return
        cells = _cells(b"".join(text for _, text in row), is_first=row[0][0] == 1)
        if isinstance(cells, RecordError):
            again.extendleft(reversed(row[1:]))
        if cells:
            yield row[0][0], cells


def _cells(row: bytes, *, is_first: bool) -> list[str] | RecordError:
    if len(row) > RECORD_BYTES:
        return TOO_LARGE
    try:
        text = row.decode("utf-8-sig" if is_first else "utf-8").rstrip("\r\n")
        with large_csv_cells(RECORD_BYTES):
            return next(csv.reader([text], strict=True), [])
    except UnicodeDecodeError:
        return NOT_UTF8
    except csv.Error:
        if "\r" in text and "\n" not in text:
            return _MIXED_LINE_ENDS
        return _ROW_ERRORS["UNQUOTED VALUE"]


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


def _other_separator(header: list[str]) -> RecordError | None:
    used = next((sign for sign in ";\t|" if len(header) == 1 and sign in header[0]), None)
    if used is None:
        return None
    what = f"one column, named {header[0]!r}"
    return RecordError(what, f"separate the cells by commas, not by {used!r}")


def _repeated_names(header: list[str]) -> Iterator[Record]:
    for column in header:
        repeated = _REPEATED_NAME.fullmatch(column)
        if repeated and repeated["name"] in header:
            yield Record(1, _repeated_name(repeated["name"]))


def _repeated_name(name: str) -> RecordError:
    return RecordError(f"two columns are named {name!r}", "name every column once")


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
