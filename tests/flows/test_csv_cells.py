"""Cells of CSV sheets: formulas are escaped, and every text is restored."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.flows.quality.csv_sheets import escape_formula, normalize_newlines, unescape_formula

HOSTILE = [
    '=HYPERLINK("http://evil","x")',
    "+1+1",
    "-5 degrees",
    "@SUM(A1)",
    "\tx",
    "\r=1",
    "\n=1",
    "  =1+1",
    "＝1",
    "＋1",
    "－1",
    "＠A1",
]
CHARACTERS = st.characters(exclude_categories=["Cs"])
TEXTS = st.text(CHARACTERS) | st.text("'=+-@ \t\r\n\"a,;＝🗼")


@pytest.mark.parametrize("text", HOSTILE)
def test_possible_formulas_are_escaped(text: str) -> None:
    assert escape_formula(text) == f"'{text}"
    assert unescape_formula(f"'{text}") == text


@pytest.mark.parametrize("text", ["", "a = b", "'tis so", "''", "1889", "'", "a\n=b", '"=1"'])
def test_other_texts_are_unchanged(text: str) -> None:
    assert escape_formula(text) == text
    assert unescape_formula(text) == text


def test_a_text_that_looks_escaped_is_escaped_once_more() -> None:
    assert escape_formula("'=1") == "''=1"
    assert unescape_formula("''=1") == "'=1"


@given(TEXTS)
def test_every_text_is_restored_and_no_cell_is_a_formula(text: str) -> None:
    cell = escape_formula(text)
    assert unescape_formula(cell) == text
    assert not cell.lstrip().startswith(("=", "+", "-", "@", "＝", "＋", "－", "＠"))
    assert not cell.startswith(("\t", "\r", "\n"))


@given(st.lists(TEXTS, min_size=1))
def test_every_row_of_texts_is_restored_through_csv(texts: list[str]) -> None:
    text = io.StringIO(newline="")
    csv.writer(text).writerow([escape_formula(one) for one in texts])
    (cells,) = csv.reader(io.StringIO(text.getvalue(), newline=""), strict=True)
    assert [unescape_formula(cell) for cell in cells] == texts


def test_line_ends_are_normalized() -> None:
    assert normalize_newlines("a\r\nb\rc\n") == "a\nb\nc\n"
