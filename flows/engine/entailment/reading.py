"""What of a premise is read beside a claim: the sentences that cover it, up to a length."""

import math
from collections.abc import Mapping
from typing import Final

import regex

from claimflow.flows.engine.entailment.claim import Claim
from claimflow.flows.engine.entailment.premise import Premise

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
