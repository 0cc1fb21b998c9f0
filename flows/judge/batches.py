"""Calls at batch prices: collected, submitted together, awaited, and never submitted twice.

A batch and the ledger keys of its calls are in the store before it is submitted, under an id that
the provider stores with it. A later run finds by the keys which calls are submitted already, and by
the id whether a batch reached the provider when the run that submitted it was killed.
"""

import asyncio
import random
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple, TypeVar
from uuid import uuid4

from claimflow.flows.errors import JudgeError, PendingError
from claimflow.flows.judge.calls import Call
from claimflow.flows.judge.provider import (
    BatchState,
    ChatReply,
    JudgeProvider,
    ProviderError,
    Request,
)
from claimflow.flows.judge.provider_errors import batch_terms_of, provider_call, scrub
from claimflow.flows.pipeline.model_settings import Judge
from claimflow.flows.store.batches import BatchCall, Batches

_MOST_CALLS: Final = 10_000
"""Calls of a batch. OpenAI takes 50,000, and a failure concerns all of a batch."""

_MOST_BYTES: Final = 90 * 2**20
"""Bytes of a batch's texts. Azure takes 100 MB for requests in a file."""

_QUIET_SECONDS: Final = 0.5
"""A batch is submitted when no call has come for so long."""

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
"""Seconds between two looks at a batch."""

_TIMEOUT: Final = 600.0
"""Seconds for uploading or reading the file of a batch."""

_ATTEMPTS: Final = 5
"""How often a batch is submitted where the provider is throttled or unavailable."""

_SUBMITTING: Final = 60.0
"""Seconds that a submission may pause between two attempts, however short the wait is."""

_AGAIN: Final = frozenset({"throttled", "server", "timeout"})

Result = TypeVar("Result")


class TooFewCallsError(Exception):
    """A provider takes no batch of so few calls."""


class _Waiting(NamedTuple):
    """A call that waits for its reply; `reserved` is what it may cost, as of `BatchCall`."""

    call: Call
    request: Request
    keys: Sequence[str]
    reply: asyncio.Future[ChatReply]
    reserved: Decimal | None


