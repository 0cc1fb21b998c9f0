"""The tools lent to stages, each backed by the ledger."""

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import polars as pl

from claimflow.flows.errors import StoppedError
from claimflow.flows.judge.embedding import EndpointEmbedder
from claimflow.flows.judge.judge import EndpointJudge
from claimflow.flows.judge.panel import JudgePanel, Judging
from claimflow.flows.judge.session import Session
from claimflow.flows.judge.sharing import SharingJudge, StepGroup, steps_that_share
from claimflow.flows.models.loading import ModelSource, load_entailment_model
from claimflow.flows.models.parser import EmbeddedParser
from claimflow.flows.models.sentence_encoder import SentenceEncoder
from claimflow.flows.pipeline.model_settings import EmbeddingEndpoint
from claimflow.flows.pipeline.pipeline import Pipeline
from claimflow.flows.pipeline.wiring import Step
from claimflow.flows.runner.embedded_models import (
    judgement_replies,
    worker_judgements,
    worker_vectors,
)
from claimflow.flows.runner.workers import Workers
from claimflow.flows.store.ledger import Ledger
from claimflow.stages.rows import content_key
from claimflow.stages.tools import LLM, Embedder, EntailmentModel, Judgement, Pair, Parser, Word

Asked = TypeVar("Asked")
Batches = Sequence[Sequence[Any]]

_BATCH: Final = 100
"""Questions per batch; a stopped run finishes the current batch."""

_SENTENCES: Final = 500
"""Sentences parsed at once, in a few seconds; a stopped run finishes them."""

_WORTH: Final = 10
"""Batches that are worth loading the entailment model in another worker."""

_HELD: Final = 1.0
"""Seconds between two writes of replies; a killed run loses at most those since the last."""


class ReplyCache:
    """Asks a model only for replies that are not in the ledger, until the run is stopped."""

    def __init__(self, ledger: Ledger, stop: threading.Event) -> None:
        self._ledger = ledger
        self._stop = stop

    def replies(
        self,
        tool: str,
        keys: Mapping[Asked, str],
        ask: Callable[[Sequence[list[Asked]]], Iterator[Sequence[bytes]]],
    ) -> dict[Asked, bytes]:
        """The reply to each question, `keys` giving its key; new ones are on file first.

        `ask` gives the replies to batches of questions, one by one. Raises `StoppedError`
        between batches when the run was asked to stop.
        """
        known = self._ledger.recall(list(keys.values()))
        missing = [question for question, key in keys.items() if key not in known]
        batches = [missing[start : start + _BATCH] for start in range(0, len(missing), _BATCH)]
        fresh: dict[str, bytes] = {}
        written = time.monotonic()
        for batch, replies in zip(batches, self._unless_stopped(ask(batches)), strict=True):
            fresh |= zip((keys[question] for question in batch), replies, strict=True)
            if time.monotonic() - written > _HELD:
                self._ledger.remember(tool, fresh)
                known |= fresh
                fresh, written = {}, time.monotonic()
        if fresh:
            self._ledger.remember(tool, fresh)
            known |= fresh
        return {question: known[key] for question, key in keys.items()}

    def _unless_stopped(self, replies: Iterator[Sequence[bytes]]) -> Iterator[Sequence[bytes]]:
        while not self._stop.is_set():
            try:
                yield next(replies)
            except StopIteration:
                return
        raise StoppedError


