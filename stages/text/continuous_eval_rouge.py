"""ROUGE-L as continuous-eval 0.3 computes it: the package `rouge` 1.0.1 at summary level.

Both texts are cut at every full stop. The distinct words that stand in the longest common
subsequence of any two pieces are counted, over the distinct words of either text. Which
of several equally long subsequences is taken matters then, so the rule for ties is kept.
"""

import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

_PUNCTUATION: Final = frozenset(string.punctuation)
_BLOCK: Final = 1024


class Triple(NamedTuple):
    """Precision is the share of a text found in its source, recall the reverse; in [0, 1]."""

    precision: float
    recall: float
    f1: float


class EmptySourceError(ValueError):
    """The source holds nothing but full stops: `rouge` gives no number for it."""


class _Piece(NamedTuple):
    """The words between two full stops, in order and distinct."""

    words: list[str]
    distinct: frozenset[str]


def rouge_with(source: str) -> Callable[[str], Triple]:
    """ROUGE-L of texts against `source`, which is prepared once for all of them.

    The function returned raises `EmptySourceError` when the source has no piece, unless its
    text is ASCII punctuation alone, or nothing: that has 0 against every source.
    """
    source_pieces = _pieces(source)
    in_source = frozenset[str]().union(*(piece.distinct for piece in source_pieces))

    def rouge(text: str) -> Triple:
        if _PUNCTUATION.issuperset(text):
            return Triple(0.0, 0.0, 0.0)
        if not source_pieces:
            raise EmptySourceError
        pieces = _pieces(text)
        distinct = frozenset[str]().union(*(piece.distinct for piece in pieces))
        common = len(_union(source_pieces, pieces))
        precision, recall = common / len(distinct), common / len(in_source)
        f1 = 2 * (precision * recall) / (precision + recall + 1e-8)
        return Triple(precision, recall, f1)

    return rouge


def _pieces(text: str) -> list[_Piece]:
    # A piece of white space alone is one empty word.
    lists = [part.split() or [""] for part in text.split(".") if part]
    return [_Piece(words, frozenset(words)) for words in lists]


def _union(source_pieces: Sequence[_Piece], pieces: Sequence[_Piece]) -> set[str]:
    """The words of the longest common subsequences of all pairs of pieces."""
    union: set[str] = set()
    for words, distinct in pieces:
        places = _places(words)
        for source_piece in source_pieces:
            common = distinct & source_piece.distinct
            if len(common) == 1:
                union |= common
            elif not common <= union:
                union.update(_common_words(source_piece.words, words, places))
    return union


def _places(words: Sequence[str]) -> dict[str, int]:
    """For each word the bits where it stands."""
    places: dict[str, int] = {}
    for place, word in enumerate(words):
        places[word] = places.get(word, 0) | 1 << place
    return places


def _common_words(
    source: Sequence[str], words: Sequence[str], places: Mapping[str, int]
) -> Iterator[str]:
    """One longest common subsequence, last word first.

    Walked back through the table of lengths L: equal words are taken; else the last word of
    the source is dropped if L without it exceeds L without the last of `words`, else the
    latter is. Unequal words leave L the larger of both, so the source's word goes if and
    only if L grew at the other: one bit of each cell decides. A row of the table is one
    integer (Hyyrö 2004, see `lcs`); rows are made again block by block, so that the memory
    stays proportional to the texts.
    """
    # A word that stands nowhere in the other text changes neither L nor the words taken.
    rows = [places[word] for word in source if word in places]
    blocks = [rows[first : first + _BLOCK] for first in range(0, len(rows), _BLOCK)]
    full = (1 << len(words)) - 1
    starts = [full]
    for block in blocks[:-1]:
        starts.append(_table(block, starts[-1], full)[-1])
    end = len(words)
    for block, start in zip(reversed(blocks), reversed(starts), strict=True):
        for here, row in zip(reversed(block), reversed(_table(block, start, full)), strict=True):
            end = ((here | (full ^ row)) & ((1 << end) - 1)).bit_length()
            if not end:
                return
            if here >> (end - 1) & 1:
                end -= 1
                yield words[end]


def _table(rows: Sequence[int], row: int, full: int) -> list[int]:
    """The rows of L: a bit is 0 where L grows at that word of the piece."""
    table = []
    for here in rows:
        matched = row & here
        row = ((row + matched) | (row - matched)) & full
        table.append(row)
    return table
