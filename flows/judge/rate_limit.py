"""AIMD concurrency limit, back-off and shared rate of one endpoint."""

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, NamedTuple, Protocol

from claimflow.flows.judge.provider import ProviderError

_DECREASE: Final = 0.6


class ConcurrencyLimit:
    """How many calls may be in flight: additive increase, multiplicative decrease."""

    def __init__(self, first: int, maximum: int) -> None:
        self.now = float(first)
        self._maximum = maximum
        self._cut_at = -math.inf

    def grow(self) -> None:
        """Raise the limit for one answer."""
        step = 1 if self._cut_at == -math.inf else 1 / self.now
        self.now = min(self.now + step, self._maximum)

    def cut(self, sent_at: float, now: float) -> None:
        """Lower the limit, once for all requests that were sent before it was lowered."""
        if sent_at >= self._cut_at:
            self.now = max(self.now * _DECREASE, 1.0)
            self._cut_at = now


class RetryAfterGate:
    """Holds all requests back for the time of a Retry-After, and sums these times."""

    def __init__(self) -> None:
        self.opens_at = -math.inf
        self._shut = 0.0
        self._forgiven = 0.0

    def shut(self, now: float, seconds: float) -> None:
        """Open no sooner than `seconds` after `now`."""
        opens_at = max(now + seconds, self.opens_at)
        self._shut += opens_at - max(now, self.opens_at)
        self.opens_at = opens_at

    def forgive(self, now: float) -> None:
        """Stop counting the time until `now` (see `shut_since`), because a request was answered."""
        self._forgiven = self.elapsed(now)

    def elapsed(self, now: float) -> float:
        """Seconds the gate was shut until `now`, in all."""
        return self._shut - max(self.opens_at - now, 0.0)

    def shut_since(self, elapsed: float) -> float:
        """Seconds it was and will be shut after the first `elapsed` ones, without forgiven time."""
        return self._shut - max(elapsed, self._forgiven)


SetRate = Callable[[float], None]
"""Sets the number of requests a minute that a run may send from now on."""


class SharedLimiter(Protocol):
    """This run's share of a rate limit that several runs share. Used in one event loop."""

    def slot(self) -> AbstractAsyncContextManager[None]:
        """A context for the attempts of one call, entered when this run has a free slot.

        Raises nothing: the limiter deals with errors of the shared limit.
        """
        ...

    async def close(self) -> None:
        """Give back this run's share of the limit, within a few seconds."""
        ...


OpenSharedLimiter = Callable[[str, SetRate], SharedLimiter]
"""Opens the limiter of a named limit; it calls `SetRate` when this run's share changes."""


class NoSharedLimit:
    """A `SharedLimiter` that limits nothing."""

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """As `SharedLimiter.slot`."""
        yield

    async def close(self) -> None:
        """As `SharedLimiter.close`."""


def no_shared_limit(_name: str, _set_rate: SetRate) -> SharedLimiter:
    """The `OpenSharedLimiter` of a run that shares no limits."""
    return NoSharedLimit()


Clock = Callable[[], float]

_FIRST_LIMIT: Final = 8
_TIMER_DELAY: Final = 0.05
"""Seconds of a timer's delay that are caught up at a known rate."""


class TurnTimeoutError(ProviderError):
    """A call was not sent because its turn would come too late for it."""


