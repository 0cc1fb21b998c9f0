"""Where in a premise the evidence for a sentence of a claim lies."""

from itertools import chain
from typing import Final

from claimflow.flows.engine.entailment.claim import Part
from claimflow.flows.engine.entailment.premise import Premise

_CANDIDATES: Final = 4
"""Pieces around which evidence is looked for."""

_WIDEST: Final = 3
"""Neighbouring pieces that one window of evidence joins at most."""

_PIECE_COST: Final = 0.06
"""What a further piece in the window must add to be worth it."""


def candidates(premise: Premise, part: Part) -> list[int]:
    """The pieces that hold most of what `part` wants; the first ones where many are equal.

    Every piece of the premise is weighed, in time linear in where the words occur.
    """
    held: dict[int, float] = {}
    for key, weight in part.wanted.items():
        for piece in premise.holding.get(key, ()):
            held[piece] = held.get(piece, 0.0) + weight
    best = sorted(held, key=lambda piece: (-held[piece], piece))[:_CANDIDATES]
    others = (piece for piece in range(len(premise.pieces)) if piece not in held)
    return best + [piece for piece, _ in zip(others, range(_CANDIDATES - len(best)), strict=False)]


def best_window(premise: Premise, part: Part) -> range:
    """One to three neighbouring pieces that cover most of `part`, the first of equal ones."""
    found = set(candidates(premise, part))
    near = sorted({piece + step for piece in found for step in range(1 - _WIDEST, _WIDEST)})
    hits = {
        piece: {token.key for token in premise.tokens[piece]} & part.wanted.keys()
        for piece in near
        if 0 <= piece < len(premise.pieces)
    }
    windows = (
        range(first, first + width)
        for width in range(1, _WIDEST + 1)
        for first in hits
        if first + width - 1 in hits and found & set(range(first, first + width))
    )

    def worth(window: range) -> float:
        held = set(chain.from_iterable(hits[piece] for piece in window))
        covered = sum(part.wanted[key] for key in sorted(held)) / part.total
        return round(covered - _PIECE_COST * (len(window) - 1), 9)

    return max(windows, key=worth)
