"""The tools a stage may ask for, by naming one of these protocols in `run`.

The engine lends them. A stage never learns whether a model sits in this process or
behind an endpoint, nor whether a reply was computed or remembered.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import polars as pl


class Pair(NamedTuple):
    """What an entailment model is asked about: does the premise entail the claim?"""

    premise: str
    claim: str


class Judgement(NamedTuple):
    """An entailment model's answer.

    Three probabilities that sum to 1, and the characters `start:end` of the premise that
    decided (0:0 when none did).
    """

    entailed: float
    contradicted: float
    neutral: float
    start: int
    end: int


class Embedder(Protocol):
    """Turns texts into unit vectors whose dot product is their cosine."""

    def embed(self, texts: Sequence[str]) -> pl.DataFrame:
        """One row per distinct text: `text` (String), `embedding` (Array of Float32)."""
        ...


class EntailmentModel(Protocol):
    """Judges natural language inference, for premises of any length."""

    def judge(self, pairs: Sequence[Pair]) -> Mapping[Pair, Judgement]:
        """One judgement per distinct pair."""
        ...
