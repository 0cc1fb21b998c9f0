"""A premise prepared once for every claim that is judged against it."""

from collections.abc import Iterator
from typing import Final

from claimflow.flows.engine.entailment.tokens import Token, is_content, tokenize
from claimflow.stages.text.sentences import Span, split_sentences

LONGEST: Final = 96
"""Tokens of the longest piece that counts as one sentence."""

_OVERLAP: Final = 24
"""Tokens that neighbouring pieces of a longer sentence share."""

_GAP: Final = 200
"""A sentence is also cut where this many characters hold no token."""


class Premise:
    """The pieces of a text in which evidence is looked for: its sentences.

    A sentence of more than `LONGEST` tokens is cut into overlapping pieces, so that no
    token is left out and no piece is long. `pieces` are spans of `text`, `tokens` the
    tokens of each piece, `holding` the pieces in which a content key occurs, in order.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.pieces: list[Span] = []
        self.tokens: list[list[Token]] = []
        self.holding: dict[str, list[int]] = {}
        for sentence in split_sentences(text):
            for tokens in _cut(tokenize(text, sentence.start, sentence.end)):
                self._add(tokens)
        self.size = sum(map(len, self.tokens))

    def _add(self, tokens: list[Token]) -> None:
        number = len(self.pieces)
        self.pieces.append(Span(tokens[0].start, tokens[-1].end))
        self.tokens.append(tokens)
        for key in {token.key for token in tokens if is_content(token)}:
            self.holding.setdefault(key, []).append(number)

    def piece(self, number: int) -> str:
        """Text of one piece."""
        start, end = self.pieces[number]
        return self.text[start:end]


def _cut(tokens: list[Token]) -> Iterator[list[Token]]:
    """`tokens` of a sentence in stretches without gaps, and these in overlapping pieces."""
    first = 0
    for place in range(1, len(tokens) + 1):
        if place == len(tokens) or tokens[place].start - tokens[place - 1].end > _GAP:
            for start in range(first, max(first + 1, place - _OVERLAP), LONGEST - _OVERLAP):
                yield tokens[start : min(start + LONGEST, place)]
            first = place
