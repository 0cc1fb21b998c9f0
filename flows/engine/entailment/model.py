"""The embedded entailment model: features of a pair, weighed by logistic regression."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final, Protocol

from flows.engine.entailment.features import FEATURES_VERSION
from flows.engine.entailment.pairs import measure_pairs
from flows.engine.entailment.weights import read_weights
from stages.tools import Embedder, Judgement, Pair

SHIPPED: Final = Path(__file__).parent.parent / "models" / "entailment"

NOTHING: Final = Judgement(0.0, 0.0, 1.0, 0, 0)
"""The judgement where either text has no word: nothing follows, nothing is denied."""


class IdentifiedEmbedder(Embedder, Protocol):
    """An embedder that names everything that could change its vectors."""

    @property
    def identity(self) -> dict[str, str | int | float]:
        """Names and values, found without loading the model."""
        ...


class EmbeddedEntailment:
    """Natural language inference by evidence, alignment and fitted weights.

    Each sentence of a claim is held against the one to three neighbouring sentences of
    the premise that cover it best; every sentence of the premise, however long, is
    weighed. How the claim's words, numbers, dates and names, negations and opposites
    stand to that evidence gives features, and `weights_folder` the weights for them. A
    judgement depends on its pair alone. Any thread may call any method.
    """

    def __init__(self, embedder: IdentifiedEmbedder, weights_folder: Path | None = None) -> None:
        self._embedder = embedder
        self._weights, self._digest = read_weights(weights_folder or SHIPPED)

    @cached_property
    def identity(self) -> dict[str, str | int | float]:
        """What could change a judgement; found without loading a model."""
        embedder = {f"embedder.{name}": value for name, value in self._embedder.identity.items()}
        return {"weights": self._digest, "features": FEATURES_VERSION, **embedder}

    def judge(self, pairs: Sequence[Pair]) -> Mapping[Pair, Judgement]:
        """One judgement per distinct pair; the span is that of the evidence."""
        measured = measure_pairs(pairs, self._embedder)
        judged = dict.fromkeys(pairs, NOTHING)
        for pair, (features, start, end) in measured.items():
            judged[pair] = Judgement(*_rounded(self._weights.probabilities(features)), start, end)
        return judged


def _rounded(probabilities: tuple[float, float, float]) -> tuple[float, float, float]:
    """Three digits: beyond them processors differ, and a verdict must not depend on one."""
    entailed, contradicted = (round(p, 3) for p in probabilities[:2])
    return entailed, contradicted, max(0.0, round(1 - entailed - contradicted, 3))
