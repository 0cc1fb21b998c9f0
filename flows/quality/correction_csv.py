"""CSV files of claims and verdicts for correction by hand."""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import polars as pl

from claimflow.flows.errors import Fault, InputError, one_of
from claimflow.flows.store.edits import Kind
from claimflow.flows.store.store import Store, read_table

# Texts as cells of a spreadsheet that it takes for text, and back.


# What a spreadsheet takes for the beginning of a formula, blanks before it included, in full
# width too; and what one may cut off to find such a beginning.
_FORMULA: Final = r"(?:\s*[=+\-@＝＋－＠]|[\t\r\n])"
_RUNS: Final = re.compile(f"'*{_FORMULA}")
_GUARDED: Final = re.compile(f"'+{_FORMULA}")


def guarded(text: str) -> str:
    """`text` as a cell that no spreadsheet runs: led by an apostrophe where one might.

    A text that is itself such a cell gets one more, so that `unguarded` gives back every text.
    """
    return f"'{text}" if _RUNS.match(text) else text


def unguarded(cell: str) -> str:
    """The text that `guarded` made the cell of; of any other cell, the cell."""
    return cell[1:] if _GUARDED.match(cell) else cell


def as_saved(text: str) -> str:
    """`text` with the line ends that a spreadsheet may have put in place of its own."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


# The form of a sheet: CSV with a header that says what it holds.


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

    def fault(self, row: SheetRow, what: str, hint: str) -> Fault:
        """What is wrong with a row."""
        return Fault(f"{self.path}:{row.line}", what, hint)


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
        what, hint = f"cannot be read ({error.strerror})", "name a sheet that was exported"
        raise InputError([Fault(str(path), what, hint)]) from error
    except UnicodeDecodeError as error:
        what, hint = "is not UTF-8", "save it as CSV in UTF-8"
        raise InputError([Fault(str(path), what, hint)]) from error
    csv.field_size_limit(_LONGEST_CELL)
    try:
        lines = list(_lines(text))
    except csv.Error as error:
        what, hint = f"is broken CSV ({error})", "save it as CSV in UTF-8"
        raise InputError([Fault(str(path), what, hint)]) from error
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
        hint = f"keep the header that was exported: {','.join(exported)}"
        faults.append(Fault(f"{path}:1", what, hint))
    if faults:
        raise InputError(faults)


# The claims and verdicts of a run, as they stand in a sheet.


_STEPS: Final = """
SELECT run_steps.step, position, settings->>'of' AS "of"
FROM audit.run_steps JOIN audit.artifacts USING (artifact_id)
WHERE run_steps.run_id = $run AND kind = $kind AND step = coalesce($step::VARCHAR, step)
ORDER BY position
"""

# A text without claims has a row too, in which some can be written.
_CLAIMS: Final = f"""
SELECT $run AS run, texts.sample_id, texts.step, texts."of", claim_id::VARCHAR AS claim_id,
       claim, coalesce(status, 'none') AS status,
       CASE WHEN "start" IS NULL THEN whole
            ELSE substr(whole, "start" + 1, "end" - "start") END AS text
FROM (
    SELECT sample_id, steps.step, position, steps."of",
           CASE steps."of" WHEN 'response' THEN response ELSE reference END AS whole
    FROM samples, ({_STEPS}) steps WHERE samples.run_id = $run
) texts
LEFT JOIN (SELECT * FROM claims WHERE run_id = $run) made USING (sample_id, step)
WHERE claim_id IS NOT NULL OR trim(whole) <> ''
ORDER BY position, texts.sample_id, "start", claim
"""

_VERDICTS: Final = f"""
SELECT $run AS run, about.sample_id, v.step, v.claim_id::VARCHAR AS claim_id, about.claim,
       v.against, v.passage, v.verdict, v.status, v.evidence, v.reason
FROM ({_STEPS}) steps
JOIN (SELECT * FROM verdicts WHERE run_id = $run) v USING (step)
JOIN (
    SELECT claim_id, any_value(sample_id) AS sample_id, any_value(claim) AS claim,
           any_value("start") AS "start"
    FROM claims WHERE run_id = $run GROUP BY claim_id
) about USING (claim_id)
ORDER BY position, about.sample_id, "start", about.claim, v.passage
"""


def sheet_rows(store: Store, run_id: str, kind: Kind, step: str | None = None) -> pl.DataFrame:
    """The rows of a sheet of a run (of one step of it), in the columns of that kind.

    Raises `InputError` where no step of the run, or not that one, makes rows of that kind.
    """
    query = _CLAIMS if kind == "claims" else _VERDICTS
    with store.reading() as connection:
        every = read_table(connection, _STEPS, run=run_id, kind=kind, step=None)["step"]
        if step is not None and step not in every:
            what = f"no step {step!r} of run {run_id} makes {kind}"
            raise InputError([Fault("--step", what, one_of(step, every))])
        if every.is_empty():
            what, hint = f"no step of run {run_id} makes {kind}", "choose a run that has some"
            raise InputError([Fault(str(store.path), what, hint)])
        return read_table(connection, query, run=run_id, kind=kind, step=step)
