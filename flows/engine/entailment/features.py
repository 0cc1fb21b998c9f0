"""What is measured of a claim and its evidence, as numbers that a logistic model weighs."""

import math
from collections.abc import Sequence
from typing import Final

from claimflow.flows.engine.entailment.alignment import Alignment
from claimflow.flows.engine.entailment.premise import Premise
from claimflow.flows.engine.entailment.tokens import Kind

FEATURES_VERSION: Final = 2
"""Raised when the same texts start to give other numbers."""

READ: Final = ("read_entailed", "read_contradicted")
"""What the network says; the rest is counted."""

SURE: Final = ("complete", "number_missing", "number_alone_missing", "denied", "opposite")
"""What a small network overlooks, and counting does not."""

COUNTED: Final = (*SURE, "covered")
"""What there is to judge by where the network cannot read."""

_EXACT: Final[tuple[Kind, ...]] = ("number", "calendar")
"""Kinds of token for which nothing else will do."""


def measure(
    alignment: Alignment, premise: Premise, logits: Sequence[float] | None
) -> dict[str, float]:
    """Features by name: `COUNTED`, and `READ` where the network has read the pair.

    `logits` are the network's, of entailed, contradicted, neutral. Counted is whether every
    word of the claim is there, whether the premise lacks a number, day or month of it, and
    alone that, and whether one side denies what the other says or says the opposite.
    """
    complete = not alignment.missing
    wrong = [t for t in alignment.missing if t.kind in _EXACT and t.key not in premise.holding]
    claim, evidence = alignment.negations
    return {
        **(_read(*map(float, logits)) if logits is not None else {}),
        "complete": float(complete),
        "number_missing": float(bool(wrong)),
        "number_alone_missing": float(bool(wrong) and len(wrong) == len(alignment.missing)),
        "denied": float(complete and (claim - evidence) % 2 == 1),
        "opposite": float(alignment.opposed),
        "covered": alignment.covered(alignment.missing),
    }


def _read(entailed: float, contradicted: float, neutral: float) -> dict[str, float]:
    """Logarithms of odds: entailed against the others, and contradicted against neutral."""
    high = max(contradicted, neutral)
    either = high + math.log1p(math.exp(min(contradicted, neutral) - high))
    odds = entailed - either, contradicted - neutral
    return dict(zip(READ, odds, strict=True))
