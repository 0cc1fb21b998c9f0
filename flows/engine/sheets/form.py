"""The form of a sheet: CSV with a header that says what it holds."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import polars as pl

from claimflow.flows.engine.errors import Fault, InputError
from claimflow.flows.engine.sheets.cells import guarded, unguarded
from claimflow.flows.engine.storage.edits import Kind

COLUMNS: Final[Mapping[Kind, tuple[str, ...]]] = {
    "claims": ("run", "sample_id", "step", "of", "claim_id", "claim", "status", "text"),
    "verdicts": (
        "run",
        "sample_id",
        "step",
        "claim_id",
        "claim",
        "against",
        "passage",
        "verdict",
        "status",
        "evidence",
        "reason",
    ),
}

_NEEDED: Final[Mapping[Kind, tuple[str, ...]]] = {
    "claims": ("sample_id", "step", "claim_id", "claim"),
    "verdicts": ("sample_id", "step", "claim_id", "claim", "passage", "verdict"),
}
_LONGEST_CELL: Final = 1 << 26


class SheetRow(NamedTuple):
    """One row: the line of the file that it starts on, and its texts by column, "" for none."""

    line: int
    cells: Mapping[str, str]

    def cell(self, column: str) -> str:
        """The text in a column; "" where the row or the sheet has none."""
        return self.cells.get(column, "")


class Sheet(NamedTuple):
    """A sheet of claims or of verdicts, as it was read."""

    path: Path
    kind: Kind
    rows: list[SheetRow]

    def fault(self, row: SheetRow, what: str, right: str) -> Fault:
        """What is wrong with a row."""
        return Fault(f"{self.path}:{row.line}", what, right)


def written(kind: Kind, rows: pl.DataFrame) -> bytes:
    """A sheet of `rows`, which have the columns of that kind: CSV for spreadsheets.

    UTF-8 with the mark by which Excel knows it; a cell that a spreadsheet could take for a
    formula is led by an apostrophe.
    """
    return as_csv(rows.select(COLUMNS[kind]))


def as_csv(rows: pl.DataFrame) -> bytes:
    """As `written`, of rows with any columns of texts and numbers."""
    text = io.StringIO(newline="")
    sheet = csv.writer(text)
    sheet.writerow(rows.columns)
    for row in rows.iter_rows():
        sheet.writerow(["" if value is None else guarded(str(value)) for value in row])
    return text.getvalue().encode("utf-8-sig", "replace")


def read_sheet(path: Path) -> Sheet:
    """The sheet in a file, its kind known by its header.

    Raises `InputError` for a file that is no such sheet.
    """
    header, rows = read_rows(path)
    kind = _kind(path, header)
    return Sheet(path, kind, rows)


def read_rows(path: Path) -> tuple[list[str], list[SheetRow]]:
    """(the header, the rows) of a sheet in a file; blank rows are left out.

    Cells may be parted by commas, semicolons or tabs, whichever the header has. Raises
    `InputError` for a file that is no CSV in UTF-8.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        what, right = f"cannot be read ({error.strerror})", "name a sheet that was exported"
        raise InputError([Fault(str(path), what, right)]) from error
    except UnicodeDecodeError as error:
        what, right = "is not UTF-8", "save it as CSV in UTF-8"
        raise InputError([Fault(str(path), what, right)]) from error
    csv.field_size_limit(_LONGEST_CELL)
    try:
        lines = list(_lines(text))
    except csv.Error as error:
        what, right = f"is broken CSV ({error})", "save it as CSV in UTF-8"
        raise InputError([Fault(str(path), what, right)]) from error
    header = [name.strip() for name in lines[0][1]] if lines else []
    rows = [
        SheetRow(line, dict(zip(header, map(unguarded, cells), strict=False)))
        for line, cells in lines[1:]
        if any(cell.strip() for cell in cells)
    ]
    return header, rows


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """Each row with the line that it starts on."""
    first = text.partition("\n")[0]
    parted_by = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=parted_by, strict=True)
    start = 1
    for cells in reader:
        yield start, cells
        start = reader.line_num + 1


def _kind(path: Path, header: Sequence[str]) -> Kind:
    kind: Kind = "verdicts" if "verdict" in header else "claims"
    check_header(path, header, needed=_NEEDED[kind], exported=COLUMNS[kind])
    return kind


def check_header(
    path: Path, header: Sequence[str], *, needed: Sequence[str], exported: Sequence[str]
) -> None:
    """Raise `InputError` where a header lacks columns that are needed, or has one twice."""
    repeated = sorted({name for name in header if name and header.count(name) > 1})
    missing = [name for name in needed if name not in header]
    faults = [
        Fault(f"{path}:1", f"two columns are named {name!r}", "keep one") for name in repeated
    ]
    if missing:
        what = f"has no column {', '.join(missing)}"
        right = f"keep the header that was exported: {','.join(exported)}"
        faults.append(Fault(f"{path}:1", what, right))
    if faults:
        raise InputError(faults)
