"""The embedded models, asked here or on workers: batches of questions to replies as bytes."""

import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from flows.engine.cross_encoder import CrossEncoder
from flows.engine.embedder import OnnxEmbedder
from flows.engine.entailment import EmbeddedEntailment
from flows.engine.errors import InputError, WorkersError
from flows.engine.recent import RecentEmbedder
from flows.engine.workers import Workers
from stages.tools import EntailmentModel, Pair

Batches = Sequence[Sequence[Any]]

_WORTH: Final = 10
"""Batches, at least, for which each worker may load its model."""


class ModelWork:
    """The encoder in `folder`, and the entailment model: the cross-encoder in the folder
    `entailment`, or the one that rests on the encoder.

    What either says of a question depends on that question alone, so it does not matter who
    is asked, nor with which others.
    """

    def __init__(
        self, folder: Path | None, workers: Workers | None, *, entailment: Path | None = None
    ) -> None:
        self.embedder = OnnxEmbedder(folder)
        self.entailment = (
            CrossEncoder(entailment)
            if entailment
            else EmbeddedEntailment(RecentEmbedder(self.embedder))
        )
        self._folder = folder
        self._cross_encoder = entailment
        self._workers = workers

    def vectors(self, batches: Batches) -> Iterator[list[bytes]]:
        """For each batch of distinct texts the embedding of each, as the bytes of its numbers."""
        # Not for processes beside this one: the encoder's own threads make as many a CPU second.
        if self._workers and self._workers.worth(1):
            identity = self.embedder.identity
            chunks = ((self._folder, identity, texts) for texts in batches)
            return self._workers.each(worker_vectors, chunks, what="embeddings")
        return (list(self.embedder.vectors(texts).values()) for texts in batches)

    def judgements(self, batches: Batches) -> Iterator[list[bytes]]:
        """For each batch of distinct pairs the judgement of each, as JSON."""
        if self._workers and self._workers.worth(len(batches) // _WORTH):
            work = worker_cross_judgements if self._cross_encoder else worker_judgements
            folder = self._cross_encoder or self._folder
            models = self.entailment if self._cross_encoder else self.embedder
            chunks = ((folder, models.identity, pairs) for pairs in batches)
            return self._workers.each(work, chunks, what="verdicts")
        return (_judged(self.entailment, pairs) for pairs in batches)


def worker_vectors(
    folder: Path | None, identity: dict[str, Any], texts: Sequence[str]
) -> list[bytes]:
    """The embeddings of a batch, by the encoder of this worker, which must be that one."""
    return list(_embedder(folder, identity).vectors(texts).values())


def worker_judgements(
    folder: Path | None, identity: dict[str, Any], pairs: Sequence[Pair]
) -> list[bytes]:
    """The judgements of a batch, by the models of this worker, which must be those."""
    return _judged(_entailment(_embedder(folder, identity)), pairs)


def worker_cross_judgements(
    folder: Path, identity: dict[str, Any], pairs: Sequence[Pair]
) -> list[bytes]:
    """The judgements of a batch, by the cross-encoder of this worker, which must be that one."""
    try:
        model = _cross_encoder(folder)
    except InputError as error:
        raise WorkersError(f"a worker has not the cross-encoder of this run: {error}") from None
    if model.identity != identity:
        raise WorkersError(f"a worker has another cross-encoder in {folder} than there is here")
    return _judged(model, pairs)


def _judged(entailment: EntailmentModel, pairs: Sequence[Pair]) -> list[bytes]:
    judged = entailment.judge(pairs)
    return [json.dumps(judged[pair]).encode() for pair in pairs]


@cache
def _loaded(folder: Path | None) -> OnnxEmbedder:
    # One thread: the other workers have their own cores.
    return OnnxEmbedder(folder, threads=1)


@cache
def _cross_encoder(folder: Path) -> CrossEncoder:
    return CrossEncoder(folder, threads=1)


@cache
def _entailment(embedder: OnnxEmbedder) -> EmbeddedEntailment:
    return EmbeddedEntailment(RecentEmbedder(embedder))


def _embedder(folder: Path | None, identity: dict[str, Any]) -> OnnxEmbedder:
    try:
        embedder = _loaded(folder)
    except InputError as error:
        raise WorkersError(f"a worker has not the encoder of this run: {error}") from None
    if embedder.identity != identity:
        raise WorkersError(f"a worker has another encoder in {folder} than there is here")
    return embedder
