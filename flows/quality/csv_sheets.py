"""CSV sheets that people edit in a spreadsheet program: safe cells, identifying headers, faults.

Correction sheets and label sheets are written and read here. A sheet has no version or type field:
its columns identify what kind of sheet it is.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Generic, NamedTuple, NoReturn, TypeVar

import polars as pl

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.files import large_csv_cells, similar_file

Problem = tuple[str, str]
"""What is wrong with a row, and what would be right."""

Kind = TypeVar("Kind", bound=str)

_MAX_CELL_CHARACTERS: Final = 1 << 26

# The beginnings of a formula, also after blanks and in full-width characters, and the control
# characters that a program may cut off to find such a beginning.
_FORMULA: Final = r"(?:\s*[=+\-@＝＋－＠]|[\t\r\n])"
_NEEDS_APOSTROPHE: Final = re.compile(f"'*{_FORMULA}")
_HAS_APOSTROPHE: Final = re.compile(f"'+{_FORMULA}")

_DELIMITER_LINE: Final = re.compile(r"sep=([,;\t])[,;\t]*\r?\n", re.IGNORECASE)
"""The first line by which Excel knows the delimiter; it may have been filled up with delimiters."""


class SheetLayout(NamedTuple, Generic[Kind]):
    """The columns of one kind of sheet, as exported, and those that reading it requires.

    A sheet with the column `identified_by` has this layout; None accepts any header.
    """

    kind: Kind
    identified_by: str | None
    columns: Sequence[str]
    required: Sequence[str]


class SheetRow(NamedTuple):
    """One row: the line of the file that it starts on, and its texts by column."""

    line: int
    cells: Mapping[str, str]

    def cell(self, column: str) -> str:
        """The text in a column; "" where the row or the sheet has none."""
        return self.cells.get(column, "")


class Sheet(NamedTuple, Generic[Kind]):
    """A sheet that was read from a file."""

    path: Path
    kind: Kind
    rows: list[SheetRow]

    def fault(self, row: SheetRow, what: str, hint: str) -> Fault:
        """A fault at the file and line of `row`."""
        return Fault(f"{self.path}:{row.line}", what, hint)


def to_csv(rows: pl.DataFrame) -> bytes:
    """`rows` of texts and numbers as CSV for spreadsheet programs; NULL is an empty cell.

    UTF-8 with the byte order mark by which Excel recognizes it. Texts are escaped by
    `escape_formula`.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(rows.columns)
    for row in rows.iter_rows():
        # The csv module writes None as an empty cell.
        writer.writerow([escape_formula(cell) if isinstance(cell, str) else cell for cell in row])
    return text.getvalue().encode("utf-8-sig", "replace")


def read_sheet(path: Path, layouts: Iterable[SheetLayout[Kind]]) -> Sheet[Kind]:
    """The sheet in a file, with the first of `layouts` that its header identifies.

    The delimiter may be a comma, a semicolon or a tab, whichever is the most frequent in the
    header; a line `sep=;` before it, which Excel reads, names another. Blank rows are left out.
    Raises `InputError` for a file that cannot be read, is
    not CSV in UTF-8 or lacks required columns.
    """
    header, rows = _read_csv(path)
    known = [*layouts]
    layout = next(one for one in known if one.identified_by in (None, *header.cells))
    if not {*layout.required} & {*header.cells}:
        *kinds, last = (one.kind for one in known)
        what = f"is not the header of a sheet of {', '.join(kinds)} or {last}"
        hint = "keep the header that was exported"
        raise InputError([Fault(f"{path}:{header.line}", what, hint)])
    _check_header(path, header, layout)
    return Sheet(path, layout.kind, rows)


def raise_faults(faults: Iterable[Fault]) -> NoReturn:
    """Raise `InputError` with the faults of a sheet in the order of their lines."""
    raise InputError(sorted(faults, key=lambda fault: int(fault.place.rpartition(":")[2])))


def escape_formula(text: str) -> str:
    """`text` as a cell that no spreadsheet evaluates: an apostrophe precedes what may be a formula.

    A text that already looks escaped gets one more, so that `unescape_formula` restores every
    text.
    """
    return f"'{text}" if _NEEDS_APOSTROPHE.match(text) else text


def unescape_formula(cell: str) -> str:
    """The text that `escape_formula` made `cell` of; a cell that is not escaped is unchanged."""
    return cell[1:] if _HAS_APOSTROPHE.match(cell) else cell


def normalize_newlines(text: str) -> str:
    r"""`text` with `\n` for every line end, since a spreadsheet program may replace them."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


class _Header(NamedTuple):
    line: int
    cells: list[str]


def _read_csv(path: Path) -> tuple[_Header, list[SheetRow]]:
    """(the header, the rows) of a CSV file."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
        hint = similar_file(path, "name a sheet that was exported")
        raise InputError([Fault(str(path), what, hint)]) from error
    except UnicodeDecodeError as error:
        what, hint = "is not UTF-8", "save it as CSV in UTF-8"
        raise InputError([Fault(str(path), what, hint)]) from error
    try:
        with large_csv_cells(_MAX_CELL_CHARACTERS):
            lines = list(_numbered_rows(text))
    except csv.Error as error:
        what, hint = f"is broken CSV ({error})", "save it as CSV in UTF-8"
        raise InputError([Fault(str(path), what, hint)]) from error
    first, names = lines[0] if lines else (1, [])
    header = [name.strip() for name in names]
    rows = [
        SheetRow(line, dict(zip(header, map(unescape_formula, cells), strict=False)))
        for line, cells in lines[1:]
        if any(cell.strip() for cell in cells)
    ]
    return _Header(first, header), rows


def _numbered_rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """Each row with the line that it starts on; a quoted cell may span lines."""
    named = _DELIMITER_LINE.match(text)
    text = text[named.end() :] if named else text
    delimiter = named[1] if named else max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    before = 1 if named else 0
    start = 1
    for cells in reader:
        yield before + start, cells
        start = reader.line_num + 1


def _check_header(path: Path, header: _Header, layout: SheetLayout[Kind]) -> None:
    """Raise `InputError` where required columns are missing or a column appears twice."""
    place, names = f"{path}:{header.line}", header.cells
    repeated = sorted({name for name in names if name and names.count(name) > 1})
    missing = [name for name in layout.required if name not in names]
    faults = [Fault(place, f"two columns are named {name!r}", "keep one") for name in repeated]
    if missing:
        what = f"has no column {', '.join(missing)}"
        hint = f"keep the header that was exported: {','.join(layout.columns)}"
        faults.append(Fault(place, what, hint))
    if faults:
        raise InputError(faults)
