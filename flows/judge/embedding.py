"""The `Embedder` tool behind an endpoint: batches of texts, none embedded twice."""

import asyncio
import threading
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from math import fsum, hypot, inf, isfinite, sqrt
from typing import Any, NamedTuple

import polars as pl

from claimflow.flows.errors import JudgeError
from claimflow.flows.judge.budget import BudgetExceeded, price_of
from claimflow.flows.judge.calls import Call, embedding_call
from claimflow.flows.judge.client import RateLimitedClient, warm_up
from claimflow.flows.judge.environment_secrets import with_header_values
from claimflow.flows.judge.provider import JudgeProvider, ProviderError, Usage, endpoint_identity
from claimflow.flows.judge.provider_errors import provider_call
from claimflow.flows.judge.session import Session
from claimflow.flows.judge.usage import checked_usage
from claimflow.flows.judge.worker_pool import WorkerPool
from claimflow.flows.pipeline.model_settings import EMBEDDER, EmbeddingEndpoint
from claimflow.stages.rows import content_key
from claimflow.stages.tools import embedding_table


async def embed(
    provider: JudgeProvider, endpoint: EmbeddingEndpoint, texts: Sequence[str], *, timeout: float
) -> tuple[list[bytes], Usage]:
    """As `JudgeProvider.embed`, for any provider; the vectors as `unit_vectors` packs them.

    Raises `ProviderError`, and nothing else.
    """
    async with provider_call(timeout, texts):
        vectors, usage = await provider.embed(
            endpoint.model,
            texts,
            api_base=endpoint.api_base,
            parameters=with_header_values(endpoint.parameters()),
            timeout=timeout,
        )
        return await asyncio.to_thread(unit_vectors, vectors, len(texts)), checked_usage(usage)


class _Embedded(NamedTuple):
    vectors: list[bytes]
    usage: Usage


