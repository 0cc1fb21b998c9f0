"""The embedded entailment model: what a network reads and what can be counted, weighed."""

import importlib
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from claimflow.flows.engine.entailment.features import FEATURES_VERSION
from claimflow.flows.engine.entailment.pairs import measure_pairs
from claimflow.flows.engine.entailment.weights import MODEL_FILE, TOKENIZER_FILE, read_weights
from claimflow.flows.engine.file_digest import sha256_of
from claimflow.stages.tools import Judgement, Pair

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from claimflow.flows.engine.entailment.network import Network

SHIPPED: Final = Path(__file__).parent.parent / "models" / "entailment"

NOTHING: Final = Judgement(0.0, 0.0, 1.0, 0, 0)
"""The judgement where either text has no word: nothing follows, nothing is denied."""


class EmbeddedEntailment:
    """Natural language inference by a network that reads, and by what can be counted.

    The network reads the sentences of the premise that cover the claim; every sentence,
    however long the premise, is weighed for that. Then each sentence of the claim is held
    against the one to three neighbouring sentences that cover it best: how its words,
    numbers, dates and names, negations and opposites stand to these gives features. Fitted
    weights make one judgement of both. It depends on its pair alone. `folder` holds network
    and weights; `threads` bounds the threads of a call, None takes every core. Any thread
    may call any method; they take turns with the network.
    """

    def __init__(self, folder: Path | None = None, threads: int | None = None) -> None:
        self._folder = folder or SHIPPED
        self._threads = threads
        self._weights, self._digest = read_weights(self._folder)
        self._turn = threading.Lock()
        self._loaded: Network | None = None

    @cached_property
    def identity(self) -> dict[str, str | int | float]:
        """What could change a judgement; found without loading the network."""
        files = {name: sha256_of(self._folder / name) for name in (MODEL_FILE, TOKENIZER_FILE)}
        return {"weights": self._digest, "features": FEATURES_VERSION, **files}

    def judge(self, pairs: Sequence[Pair]) -> Mapping[Pair, Judgement]:
        """One judgement per distinct pair; the span is that of the evidence."""
        measured = measure_pairs(pairs, self)
        judged = dict.fromkeys(pairs, NOTHING)
        for pair, (features, start, end) in measured.items():
            judged[pair] = Judgement(*_rounded(self._weights.probabilities(features)), start, end)
        return judged

    def logits(self, pairs: Sequence[tuple[str, str]]) -> "NDArray[float32]":
        """What the network says of each premise, as far as it is read, and claim."""
        with self._turn:
            if self._loaded is None:
                network = importlib.import_module("claimflow.flows.engine.entailment.network")
                self._loaded = network.Network(self._folder, threads=self._threads)
            return self._loaded.logits(pairs)


def _rounded(probabilities: tuple[float, float, float]) -> tuple[float, float, float]:
    """Three digits: beyond them processors differ, and a verdict must not depend on one."""
    entailed, contradicted = (round(p, 3) for p in probabilities[:2])
    return entailed, contradicted, max(0.0, round(1 - entailed - contradicted, 3))
