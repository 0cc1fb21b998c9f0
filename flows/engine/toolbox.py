"""Which tool serves which protocol; every tool asks the ledger first."""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import polars as pl

from flows.engine.embedder import OnnxEmbedder
from flows.engine.entailment import EmbeddedEntailment
from flows.engine.errors import StoppedError
from flows.engine.ledger import Ledger
from flows.engine.recent import RecentEmbedder
from stages.base import Stage
from stages.keys import content_key
from stages.tools import Embedder, EntailmentModel, Judgement, Pair

Question = TypeVar("Question")

_BATCH: Final = 100
"""Questions asked before their replies are put on file: what a killed run can lose, and how
long a stopped one goes on."""


class Memory:
    """Asks a model only what the ledger does not hold, until the run is asked to stop."""

    def __init__(self, ledger: Ledger, stop: threading.Event) -> None:
        self._ledger = ledger
        self._stop = stop

    def replies(
        self,
        tool: str,
        keys: Mapping[Question, str],
        ask: Callable[[list[Question]], Mapping[Question, bytes]],
    ) -> dict[Question, bytes]:
        """The reply to each question, `keys` giving its key; new ones are on file first.

        Raises `StoppedError` between batches when the run was asked to stop.
        """
        known = self._ledger.recall(list(keys.values()))
        missing = [question for question, key in keys.items() if key not in known]
        for start in range(0, len(missing), _BATCH):
            if self._stop.is_set():
                raise StoppedError
            answered = ask(missing[start : start + _BATCH])
            fresh = {keys[question]: reply for question, reply in answered.items()}
            self._ledger.remember(tool, fresh)
            known |= fresh
        return {question: known[key] for question, key in keys.items()}


class RememberingEmbedder:
    """An `Embedder` that computes no embedding twice."""

    def __init__(self, model: OnnxEmbedder, memory: Memory) -> None:
        self.identity = model.identity
        self._model = model
        self._memory = memory

    def embed(self, texts: Sequence[str]) -> pl.DataFrame:
        """As `Embedder.embed`."""
        keys = {text: content_key("embedding", self.identity, text) for text in texts}
        replies = self._memory.replies("embedder", keys, self._model.vectors)
        return self._model.table(list(replies), list(replies.values()))


class RememberingEntailment:
    """An `EntailmentModel` that judges no pair twice."""

    def __init__(self, model: EmbeddedEntailment, memory: Memory) -> None:
        self.identity = model.identity
        self._model = model
        self._memory = memory

    def judge(self, pairs: Sequence[Pair]) -> dict[Pair, Judgement]:
        """As `EntailmentModel.judge`."""
        keys = {pair: content_key("entailment", self.identity, *pair) for pair in pairs}
        replies = self._memory.replies("entailment", keys, self._ask)
        return {pair: Judgement(*json.loads(reply)) for pair, reply in replies.items()}

    def _ask(self, pairs: list[Pair]) -> dict[Pair, bytes]:
        return {
            pair: json.dumps(judged).encode() for pair, judged in self._model.judge(pairs).items()
        }


class Toolbox:
    """Lends the tools of one pipeline. A model is loaded when first asked something new."""

    def __init__(
        self, ledger: Ledger, *, stop: threading.Event, embedder: Path | None = None
    ) -> None:
        memory = Memory(ledger, stop)
        onnx = OnnxEmbedder(embedder)
        entailment = EmbeddedEntailment(RecentEmbedder(onnx))
        self._tools: dict[type, Any] = {
            Embedder: RememberingEmbedder(onnx, memory),
            EntailmentModel: RememberingEntailment(entailment, memory),
        }

    def lend(self, stage: Stage) -> dict[str, Any]:
        """The tools that a stage asks for, by the name of its parameter."""
        return {name: self._tools[protocol] for name, protocol in stage.tools.items()}

    def identities(self, stage: Stage) -> dict[str, dict[str, Any]]:
        """For each tool that a stage asks for, everything that could change its replies."""
        return {name: tool.identity for name, tool in self.lend(stage).items()}