class CachedEmbedder:
    """The encoder in `folder` (None: that of claimflow), which computes no embedding twice.

    A vector depends on its text alone, not on the batch or the process, so workers can compute it.
    """

    def __init__(self, folder: Path | None, workers: Workers | None, cache: ReplyCache) -> None:
        self._folder = folder
        self._encoder = SentenceEncoder(folder)
        self._workers = workers
        self._cache = cache
        self.identity = self._encoder.identity
        self.languages = self._encoder.languages

    def embed(self, texts: Sequence[str]) -> pl.DataFrame:
        """As `Embedder.embed`."""
        keys = {text: content_key("embedding", self.identity, text) for text in texts}
        replies = self._cache.replies("embedder", keys, self._vectors)
        return self._encoder.table(list(replies), list(replies.values()))

    def _vectors(self, batches: Batches) -> Iterator[list[bytes]]:
        """The embeddings of each batch of distinct texts, as bytes of 32-bit floats."""
        # Not on local workers: the threads of the encoder use all cores as well as they do.
        if self._workers and self._workers.worth(1):
            chunks = ((self._folder, self.identity, texts) for texts in batches)
            return self._workers.each(worker_vectors, chunks, what="embeddings")
        return (list(self._encoder.vectors(texts).values()) for texts in batches)