class RateLimiter:
    """Decides when each call to one endpoint is sent. All its calls share one limiter.

    At most `most` calls are in flight. The limit adapts (additive increase, multiplicative
    decrease): answers double it with every round trip until the endpoint first throttles, and add
    one from then on; a throttled request cuts it to 0.6 of its value. A known rate, `rpm` requests
    and `tpm` estimated tokens a minute, is kept by sending evenly, never in bursts.

    Coroutines of one loop share it; `clock` tells seconds.
    """

    def __init__(
        self,
        most: int,
        rpm: int | None = None,
        tpm: int | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self.clock = clock
        self._limit = ConcurrencyLimit(most if rpm or tpm else min(_FIRST_LIMIT, most), most)
        self._gate = RetryAfterGate()
        self._own = self._per_request = 60 / rpm if rpm else 0.0
        self._per_token = 60 / tpm if tpm else 0.0
        self._next_at = -math.inf
        self._in_flight = 0
        self._again: deque[_Waiter] = deque()
        self._fresh: deque[_Waiter] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def limit(self) -> int:
        """How many calls may be in flight now."""
        return int(self._limit.now)

    @asynccontextmanager
    async def turn(self, tokens: int, *, patience: float, again: bool) -> AsyncIterator[None]:
        """Wait for a turn to send about `tokens` tokens, and hold it.

        Turns come in order of arrival. Calls that were sent before (`again`) go first and wait
        up to `patience` seconds. Others wait for their turn without a limit, but at most
        `patience` seconds while the endpoint sends Retry-After and answers no call. Raises
        `TurnTimeoutError` as soon as it is clear that this is too short.
        """
        await self._admission(tokens, patience, again)
        try:
            yield
        finally:
            self._leave()

    def set_rate(self, rpm: float) -> None:
        """Send at most `rpm` requests a minute from now on, and no more than the known rate."""
        self._per_request = max(self._own, 60 / rpm)

    def answered(self) -> None:
        """Note that a request was answered: the limit may grow."""
        self._gate.forgive(self.clock())
        if self._in_flight >= self.limit:
            self._limit.grow()

    def throttled(self, sent_at: float, retry_after: float | None = None) -> None:
        """Note that a request sent at `sent_at` was throttled or timed out: the limit is cut.

        No request is sent for the next `retry_after` seconds.
        """
        now = self.clock()
        self._limit.cut(sent_at, now)
        if retry_after:
            self._gate.shut(now, retry_after)
            for waiter in (*self._again, *self._fresh):
                self._turn_away(waiter)

    async def _admission(self, tokens: int, patience: float, again: bool) -> None:
        now = self.clock()
        admitted = asyncio.get_running_loop().create_future()
        until, at_gate = (now + patience, math.inf) if again else (math.inf, patience)
        waiter = _Waiter(admitted, tokens, until, at_gate, self._gate.elapsed(now))
        (self._again if again else self._fresh).append(waiter)
        self._turn_away(waiter)
        self._admit(now)
        try:
            async with asyncio.timeout(patience if again else None):
                if not await admitted:
                    raise self._no_turn()
        except BaseException as error:
            if admitted.done() and not admitted.cancelled() and admitted.result():
                self._leave()
            if isinstance(error, TimeoutError):
                raise self._no_turn() from None
            raise

    def _leave(self) -> None:
        self._in_flight -= 1
        self._admit(self.clock())

    def _admit(self, now: float) -> None:
        """Admit waiting calls in order, as far as limit, rate and gate allow."""
        while self._in_flight < self.limit and (waiters := self._first_waiters()):
            due = max(self._gate.opens_at, self._next_at)
            if due > now:
                # The time that is due only moves later, so a running timer fires early enough.
                if self._timer is None:
                    loop = asyncio.get_running_loop()
                    self._timer = loop.call_later(due - self.clock(), self._timer_fired, due)
                return
            waiter = waiters.popleft()
            self._next_at = now + max(self._per_request, waiter.tokens * self._per_token)
            self._in_flight += 1
            waiter.admitted.set_result(True)

    def _timer_fired(self, due: float) -> None:
        self._timer = None
        self._admit(max(due, self.clock() - _TIMER_DELAY))

    def _first_waiters(self) -> "deque[_Waiter] | None":
        """The queue whose first waiter is next, without waiters that were cancelled."""
        for waiters in (self._again, self._fresh):
            while waiters:
                if not waiters[0].admitted.done():
                    return waiters
                waiters.popleft()
        return None

    def _turn_away(self, waiter: "_Waiter") -> None:
        """End the wait of a call for which the gate opens too late."""
        shut = self._gate.shut_since(waiter.shut_before)
        too_late = self._gate.opens_at > waiter.until or shut > waiter.patience
        if too_late and not waiter.admitted.done():
            waiter.admitted.set_result(False)

    def _no_turn(self) -> TurnTimeoutError:
        wait = max(self._gate.opens_at - self.clock(), 0.0)
        message = f"the endpoint asks to wait {wait:.0f} seconds, longer than a call may take"
        return TurnTimeoutError("throttled", message, retry_after=wait)


class _Waiter(NamedTuple):
    admitted: asyncio.Future[bool]
    tokens: int
    until: float
    patience: float
    shut_before: float
