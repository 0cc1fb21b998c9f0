"""Texts as cells of a spreadsheet that it takes for text, and back."""

import re
from typing import Final

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