class CachedEntailment:
    """The entailment model at `source` (None: that of claimflow), which judges no pair twice.

    Workers can judge, too. A model of the Hub that is not on this machine gives no judgements.
    """

    def __init__(self, source: ModelSource, workers: Workers | None, cache: ReplyCache) -> None:
        self._source = source
        self._model = load_entailment_model(source)
        self._workers = workers
        self._cache = cache
        self.identity = self._model.identity
        self.languages = self._model.languages

    def judge(self, pairs: Sequence[Pair]) -> dict[Pair, Judgement]:
        """As `EntailmentModel.judge`."""
        keys = entailment_keys(self.identity, pairs)
        replies = self._cache.replies("entailment", keys, self._judgements)
        return {pair: Judgement(*json.loads(reply)) for pair, reply in replies.items()}

    def _judgements(self, batches: Batches) -> Iterator[list[bytes]]:
        if self._workers and self._workers.worth(len(batches) // _WORTH):
            chunks = ((self._source, self.identity, pairs) for pairs in batches)
            return self._workers.each(worker_judgements, chunks, what="verdicts")
        return (judgement_replies(self._model, pairs) for pairs in batches)


def entailment_keys(identity: Mapping[str, Any], pairs: Sequence[Pair]) -> dict[Pair, str]:
    """The key under which the judgement of each pair is recorded."""
    return {pair: content_key("entailment", identity, *pair) for pair in pairs}


class StoppableParser:
    """The parser that claimflow carries, until the run is stopped.

    Its trees are not recorded: a stage that asks no other tool runs on workers as a whole, and
    its rows of unchanged samples are reused.
    """

    def __init__(self, stop: threading.Event) -> None:
        self._parser = EmbeddedParser()
        self._stop = stop
        self.languages = self._parser.languages

    @property
    def identity(self) -> dict[str, str | int | float]:
        """Everything that could change a tree; known without loading the network."""
        return self._parser.identity

    def parse(self, sentences: Sequence[str]) -> dict[str, tuple[Word, ...]]:
        """As `Parser.parse`. Raises `StoppedError` when the run was asked to stop."""
        distinct = list(dict.fromkeys(sentences))
        trees: dict[str, tuple[Word, ...]] = {}
        for start in range(0, len(distinct), _SENTENCES):
            if self._stop.is_set():
                raise StoppedError
            trees |= self._parser.parse(distinct[start : start + _SENTENCES])
        return trees


class StepEmbedder:
    """An `Embedder` for one step: an endpoint that records which step asked."""

    def __init__(self, embedder: EndpointEmbedder, step: str) -> None:
        self.identity = embedder.identity
        self._embedder = embedder
        self._step = step

    def embed(self, texts: Sequence[str]) -> pl.DataFrame:
        """As `Embedder.embed`."""
        return self._embedder.embed(texts, step=self._step)


class Toolbox:
    """Lends the tools of one pipeline. A model is loaded when first asked something new.

    `workers` do the work of the models that claimflow carries, where that is worth it; they
    are let go of with the rest.
    """

    def __init__(
        self, pipeline: Pipeline, session: Session, workers: Workers | None = None
    ) -> None:
        self._session = session
        self._workers = workers
        cache = ReplyCache(session.ledger, session.stop)
        self._endpoint, folder = None, None
        if isinstance(pipeline.embedder, EmbeddingEndpoint):
            self._endpoint = EndpointEmbedder(pipeline.embedder, session)
        else:
            folder = pipeline.embedder
        self._embedded = CachedEmbedder(folder, workers, cache)
        self._entailment = CachedEntailment(pipeline.entailment, workers, cache)
        self._parser = StoppableParser(session.stop)
        self._judges = {
            name: EndpointJudge(name, judge, session) for name, judge in pipeline.judges.items()
        }
        self._groups: dict[str, StepGroup] = {}

    def share_calls(self, steps: Iterable[Step]) -> None:
        """Let those of `steps` that ask the same judges at the same time share calls.

        Each of them is to run in a thread of its own, and `finished` is to be called at its end.
        """
        for names in steps_that_share(steps):
            self._groups |= dict.fromkeys(names, StepGroup(names, self._session.stop))

    def asks_in_batches(self, step: Step) -> bool:
        """Whether calls of a step go into batches, for which a run may wait for hours."""
        return any(self._judges[name].asks_in_batches for name in step.judges)

    def ask_at_once(self) -> None:
        """Send no more calls in batches: what is asked now is not worth hours."""
        self._session.send_at_once()

    def part_made(self, step: str) -> None:
        """Let no step wait for this one in the part of the samples that this thread has made."""
        if step in self._groups:
            self._groups[step].finish_part(step)

    def finished(self, step: str) -> None:
        """Let no step wait for this one, which has ended, or waits for another itself."""
        if step in self._groups:
            self._groups[step].leave(step)

    def lend(self, step: Step, *, repeat: int = 0) -> dict[str, Any]:
        """The tools that a step's stage asks for, by the name of its parameter.

        Each `repeat` of a question to a judge has an answer of its own.
        """
        needed = sorted(step.stage.needed_tools.items())
        return {name: self._tool(step, tool, repeat) for name, tool in needed}

    def lend_anew(self, step: Step, *, since: datetime | None = None) -> dict[str, Any]:
        """As `lend`, to ask endpoints past what they replied before `since`, or before the run."""
        self._session.ask_again(step.name, since=since)
        return self.lend(step)

    def identities(self, step: Step) -> dict[str, dict[str, Any]]:
        """For each tool that a step asks for, everything that could change its replies."""
        return {name: tool.identity for name, tool in self.lend(step).items()}

    def languages(self, step: Step) -> dict[str, frozenset[str]]:
        """The languages that the models which run here for a step were taught.

        By `embedder`, `entailment` and `parser`; a model that was taught any language, and one
        behind an endpoint, is left out.
        """
        models: dict[str, CachedEmbedder | CachedEntailment | StoppableParser] = {
            "embedder": self._embedded,
            "entailment": self._entailment,
            "parser": self._parser,
        }
        lent = [*self.lend(step).values()]
        return {
            name: model.languages
            for name, model in models.items()
            if model.languages is not None and any(tool is model for tool in lent)
        }

    def close(self) -> None:
        """Let go of everything that the run asked."""
        if self._workers:
            self._workers.close()
        self._session.close()

    def _tool(self, step: Step, protocol: type, repeat: int) -> Any:
        if protocol is LLM and step.judges:
            group = self._groups.get(step.name)
            judges: dict[str, Judging] = {
                name: SharingJudge(self._judges[name], group) if group else self._judges[name]
                for name in step.judges
            }
            return JudgePanel(judges, step=step.name, repeat=repeat, group=group)
        if protocol is Embedder:
            return StepEmbedder(self._endpoint, step.name) if self._endpoint else self._embedded
        if protocol is EntailmentModel:
            return self._entailment
        if protocol is Parser:
            return self._parser
        raise TypeError(f"no tool serves {protocol.__name__}")
