"""Claims and premises split and tokenised, and the excerpt of a premise that the network reads."""

import math
import re
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final

import regex

from claimflow.flows.models.entailment.tokens import Kind, Token, is_content, tokenize
from claimflow.stages.text.sentences import Span, split_sentences

KIND_WEIGHTS: Final[dict[Kind, float]] = {
    "stop": 0.3, "unit": 0.7, "word": 1.0, "calendar": 1.2, "name": 1.0, "number": 1.5,
}  # fmt: skip
"""The weight of a token of each kind in coverage."""

_MAX_PARTS: Final = 32
"""Parts of a claim for which evidence is searched separately; a longer claim has longer parts."""

MAX_PIECE_TOKENS: Final = 96
"""Tokens of the longest piece of a premise."""

_OVERLAP: Final = 24
"""Tokens that neighbouring pieces of one sentence share."""

_MAX_GAP: Final = 200
"""A sentence is also cut where this many characters have no token."""

EXCERPT_TOKENS: Final = 150
"""Tokens (of `tokenize`) in an excerpt: with a claim they fill the window of the network."""

_MIN_GAIN: Final = 0.25
"""The weight that one more piece of an excerpt must cover."""

_REPEATED: Final = 0.35
"""Weight of what is covered already: a second sentence on the same subject may negate it."""

_ADJACENT: Final = 0.15
"""Weight of standing beside a piece of the excerpt."""

_COMMON: Final = 0.3
"""Weight of a word that every piece has, relative to that of a rare word."""

_LETTER, _LATIN = regex.compile(r"\p{L}"), regex.compile(r"\p{Latin}")


class ClaimPart:
    """One sentence of a claim, or several neighbours where a claim has more than 32.

    `weights` maps the keys of its content tokens (of all tokens, if none is content) to their
    weights, `total` is the sum of these.
    """

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        content = [token for token in tokens if is_content(token)] or tokens
        self.weights = {token.key: KIND_WEIGHTS[token.kind] for token in content}
        self.total = sum(self.weights.values())


