"""Sheets read and saved in tests as a spreadsheet program does it."""

import csv
import io
from pathlib import Path

from claimflow.flows.quality.csv_sheets import escape_formula, unescape_formula

SHEET = Path("sheet.csv")

Row = dict[str, str]


def read_sheet() -> list[Row]:
    """The rows of the sheet in the current folder, by column."""
    text = SHEET.read_bytes().decode("utf-8-sig")
    rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    return [{name: unescape_formula(cell) for name, cell in row.items()} for row in rows]


def save_sheet(rows: list[Row]) -> None:
    """Replace the rows of the sheet."""
    with SHEET.open("w", newline="", encoding="utf-8") as file:
        sheet = csv.DictWriter(file, list(rows[0]))
        sheet.writeheader()
        sheet.writerows({name: escape_formula(cell) for name, cell in row.items()} for row in rows)