class EndpointEmbedder:
    """Unit vectors of texts, by a model behind an endpoint, for all steps of a run.

    A text without a vector has no row; `audit.calls` has the reason.
    """

    def __init__(self, endpoint: EmbeddingEndpoint, session: Session) -> None:
        self.identity = endpoint_identity(endpoint)
        self._endpoint = endpoint
        self._session = session
        self._provider = session.provider(endpoint.provider)
        self._pool = WorkerPool(endpoint.max_concurrency, session.stop)
        self._lock = threading.Lock()
        self._requests: RateLimitedClient | None = None

    def embed(self, texts: Sequence[str], *, step: str) -> pl.DataFrame:
        """As `Embedder.embed`, for the step of that name. Stores vectors before returning them.

        Steps take turns, so that a text they have in common is embedded once. Raises
        `JudgeError` when the endpoint cannot be used and `StoppedError` when the run is to
        stop.
        """
        keys = {text: content_key("embedding", self.identity, text) for text in texts}
        with self._lock:
            since, changes = self._session.since(step), self._session.asking.changes()
            known = self._recall(list(keys.values()), since=since)
            missing = {text: key for text, key in keys.items() if key not in known}
            if missing:
                self._requests = self._requests or self._open()
                self._requests.plan(-(-len(missing) // self._endpoint.texts_per_call))
                known |= self._session.loop.run(self._ask(missing, step, changes))
        found = {text: known[key] for text, key in keys.items() if key in known}
        lengths = {len(vector) // 4 for vector in found.values()}
        if len(lengths) > 1:
            mixed = " and ".join(map(str, sorted(lengths)))
            message = f"vectors of {mixed} numbers: the model behind the address has changed"
            raise JudgeError(f"{EMBEDDER} ({self._endpoint.model}): {message}")
        return embedding_table(list(found), list(found.values()), dimension=max([1, *lengths]))

    def _recall(self, keys: Sequence[str], *, since: datetime | None = None) -> dict[str, bytes]:
        """The stored vectors by key. A reply that is no vector is none: its text is asked again."""
        found = self._session.ledger.recall(keys, since=since)
        return {key: reply for key, reply in found.items() if _is_stored_vector(reply)}

    def _open(self) -> RateLimitedClient:
        warm_up(self._session, self._endpoint, EMBEDDER)
        return RateLimitedClient(EMBEDDER, self._endpoint, self._session, price_of(self._endpoint))

    async def _ask(self, missing: Mapping[str, str], step: str, changes: int) -> dict[str, bytes]:
        """The vectors by ledger key; `changes` is for `Asking.ask`."""
        found: dict[str, bytes] = {}

        async def embed_batch(batch: Sequence[str]) -> None:
            await self._session.ledger_writer.keep_up()
            call, vectors = await self._embed_batch(batch, step)
            replies = {missing[text]: vector for text, vector in zip(batch, vectors, strict=False)}
            if call.attempts:
                self._session.ledger_writer.add(call, replies)
            found.update(replies)

        async def recall(left: Mapping[str, str]) -> list[str]:
            known = await asyncio.to_thread(self._recall, list(left.values()))
            found.update(known)
            return [text for text, key in left.items() if key in known]

        try:
            await self._session.asking.ask(
                missing,
                self._pool,
                changes=changes,
                fresh=self._session.since(step) is not None,
                batches=partial(_batches, size=self._endpoint.texts_per_call),
                ask=embed_batch,
                recall=recall,
            )
        finally:
            await self._session.ledger_writer.saved()
        return found

    async def _embed_batch(self, batch: Sequence[str], step: str) -> tuple[Call, list[bytes]]:
        """The record of one request, and the vectors of its texts, none where it failed."""
        requests = self._requests
        if requests is None:
            raise RuntimeError("the endpoint must be opened first")
        call = embedding_call(self.identity, batch, run_id=self._session.run_id, step=step)
        try:
            delivered = await requests.request(
                partial(self._send, batch), characters=sum(map(len, batch)), entries=0
            )
        except (ProviderError, BudgetExceeded) as error:
            failure = requests.failure(error, call.call_id)
            attempts = error.attempts if isinstance(error, ProviderError) else 0
            call = call._replace(outcome=failure.kind, error=failure.message, attempts=attempts)
            return call, []
        requests.note_useful()
        usage = delivered.received.usage
        call = call._replace(
            prompt_tokens=usage.prompt,
            cost=requests.cost(usage),
            seconds=delivered.seconds,
            attempts=delivered.attempts,
        )
        return call, delivered.received.vectors

    async def _send(self, batch: Sequence[str], seconds: float) -> _Embedded:
        vectors, usage = await embed(self._provider, self._endpoint, batch, timeout=seconds)
        return _Embedded(vectors, usage._replace(completion=0))


def _batches(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    listed = list(texts)
    return (listed[start : start + size] for start in range(0, len(listed), size))


def unit_vectors(vectors: Sequence[Sequence[float]], number: int) -> list[bytes]:
    """The vectors scaled to length 1, each as the bytes of its 32-bit numbers.

    Raises `ProviderError` where they cannot be the embeddings of `number` texts.
    """
    if len(vectors) != number:
        raise ProviderError("server", f"the reply has {len(vectors)} vectors for {number} texts")
    if not all(map(_is_vector, vectors)) or len(set(map(len, vectors))) != 1:
        message = "the embeddings are not lists of equally many finite numbers"
        raise ProviderError("server", message)
    return [_unit(vector) for vector in vectors]


def _is_vector(vector: Any) -> bool:
    """Whether it is a sequence of finite numbers. Digits in a text, or truth values, are none."""
    try:
        return len(vector) > 0 and bool not in set(map(type, vector)) and all(map(isfinite, vector))
    except (TypeError, OverflowError):
        return False


def _is_stored_vector(reply: bytes) -> bool:
    """Whether bytes that may come from another machine are finite numbers of 32 bits."""
    return bool(reply) and len(reply) % 4 == 0 and isfinite(sum(array("f", reply)))


def _unit(vector: Sequence[float]) -> bytes:
    """The vector scaled to length 1, as the bytes of its 32-bit numbers."""
    length = sqrt(fsum(x * x for x in vector))
    if not 0 < length < inf:  # The squares may be too large, or too small, for a float.
        length = hypot(*vector) or 1.0
    return array("f", (x / length for x in vector)).tobytes()