class BatchQueue:
    """The batches of one judge in one run. Used by coroutines of one loop.

    Calls that wait longer than `wait` after the first batch get a `PendingError`. `message` is
    called with what a user should know.
    """

    def __init__(
        self,
        label: str,
        judge: Judge,
        provider: JudgeProvider,
        batches: Batches,
        *,
        run_id: str,
        fresh_since: datetime | None,
        wait: timedelta,
        message: Callable[[str], None],
    ) -> None:
        self._label = label
        self._judge = judge
        self._provider = provider
        self._batches = batches
        self._run_id = run_id
        self._fresh_since = fresh_since
        self._wait = wait
        self._message = message
        self._queued: list[_Waiting] = []
        self._submitted: dict[tuple[str, ...], BatchCall] = {}
        self._awaited: dict[str, dict[str, _Waiting]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._read: set[str] = set()
        self._flushing = False
        self._submitting = 0
        self._deadline: float | None = None
        # Writing the requests of a batch, or reading its replies, takes minutes of CPU time.
        self._alone = asyncio.Lock()
        self._wait_reported = False

    def note_submitted(self, calls: Sequence[BatchCall]) -> None:
        """Note calls that an earlier run submitted, and whose replies are not stored."""
        self._submitted |= {call.keys: call for call in calls}

    def has_submitted(self, keys: Sequence[str]) -> bool:
        """Whether an earlier run submitted a call that asks for `keys`."""
        return tuple(keys) in self._submitted

    def as_submitted(self, call: Call, keys: Sequence[str]) -> Call:
        """A call that asks for `keys`, as an earlier run submitted it if one did."""
        submitted = self._submitted.get(tuple(keys))
        if submitted is None:
            return call
        return call._replace(call_id=submitted.call_id, rung=submitted.rung)

    async def reply(
        self, call: Call, request: Request, keys: Sequence[str], *, reserved: Decimal | None = None
    ) -> ChatReply:
        """The reply to a request that asks for `keys`, for which `reserved` is set aside.

        Raises `ProviderError`, `JudgeError` where no batch can succeed, `PendingError`, and
        `TooFewCallsError` where it is to be sent by itself.
        """
        submitted = self._submitted.pop(tuple(keys), None)
        reply: asyncio.Future[ChatReply] = asyncio.get_running_loop().create_future()
        if submitted is None:
            self._queued.append(_Waiting(call, request, keys, reply, reserved))
            if not self._flushing:
                self._flushing = True
                self._start(self._submit_when_quiet())
        else:
            followed = submitted.batch_id in self._awaited
            awaited = self._awaited.setdefault(submitted.batch_id, {})
            awaited[call.call_id] = _Waiting(call, request, keys, reply, submitted.reserved)
            if not followed:
                self._start(self._resume(submitted.batch_id))
        return await reply

    async def settle(self) -> None:
        """Record the end of the batches whose replies are all stored."""
        for batch_id in list(self._read):
            await asyncio.to_thread(self._batches.end, batch_id)

    async def close(self) -> None:
        """Stop waiting; a later run goes on with what is submitted."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        """Note the end of a task. Where one breaks off, all that wait get its error."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            for one in self._queued:
                one.reply.set_exception(error)
            self._queued.clear()
            for batch_id in list(self._awaited):
                self._fail(batch_id, error)

    async def _submit_when_quiet(self) -> None:
        seen = -1
        while seen < len(self._queued) < _MOST_CALLS:
            seen = len(self._queued)
            await asyncio.sleep(_QUIET_SECONDS)
        terms = batch_terms_of(self._judge, self._provider)
        queued, self._queued = self._queued, []
        self._flushing = False
        fewest = terms.fewest if terms else 1
        for part in _parts(queued):
            if len(part) >= fewest:
                self._submitting += 1
                self._start(self._submit(part))
                continue
            calls = "1 call is" if len(part) == 1 else f"{len(part):,} calls are"
            least = f"a batch of {self._judge.model} has at least {fewest:,}"
            self._message(f"{self._label}: {calls} sent at once, at the full price: {least}")
            for one in part:
                one.reply.set_exception(TooFewCallsError())

    async def _submit(self, waiting: Sequence[_Waiting]) -> None:
        """Record a batch, submit it, and wait for its replies."""
        batch_id = str(uuid4())
        awaited = self._awaited[batch_id] = {one.call.call_id: one for one in waiting}
        calls = [
            BatchCall(
                batch_id,
                one.call.call_id,
                one.call.rung or "text",
                tuple(one.keys),
                one.call.step,
                one.reserved,
            )
            for one in waiting
        ]
        until = self._until()
        call = waiting[0].call
        about = {"run_id": self._run_id, "judge": call.judge, "model": call.model}
        try:
            await asyncio.to_thread(
                self._batches.add,
                batch_id,
                calls,
                **about,
                api_base=call.api_base,
                fresh_since=self._fresh_since,
            )
            provider_batch = await self._create(batch_id, awaited, until)
        except Exception as error:
            if isinstance(error, ProviderError):
                error.message = scrub(error.message, hide=_texts(waiting))
                await asyncio.to_thread(self._batches.refused, batch_id, error.message)
                if not _concerns_format(error) and error.kind not in _AGAIN:
                    # It says nothing of the single texts.
                    error = self._judge_error(f"the batch was not accepted: {error.message}")
            self._fail(batch_id, error)
            return
        finally:
            self._submitting -= 1
        calls_text = "1 call" if len(waiting) == 1 else f"{len(waiting):,} calls"
        self._message(f"{self._label}: a batch of {calls_text} is submitted")
        await self._follow(batch_id, provider_batch)

    async def _create(self, batch_id: str, awaited: dict[str, _Waiting], until: float) -> str:
        """The provider's id of a batch that is submitted now.

        Raises `ProviderError`; `PendingError` where it is not known `until` then whether the
        provider has it.
        """
        requests = {call_id: one.request for call_id, one in awaited.items()}
        made, failure, attempt = None, None, 0
        while made is None:
            if attempt == _ATTEMPTS and failure is not None:
                raise failure
            attempt += 1
            try:
                submitting = self._provider.submit_batch(batch_id, requests, timeout=_TIMEOUT)
                made = await self._asked(submitting, alone=True)
            except ProviderError as error:
                if error.kind not in _AGAIN:
                    raise
                failure = error
            if made is None and failure is not None:
                longest = asyncio.get_running_loop().time() + _SUBMITTING
                await self._pause(failure, attempt, max(until, longest))
                # The provider may have it although its reply was lost.
                made = await self._found(batch_id, until)
        await asyncio.to_thread(self._batches.submitted, batch_id, made)
        return made

    async def _pause(self, error: ProviderError, attempt: int, until: float) -> None:
        left = until - asyncio.get_running_loop().time()
        wait = min(2.0**attempt, _LONGEST_PAUSE) * random.uniform(0.5, 1)
        await asyncio.sleep(max(0.0, min(max(error.retry_after or 0.0, wait), left)))

    async def _resume(self, batch_id: str) -> None:
        """Wait for a batch that an earlier run submitted, or was about to submit."""
        # Others of its calls are about to wait for it, too.
        await asyncio.sleep(_QUIET_SECONDS)
        try:
            stored = await asyncio.to_thread(self._batches.read, batch_id)
            provider_batch = stored.provider_batch
            if provider_batch is None:
                provider_batch = await self._found(batch_id, self._until())
                if provider_batch is None:
                    await asyncio.to_thread(self._batches.refused, batch_id, "not submitted")
                    waiting = list(self._awaited.pop(batch_id).values())
                    self._submitting += 1
                    await self._submit(waiting)
                    return
                await asyncio.to_thread(self._batches.submitted, batch_id, provider_batch)
        except Exception as error:
            self._fail(batch_id, error)
            return
        if batch_id not in self._read:
            self._message(f"{self._label}: waiting for the batch {provider_batch}")
        await self._follow(batch_id, provider_batch)

    async def _found(self, batch_id: str, until: float) -> str | None:
        """The provider's id of a batch; None where it was not submitted.

        Raises `JudgeError` and `PendingError` where that cannot be known: it stays open.
        """
        stored = await asyncio.to_thread(self._batches.read, batch_id)
        try:
            return await self._patiently(
                lambda: self._provider.find_batch(
                    batch_id,
                    self._judge.model,
                    requests=stored.calls,
                    since=stored.submitted_at.replace(tzinfo=UTC),
                    api_base=self._judge.api_base,
                    timeout=_TIMEOUT,
                ),
                until,
            )
        except ProviderError as error:
            what = f"it cannot be known whether a batch was submitted: {error.message}"
            raise self._judge_error(f"{what}; run again") from None

    def _until(self) -> float:
        """When waiting ends: for all batches of the run together."""
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + self._wait.total_seconds()
        return self._deadline

    async def _follow(self, batch_id: str, provider_batch: str) -> None:
        """Wait until a batch ends, and give its replies to those that wait for them."""
        model, api_base = self._judge.model, self._judge.api_base
        until = self._until()
        try:
            state = await self._ended(provider_batch, until, len(self._awaited[batch_id]))
            replies = await self._patiently(
                lambda: self._provider.batch_replies(
                    provider_batch, model, api_base=api_base, timeout=_TIMEOUT
                ),
                until,
                alone=True,
            )
        except ProviderError as error:
            self._fail(batch_id, await self._unreadable(batch_id, provider_batch, error))
            return
        except Exception as error:
            self._fail(batch_id, error)
            return
        self._read.add(batch_id)
        waiting = self._awaited.pop(batch_id)
        why = state.message and scrub(state.message, hide=_texts(waiting.values()))
        if why:
            await asyncio.to_thread(self._batches.note, batch_id, why)
        lost = ProviderError("server", why or "the batch has no reply to this request")
        for call_id, one in waiting.items():
            found = replies.get(call_id, lost)
            if one.reply.done():
                continue
            if isinstance(found, ProviderError):
                one.reply.set_exception(found)
            else:
                one.reply.set_result(found)

    async def _ended(self, provider_batch: str, until: float, calls: int) -> BatchState:
        """The state of a batch of so many calls when it has ended.

        Raises `PendingError` after `until`.
        """
        loop = asyncio.get_running_loop()
        model, api_base = self._judge.model, self._judge.api_base
        pause, told, done = _FIRST_PAUSE, loop.time(), 0
        while True:
            state = await self._patiently(
                lambda: self._provider.batch_state(
                    provider_batch, model, api_base=api_base, timeout=self._judge.timeout
                ),
                until,
            )
            if state.ended:
                return state
            left = until - loop.time()
            if left <= 0:
                await self._all_submitted()
                what = f"the batch {provider_batch} has not ended ({state.done:,} calls done)"
                raise PendingError(f"{self._label}: {what}; run again to collect its replies")
            if state.done > done and loop.time() - told >= _LONGEST_PAUSE:
                told, done = loop.time(), state.done
                self._message(f"{self._label}: {done:,} of {calls:,} calls of the batch are done")
            await asyncio.sleep(min(pause, left))
            pause = min(1.5 * pause, _LONGEST_PAUSE)

    async def _all_submitted(self) -> None:
        """Wait until the calls that are queued are submitted: the run may end after that."""
        while self._flushing or self._submitting:
            await asyncio.sleep(_FIRST_PAUSE)

    async def _patiently(
        self, ask: Callable[[], Awaitable[Result]], until: float, *, alone: bool = False
    ) -> Result:
        """The result of `ask`, asked again while the provider is throttled or unavailable.

        Raises `PendingError` after `until`: the calls of the batch have not failed.
        """
        attempt = 0
        while True:
            try:
                return await self._asked(ask(), alone=alone)
            except ProviderError as error:
                if error.kind not in _AGAIN:
                    raise
                if asyncio.get_running_loop().time() > until:
                    what = f"its batches cannot be read ({error.message})"
                    raise PendingError(f"{self._label}: {what}; run again to collect") from None
                attempt += 1
                failure = error
            if attempt == _ATTEMPTS and not self._wait_reported:
                self._wait_reported = True
                what = f"its batches cannot be reached at the moment ({failure.message})"
                self._message(f"{self._label}: {what}; trying again")
            await self._pause(failure, attempt, until)

    async def _asked(self, asking: Awaitable[Result], *, alone: bool = False) -> Result:
        """The result of `asking`; with `alone` after that of the one before."""
        async with self._alone if alone else nullcontext(), provider_call(_TIMEOUT):
            return await asking

    async def _unreadable(
        self, batch_id: str, provider_batch: str, error: ProviderError
    ) -> JudgeError:
        """The error of a batch that cannot be read, which says nothing of its texts."""
        if error.message.startswith("404"):
            what = f"the provider no longer has the batch {provider_batch}"
            await asyncio.to_thread(self._batches.refused, batch_id, what)
            return self._judge_error(f"{what}; run again to ask its calls anew")
        what = f"the batch {provider_batch} cannot be read: {error.message}"
        return self._judge_error(f"{what}; run again to collect its replies")

    def _judge_error(self, what: str) -> JudgeError:
        return JudgeError(f"{self._label} ({self._judge.model}): {what}")

    def _fail(self, batch_id: str, error: Exception) -> None:
        """Give an error to all that wait for a batch."""
        for one in self._awaited.pop(batch_id, {}).values():
            if not one.reply.done():
                one.reply.set_exception(error)


def _parts(waiting: Sequence[_Waiting]) -> list[list[_Waiting]]:
    """The calls in parts that are each small enough for a batch."""
    parts: list[list[_Waiting]] = []
    size = 0
    for one in waiting:
        own = sum(len(text.encode("utf-8", "replace")) for text in _texts([one]))
        if not parts or len(parts[-1]) == _MOST_CALLS or size + own > _MOST_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(one)
        size += own
    return parts


def _texts(waiting: Iterable[_Waiting]) -> Iterator[str]:
    """The texts of the requests."""
    return (message["content"] for one in waiting for message in one.request.messages)


def _concerns_format(error: ProviderError) -> bool:
    """Whether the calls can be sent in another form: with fewer parameters."""
    return error.kind == "format" or re.search(r"\bseed\b", error.message) is not None