class PreparedClaim:
    """The parts of a claim that have at least one token, and all their tokens."""

    def __init__(self, text: str) -> None:
        self.parts: list[ClaimPart] = []
        sentences = split_sentences(text)
        step = -(-len(sentences) // _MAX_PARTS) or 1
        for first in range(0, len(sentences), step):
            start, end = sentences[first].start, sentences[first : first + step][-1].end
            tokens = tokenize(text, start, end)
            if tokens:
                self.parts.append(ClaimPart(tokens))
        self.tokens = [token for part in self.parts for token in part.tokens]


class PreparedPremise:
    """A premise in pieces, prepared once for all its claims.

    A piece is a sentence; one of more than `MAX_PIECE_TOKENS` tokens is cut into overlapping
    pieces. `pieces` are spans of `text`, `tokens` the tokens of each piece, `size` their number,
    and `pieces_by_key` the numbers of the pieces that have a content key, in order.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.pieces: list[Span] = []
        self.tokens: list[list[Token]] = []
        self.pieces_by_key: dict[str, list[int]] = {}
        for sentence in split_sentences(text):
            for tokens in _cut(tokenize(text, sentence.start, sentence.end)):
                self._add(tokens)
        self.size = sum(map(len, self.tokens))

    def _add(self, tokens: list[Token]) -> None:
        number = len(self.pieces)
        self.pieces.append(Span(tokens[0].start, tokens[-1].end))
        self.tokens.append(tokens)
        for key in {token.key for token in tokens if is_content(token)}:
            self.pieces_by_key.setdefault(key, []).append(number)


def _cut(tokens: list[Token]) -> Iterator[list[Token]]:
    """The `tokens` of a sentence, cut at gaps and then into overlapping pieces."""
    first = 0
    for place in range(1, len(tokens) + 1):
        if place == len(tokens) or tokens[place].start - tokens[place - 1].end > _MAX_GAP:
            step = MAX_PIECE_TOKENS - _OVERLAP
            for start in range(first, max(first + 1, place - _OVERLAP), step):
                yield tokens[start : min(start + MAX_PIECE_TOKENS, place)]
            first = place


def is_mostly_latin(claim: str) -> bool:
    """Whether at least half of the letters are Latin; the network hardly knows others."""
    return 2 * len(_LATIN.findall(claim)) >= len(_LETTER.findall(claim))


_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3}){1,5}(?!\d|[.,]\d)")
"""A whole number with commas between thousands."""

_DIGITS = re.compile(r"(?<![\d.,])\d{4,18}(?!\d|[.,]\d)")
"""One without; no longer, as Python refuses to convert very long ones."""


_AMOUNT = re.compile(
    r"(?<![\w.,])([$€£¥]\d[\d.,]{0,18}\s?(?:[kmb]|mn|bn|tn)|\d[\d.,]{0,18}\s?(?:mn|bn|tn))\b",
    re.IGNORECASE,
)
"""An amount with its scale in short: $310m, 4.2bn. "310 m" may be metres."""

_SCALES = {
    **{"k": "thousand", "m": "million", "mn": "million"},
    **{"b": "billion", "bn": "billion", "tn": "trillion"},
}


def spelled_out(text: str) -> str:
    """`text` with "million" for the "m" of "$310m", which the network does not know."""

    def long(match: re.Match[str]) -> str:
        number = match[0].rstrip("kmbntKMBNT")
        return f"{number.rstrip()} {_SCALES[match[0][len(number) :].lower()]}"

    return _AMOUNT.sub(long, text)


def numbers_as_in(premise: str, claim: str) -> str:
    """`claim` with its numbers written as in `premise`, with or without commas between thousands.

    The network reads "2,300" as three tokens and "2300" as another one.
    """
    grouped, plain = set(_GROUPED.findall(premise)), set(_DIGITS.findall(premise))

    def other(match: re.Match[str]) -> str:
        number = match[0]
        written = f"{int(number):,}" if "," not in number else number.replace(",", "")
        there, own = (grouped, plain) if "," in written else (plain, grouped)
        return written if written in there and number not in own else number

    return _GROUPED.sub(other, _DIGITS.sub(other, claim))


def premise_excerpt(premise: PreparedPremise, claim: PreparedClaim) -> str:
    """The text of `premise` that the network reads with `claim`: all of a short premise.

    Of a long one these are the pieces, in their order, that greedily cover most of the claim's
    content, where rare words weigh more. Tokens that are left go to their neighbours, which say
    what a pronoun refers to. An ellipsis stands for text that is left out.
    """
    if premise.size <= EXCERPT_TOKENS or not premise.pieces:
        return premise.text.strip()
    covering = _covering_pieces(premise, _key_weights(premise, claim)) or [0]
    spans: list[tuple[int, int]] = []
    last = -2
    for piece in sorted(_with_neighbours(premise, covering)):
        start, end = premise.pieces[piece]
        if piece == last + 1:
            start = spans.pop()[0]
        spans.append((start, end))
        last = piece
    return " … ".join(premise.text[start:end] for start, end in spans)


def _key_weights(premise: PreparedPremise, claim: PreparedClaim) -> dict[str, float]:
    """The weight of each key of the claim that the premise has: higher for rare ones."""
    weights = {key: weight for part in claim.parts for key, weight in part.weights.items()}
    pieces = len(premise.pieces)
    return {
        key: weight
        * (_COMMON + math.log1p(pieces / len(premise.pieces_by_key[key])) / math.log1p(pieces))
        for key, weight in weights.items()
        if key in premise.pieces_by_key
    }


def _covering_pieces(premise: PreparedPremise, weights: Mapping[str, float]) -> list[int]:
    """Pieces chosen greedily by the weight they add, within `EXCERPT_TOKENS`."""
    keys_of: dict[int, set[str]] = {}
    for key in weights:
        for piece in premise.pieces_by_key[key]:
            keys_of.setdefault(piece, set()).add(key)
    # Pieces with the same keys gain the same, but for those beside a chosen one.
    alike: dict[frozenset[str], deque[int]] = {}
    for piece in sorted(keys_of):
        alike.setdefault(frozenset(keys_of[piece]), deque()).append(piece)
    chosen: dict[int, None] = {}
    covered: set[str] = set()
    left = EXCERPT_TOKENS

    def gain(piece: int) -> float:
        new = sum(weights[key] for key in sorted(keys_of[piece] - covered))
        repeated = sum(weights[key] for key in sorted(keys_of[piece] & covered))
        adjacent = _ADJACENT if piece - 1 in chosen or piece + 1 in chosen else 0
        return round(new + _REPEATED * repeated + adjacent, 6)

    def fits(piece: int) -> bool:
        return piece not in chosen and len(premise.tokens[piece]) <= left

    while True:
        candidates = [near for one in chosen for near in (one - 1, one + 1) if near in keys_of]
        for pieces in alike.values():
            while pieces and not fits(pieces[0]):
                pieces.popleft()
            candidates += [pieces[0]] if pieces else []
        candidates = [piece for piece in candidates if fits(piece)]
        best = max(candidates, key=lambda piece: (gain(piece), -piece), default=None)
        if best is None or (chosen and gain(best) < _MIN_GAIN):
            return list(chosen)
        chosen[best] = None
        covered |= keys_of[best]
        left -= len(premise.tokens[best])


def _with_neighbours(premise: PreparedPremise, chosen: list[int]) -> set[int]:
    """`chosen` and, within `EXCERPT_TOKENS`, the pieces before and after each."""
    pieces = set(chosen)
    left = EXCERPT_TOKENS - sum(len(premise.tokens[piece]) for piece in chosen)
    for piece in chosen:
        for near in (piece - 1, piece + 1):
            if 0 <= near < len(premise.pieces) and near not in pieces:
                size = len(premise.tokens[near])
                if size <= left:
                    pieces.add(near)
                    left -= size
    return pieces
