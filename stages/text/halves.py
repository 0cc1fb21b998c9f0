"""Cut a text in two between sentences, for a model that cannot take it whole."""

import re
from typing import Final

from claimflow.stages.text.sentences import Span, split_sentences

_WORD: Final = re.compile(r"\S+")


def halve(text: str, *, overlap: int) -> tuple[Span, Span] | None:
    """Two spans that cover all sentences of `text`, of about equal length.

    They share the `overlap` sentences on either side of the cut, as far as both stay
    shorter than the text. A text of one sentence is cut between words, where both share
    as many. None when there is nothing to cut.
    """
    pieces = split_sentences(text)
    if len(pieces) < 2:
        pieces = [Span(*match.span()) for match in _WORD.finditer(text)]
    if len(pieces) < 2:
        return None
    middle = (pieces[0].start + pieces[-1].end) / 2
    last = len(pieces) - 1
    cut = min(range(1, len(pieces)), key=lambda number: abs(pieces[number].start - middle))
    # Each half must leave out at least one piece, or cutting would never end.
    left_end = min(cut + overlap, last)
    right_start = max(cut - overlap, 1)
    return (
        Span(pieces[0].start, pieces[left_end - 1].end),
        Span(pieces[right_start].start, pieces[-1].end),
    )
