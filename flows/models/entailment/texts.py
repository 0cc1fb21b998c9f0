"""Claims and premises prepared for judging, and the sentences read as evidence."""

import math
from collections.abc import Iterator, Mapping
from typing import Final

import regex

from claimflow.flows.models.entailment.tokens import Kind, Token, is_content, tokenize
from claimflow.stages.text.sentences import Span, split_sentences

# A claim prepared for judging: its sentences, and what each must find in a premise.


WEIGHTS: Final[dict[Kind, float]] = {
    "stop": 0.3, "unit": 0.7, "word": 1.0, "calendar": 1.2, "name": 1.0, "number": 1.5,
}  # fmt: skip
"""What a token of each kind counts for in coverage."""


_PARTS: Final = 32
"""Parts of a claim that evidence is looked for separately; a longer text has longer parts."""


class Part:
    """One sentence of a claim, or several in a row where a claim has very many.

    `wanted` maps the keys of its content to what they count for; a sentence of stop words
    alone wants those.
    """

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self.text = text
        self.tokens = tokens
        content = [token for token in tokens if is_content(token)] or tokens
        self.wanted = {token.key: WEIGHTS[token.kind] for token in content}
        self.total = sum(self.wanted.values())


class Claim:
    """The parts of a claim that hold at least one token, and all their tokens."""

    def __init__(self, text: str) -> None:
        self.parts: list[Part] = []
        sentences = split_sentences(text)
        step = -(-len(sentences) // _PARTS) or 1
        for first in range(0, len(sentences), step):
            start, end = sentences[first].start, sentences[first : first + step][-1].end
            tokens = tokenize(text, start, end)
            if tokens:
                self.parts.append(Part(text[start:end], tokens))
        self.tokens = [token for part in self.parts for token in part.tokens]


# A premise prepared once for every claim that is judged against it.


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


# What of a premise is read beside a claim: the sentences that cover it, up to a length.


BUDGET: Final = 150
"""Tokens of ours: with the claim they fill the window of the network."""

_LEAST: Final = 0.25
"""What a further sentence must cover to be read."""

_AGAIN: Final = 0.35
"""What covering once more counts for: a second sentence on the same thing may deny it."""

_NEAR: Final = 0.15
"""What standing beside a sentence that is read counts for."""

_COMMON: Final = 0.3
"""What a word that every sentence holds counts for beside one that few hold."""


_LETTER, _LATIN = regex.compile(r"\p{L}"), regex.compile(r"\p{Latin}")


def legible(claim: str) -> bool:
    """Whether the network can read it: it knows Latin letters, and of others next to nothing."""
    return 2 * len(_LATIN.findall(claim)) >= len(_LETTER.findall(claim))


def reading(premise: Premise, claim: Claim) -> str:
    """The pieces of `premise` to read beside `claim`, in their order; all of a short premise.

    Each piece is the one that covers most of what the claim wants and no piece before
    covered, rare words first; what room is left goes to their neighbours, which say what a
    pronoun means. Where text is left out stands an ellipsis.
    """
    if premise.size <= BUDGET or not premise.pieces:
        return premise.text.strip()
    chosen = _with_neighbours(premise, _covering(premise, _worth(premise, claim)) or [0])
    stretches: list[tuple[int, int]] = []
    last = -2
    for piece in sorted(chosen):
        start, end = premise.pieces[piece]
        if piece == last + 1:
            start = stretches.pop()[0]
        stretches.append((start, end))
        last = piece
    return " … ".join(premise.text[start:end] for start, end in stretches)


def _worth(premise: Premise, claim: Claim) -> dict[str, float]:
    """What covering each key of the claim counts for, where the premise holds it."""
    wanted = {key: weight for part in claim.parts for key, weight in part.wanted.items()}
    pieces = len(premise.pieces)
    return {
        key: weight
        * (_COMMON + math.log1p(pieces / len(premise.holding[key])) / math.log1p(pieces))
        for key, weight in wanted.items()
        if key in premise.holding
    }


def _covering(premise: Premise, worth: Mapping[str, float]) -> list[int]:
    """Pieces that together cover most within the budget, the best first."""
    held: dict[int, set[str]] = {}
    for key in worth:
        for piece in premise.holding[key]:
            held.setdefault(piece, set()).add(key)
    chosen: list[int] = []
    covered: set[str] = set()
    left = BUDGET

    def gain(piece: int) -> float:
        fresh = sum(worth[key] for key in sorted(held[piece] - covered))
        again = sum(worth[key] for key in sorted(held[piece] & covered))
        near = _NEAR if any(abs(piece - other) == 1 for other in chosen) else 0
        return round(fresh + _AGAIN * again + near, 6)

    while fits := [p for p in held if p not in chosen and len(premise.tokens[p]) <= left]:
        best = max(fits, key=lambda piece: (gain(piece), -piece))
        if chosen and gain(best) < _LEAST:
            break
        chosen.append(best)
        covered |= held[best]
        left -= len(premise.tokens[best])
    return chosen


def _with_neighbours(premise: Premise, chosen: list[int]) -> set[int]:
    """`chosen` and, while there is room, the pieces before and after each."""
    read = set(chosen)
    left = BUDGET - sum(len(premise.tokens[piece]) for piece in chosen)
    for piece in chosen:
        for near in (piece - 1, piece + 1):
            if 0 <= near < len(premise.pieces) and near not in read:
                size = len(premise.tokens[near])
                if size <= left:
                    read.add(near)
                    left -= size
    return read
