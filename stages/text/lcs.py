"""Length of the longest common subsequence of two sequences of words."""

from collections.abc import Sequence
from typing import Final, NamedTuple

_BLOCK: Final = 16384


class Block(NamedTuple):
    """Up to 16,384 words in a row: their number, and for each word the bits where it stands."""

    size: int
    places: dict[str, int]


def blocks(words: Sequence[str]) -> list[Block]:
    """`words` in the form that `lcs_length` compares with."""
    made = []
    for first in range(0, len(words), _BLOCK):
        places: dict[str, int] = {}
        part = words[first : first + _BLOCK]
        for place, word in enumerate(part):
            places[word] = places.get(word, 0) | 1 << place
        made.append(Block(len(part), places))
    return made


def lcs_length(words: Sequence[str], source: Sequence[Block]) -> int:
    """Length of the longest common subsequence of `words` and the words of `source`.

    Bit-parallel: one row of the table is one integer, whose zeros count the matches so
    far (Hyyrö, "Bit-parallel LCS-length computation revisited", 2004). The time is words
    times words / 64 of the source; blocks keep the memory proportional to the texts.
    """
    carries = [0] * len(words)
    length = 0
    for size, places in source:
        row = full = (1 << size) - 1
        for i, word in enumerate(words):
            here = places.get(word, 0)
            if not here and not carries[i]:
                continue
            matched = row & here
            moved = row + matched + carries[i]
            carries[i] = moved >> size
            row = (moved | (row - matched)) & full
        length += size - row.bit_count()
    return length
