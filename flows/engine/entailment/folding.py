"""One spelling for words that differ in case and accents only."""

import unicodedata
from functools import lru_cache
from typing import Final

REMEMBERED: Final = 1 << 16
"""Words whose normal forms are kept at hand."""


@lru_cache(maxsize=REMEMBERED)
def fold(word: str) -> str:
    """`word` in lower case and without accents; empty when it is nothing but accents."""
    lower = word.lower()
    if lower.isascii():
        return lower
    decomposed = unicodedata.normalize("NFKD", lower)
    return "".join(c for c in decomposed if not unicodedata.combining(c)) or lower


def folded(words: str) -> tuple[str, ...]:
    """Each of `words`, which white space separates, folded."""
    return tuple(map(fold, words.split()))
