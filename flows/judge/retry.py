"""Retries of one call, and the number of failed calls in a row after which none is sent."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Final, Generic, NamedTuple, TypeVar

from claimflow.flows.judge.provider import ProviderError
from claimflow.flows.judge.rate_limit import Clock, RateLimiter, TurnTimeoutError

_ATTEMPTS: Final = 4
_TIMEOUTS: Final = 4
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 20.0

_MOST_FAILED: Final = 200
_TENTH: Final = 10
_FEW_FAILED: Final = 5
_SILENT_CALLS: Final = 2

Answer = TypeVar("Answer")


class Delivery(NamedTuple, Generic[Answer]):
    """A reply, the number of attempts, and the seconds since the first attempt was sent.

    `share` is what its tokens cost, as a share of their price.
    """

    received: Answer
    attempts: int
    seconds: float
    share: Decimal = Decimal(1)


async def send_with_retries(
    send: Callable[[float], Awaitable[Answer]],
    *,
    limiter: RateLimiter,
    tokens: int,
    timeout: float,
    longest: float | None = None,
    before_send: Callable[[], Awaitable[None] | None] = lambda: None,
) -> Delivery[Answer]:
    """Call `send` until it succeeds, whenever `limiter` allows it.

    `send` makes one attempt, within the seconds it is given (at most `timeout`), and raises
    only `ProviderError`. The call is given up `longest` seconds (by default `4 * timeout`) after
    the first attempt, or after four attempts that failed or timed out; throttled attempts do not
    count. Between attempts other calls have their turn. `before_send` is called right before each
    attempt; an exception from it ends the call.

    Raises the last `ProviderError`, with `attempts` and `seconds` set.
    """
    call = _Call(limiter, tokens, timeout, longest or longest_call(timeout))
    while True:
        try:
            received = await call.attempt(send, before_send)
        except ProviderError as error:
            pause = call.pause_after(error)
            if pause is None:
                raise call.final_error(error) from None
            await asyncio.sleep(pause)
        else:
            return Delivery(received, call.attempts, call.seconds())


def longest_call(timeout: float) -> float:
    """Seconds after its first attempt when a call is given up."""
    return _TIMEOUTS * timeout


class FailureStreak:
    """Calls in a row that failed, and whether there were enough to send no more.

    Enough is a tenth of the `planned` calls, but at least `fewest` and at most 200. Five are
    enough if there was no reply for twice the `longest` time of a call, in seconds: an endpoint
    that hangs would otherwise cost that time once for every failure.
    """

    def __init__(self, *, fewest: int, longest: float, clock: Clock) -> None:
        self.planned = 0
        self._fewest = fewest
        self._longest = longest
        self._clock = clock
        self._count = 0
        self._since = self._replied_at = clock()

    def end(self) -> None:
        """Note a call that did not fail."""
        self._count = 0
        self._replied_at = self._clock()

    def grow(self, seconds: float = 0.0) -> str | None:
        """Note a failed call that took `seconds`; says how many failed if these were enough."""
        now = self._clock()
        if not self._count:
            self._since = max(self._replied_at, now - seconds)
        self._count += 1
        silent = now - self._since
        if self._count >= min(_MOST_FAILED, max(self._fewest, self.planned // _TENTH)):
            return f"{self._count} calls in a row failed"
        if self._count >= _FEW_FAILED and silent >= _SILENT_CALLS * self._longest:
            return f"{self._count} calls in a row failed, without a reply for {silent:.0f} seconds"
        return None


class _Call:
    """The attempts of one call: how many, since when, and the last error."""

    def __init__(self, limiter: RateLimiter, tokens: int, timeout: float, longest: float) -> None:
        self.attempts = 0
        self._failures = 0
        self._first_sent_at: float | None = None
        self._last: ProviderError | None = None
        self._cut_short = False
        self._limiter, self._tokens = limiter, tokens
        self._timeout, self._longest = timeout, longest

    def seconds(self) -> float:
        """Seconds since the first attempt was sent."""
        first = self._first_sent_at
        return 0.0 if first is None else self._limiter.clock() - first

    def _left(self) -> float:
        return self._longest - self.seconds()

    async def attempt(
        self,
        send: Callable[[float], Awaitable[Answer]],
        before_send: Callable[[], Awaitable[None] | None],
    ) -> Answer:
        """Wait for a turn and send; report the result to the rate limiter."""
        again = self._first_sent_at is not None
        async with self._limiter.turn(self._tokens, patience=self._left(), again=again):
            if self._left() <= 0:
                raise TurnTimeoutError("timeout", "the time limit of the call was reached")
            if (waiting := before_send()) is not None:
                await waiting
            sent_at = self._limiter.clock()
            if self._first_sent_at is None:
                self._first_sent_at = sent_at
            self.attempts += 1
            seconds = min(self._timeout, self._left())
            self._cut_short = seconds < self._timeout
            try:
                received = await send(seconds)
            except ProviderError as error:
                if error.kind in ("throttled", "timeout"):
                    self._limiter.throttled(sent_at, error.retry_after)
                raise
            self._limiter.answered()
            return received

    def pause_after(self, error: ProviderError) -> float | None:
        """Seconds to wait before the next attempt; None where there should be none.

        Exponential back-off with full jitter: drawn from 0 to a limit that doubles each time, so
        that calls that failed together are not sent again together.
        """
        if self._is_time_limit(error) or error.kind not in ("throttled", "server", "timeout"):
            return None
        self._last = error
        self._failures += error.kind != "throttled"
        longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self.attempts - 1, 9))
        pause = random.uniform(0, longest)
        asked = error.retry_after or 0.0
        if self._failures == _ATTEMPTS or max(pause, asked) >= self._left():
            return None
        return pause if error.kind == "throttled" else max(pause, asked)

    def final_error(self, error: ProviderError) -> ProviderError:
        """The error to raise: the one before, where the last means only that time was up."""
        reported = self._last if self._is_time_limit(error) and self._last else error
        reported.attempts, reported.seconds = self.attempts, self.seconds()
        return reported

    def _is_time_limit(self, error: ProviderError) -> bool:
        """Whether the error means only that the time limit of the call was reached."""
        return isinstance(error, TurnTimeoutError) or (self._cut_short and error.kind == "timeout")
