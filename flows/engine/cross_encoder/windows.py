"""A premise cut into windows of whole sentences that a model can read at a time."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from claimflow.stages.text.sentences import Span, split_sentences

WINDOWS_VERSION: Final = 1
"""Raised when the same premise comes to be cut in another way."""


class _Piece(NamedTuple):
    """A sentence, or a part of one that is longer than a window, and how many tokens it has."""

    span: Span
    tokens: int


def windows(premise: str, tokens: Sequence[tuple[int, int]], room: int) -> list[Span]:
    """Spans of `premise` that hold at most `room` of its `tokens` each, and all of them together.

    `tokens` are the characters of each token, in order. A window begins with the last sentence
    of the one before, where the next one fits beside it, so that few sentences stand without
    what was said before them. A sentence that is longer than a window is cut into pieces that
    share a quarter of it. None where there is no token.
    """
    pieces = list(_pieces(premise, [token for token in tokens if token[1] > token[0]], room))
    found: list[Span] = []
    first = 0
    while first < len(pieces):
        last, held = first, pieces[first].tokens
        while last + 1 < len(pieces) and held + pieces[last + 1].tokens <= room:
            last += 1
            held += pieces[last].tokens
        found.append(Span(pieces[first].span.start, pieces[last].span.end))
        rest = pieces[last : last + 2]
        shared = last > first and len(rest) == 2 and rest[0].tokens + rest[1].tokens <= room
        first = last if shared else last + 1
    return found


def _pieces(premise: str, tokens: Sequence[tuple[int, int]], room: int) -> Iterator[_Piece]:
    """The sentences that hold a token, those that are too long in overlapping parts."""
    starts = [start for start, _ in tokens]
    for sentence in split_sentences(premise):
        held = tokens[bisect_left(starts, sentence.start) : bisect_left(starts, sentence.end)]
        if len(held) <= room:
            if held:
                yield _Piece(sentence, len(held))
            continue
        step = room - room // 4
        for begin in range(0, len(held) - room // 4, step):
            part = held[begin : begin + room]
            yield _Piece(Span(part[0][0], part[-1][1]), len(part))
