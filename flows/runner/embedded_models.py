"""Embedded models run in this process or on workers."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

from claimflow.flows.errors import InputError, StoreFullError, WorkersError
from claimflow.flows.models.hub import fetch_model, find_cached, hub_host
from claimflow.flows.models.loading import (
    LocalEntailmentModel,
    ModelSource,
    load_entailment_model,
)
from claimflow.flows.models.sentence_encoder import SentenceEncoder
from claimflow.flows.pipeline.model_settings import HubModel
from claimflow.flows.pipeline.pipeline import Pipeline
from claimflow.flows.runner.prepare import Prepared
from claimflow.flows.runner.workers.protocol import Workers
from claimflow.stages.tools import EntailmentModel, Pair

# The embedded models, asked here or on workers: batches of questions to replies as bytes.


Batches = Sequence[Sequence[Any]]

Model = TypeVar("Model", SentenceEncoder, LocalEntailmentModel)

_WORTH: Final = 10
"""Batches, at least, for which each worker may load its model."""


class ModelWork:
    """The encoder in `folder`, and the entailment model: that of `entailment`, or the embedded.

    What either says of a question depends on that question alone, so it does not matter who
    is asked, nor with which others. Nothing is fetched: a model of the Hub that is not on this
    machine has no judgements.
    """

    def __init__(
        self, folder: Path | None, workers: Workers | None, *, entailment: ModelSource = None
    ) -> None:
        self.embedder = SentenceEncoder(folder)
        self.entailment = load_entailment_model(entailment)
        self._sources = folder, entailment
        self._workers = workers

    def vectors(self, batches: Batches) -> Iterator[list[bytes]]:
        """For each batch of distinct texts the embedding of each, as the bytes of its numbers."""
        # Not for processes beside this one: the encoder's own threads make as many a CPU second.
        if self._workers and self._workers.worth(1):
            identity = self.embedder.identity
            chunks = ((self._sources[0], identity, texts) for texts in batches)
            return self._workers.each(worker_vectors, chunks, what="embeddings")
        return (list(self.embedder.vectors(texts).values()) for texts in batches)

    def judgements(self, batches: Batches) -> Iterator[list[bytes]]:
        """For each batch of distinct pairs the judgement of each, as JSON."""
        if self._workers and self._workers.worth(len(batches) // _WORTH):
            identity = self.entailment.identity
            chunks = ((self._sources[1], identity, pairs) for pairs in batches)
            return self._workers.each(worker_judgements, chunks, what="verdicts")
        return (_judged(self.entailment, pairs) for pairs in batches)


def worker_vectors(
    folder: Path | None, identity: dict[str, Any], texts: Sequence[str]
) -> list[bytes]:
    """The embeddings of a batch, by the encoder of this worker, which must be that one."""
    encoder = _same(_own_embedder, folder, identity, "encoder")
    return list(encoder.vectors(texts).values())


def worker_judgements(
    source: ModelSource, identity: dict[str, Any], pairs: Sequence[Pair]
) -> list[bytes]:
    """The judgements of a batch, by the model of this worker, which must be that one.

    A worker on another machine may have to fetch it.
    """
    return _judged(_same(_own_entailment, source, identity, "entailment model"), pairs)


def _judged(entailment: EntailmentModel, pairs: Sequence[Pair]) -> list[bytes]:
    judged = entailment.judge(pairs)
    return [json.dumps(judged[pair]).encode() for pair in pairs]


# A worker's models have one thread: the other workers have their own cores.
@cache
def _own_embedder(folder: Path | None) -> SentenceEncoder:
    return SentenceEncoder(folder, threads=1)


@cache
def _own_entailment(source: ModelSource) -> LocalEntailmentModel:
    if isinstance(source, HubModel):
        fetch_model(source, "entailment.model", lambda _: None)
    return load_entailment_model(source, threads=1)


def _same(
    load: Callable[[Any], Model], source: ModelSource, identity: dict[str, Any], kind: str
) -> Model:
    try:
        model = load(source)
    except (InputError, StoreFullError) as error:
        raise WorkersError(f"a worker has not the {kind} of this run: {error}") from None
    if model.identity != identity:
        raise WorkersError(f"a worker has another {kind} in {source} than there is here")
    return model


# The models of a pipeline that run in this process: there, or fetched, before a run begins.


def fetch_models(prepared: Prepared, tell: Callable[[str], None]) -> Prepared:
    """The same with a model of the Hub in the cache, and named by its commit.

    So whatever a branch comes to mean later, the run asks one model. `tell` is told which, and
    what is fetched; where no step asks the model that is nothing. Raises `StoreFullError` as
    `fetch` does, and `InputError`, also where a folder does not hold what it should.
    """
    pipeline = prepared.pipeline
    model = _asked_hub_model(pipeline)
    if model is not None:
        commit = fetch_model(model, pipeline.source.place("entailment", "model"), tell).name
        pinned = model._replace(revision=commit)
        if pinned != model:
            is_commit = f"{model.revision} is commit {commit} (to stay: {pinned})"
            tell(f"entailment model {model}: {is_commit}")
        pipeline = replace(pipeline, entailment=pinned)
    folder = pipeline.embedder if isinstance(pipeline.embedder, Path) else None
    ModelWork(folder, None, entailment=pipeline.entailment)
    return prepared._replace(pipeline=pipeline)


def missing_model(pipeline: Pipeline) -> str | None:
    """For a plan: that a run would fetch the model, if so."""
    model = _asked_hub_model(pipeline)
    if model is None or find_cached(model) is not None:
        return None
    return (
        f"entailment model {model}: not on this machine, a run fetches it from {hub_host()}; "
        "until then no step that asks it is known to be on file"
    )


def _asked_hub_model(pipeline: Pipeline) -> HubModel | None:
    model = pipeline.entailment
    needed = (tool for step in pipeline.steps for tool in step.stage.needed_tools.values())
    return model if isinstance(model, HubModel) and EntailmentModel in needed else None
