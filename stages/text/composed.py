"""Letters with marks as one character where there is one: é, not e and an accent behind it.

What looks the same should be the same to whoever compares characters; texts out of PDF files
and file names often have the marks apart.
"""

import unicodedata
from typing import Final

import regex

# The most marks in a row that Unicode expects of any text (UAX #15, stream-safe text).
# Composing takes quadratic time on a long run of them.
_LONG_RUN: Final = regex.compile(r"\p{M}{31}")


def composed(text: str) -> str:
    """`text` in Normalization Form C; as it is where it holds over 30 marks in a row."""
    if text.isascii() or _LONG_RUN.search(text) or unicodedata.is_normalized("NFC", text):
        return text
    return unicodedata.normalize("NFC", text)


def is_composed(text: str) -> bool:
    """Whether `text` and all of its parts are as `composed` makes them."""
    if text.isascii():
        return True
    return not _LONG_RUN.search(text) and unicodedata.is_normalized("NFC", text)
