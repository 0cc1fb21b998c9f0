"""Retries of one call until it is answered or not worth sending again."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, Generic, NamedTuple, TypeVar

from claimflow.flows.judge.provider import ProviderError
from claimflow.flows.judge.rate_limit import RateLimiter, TurnTimeoutError

_ATTEMPTS: Final = 4
_TIMEOUTS: Final = 4
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 20.0

Answer = TypeVar("Answer")


class Delivery(NamedTuple, Generic[Answer]):
    """A reply, the number of attempts, and the seconds since the first attempt was sent."""

    received: Answer
    attempts: int
    seconds: float


async def send_with_retries(
    send: Callable[[float], Awaitable[Answer]],
    *,
    pace: RateLimiter,
    tokens: int,
    timeout: float,
    before_send: Callable[[], Awaitable[None] | None] = lambda: None,
) -> Delivery[Answer]:
    """Call `send` at the turns that `pace` gives until it succeeds.

    `send` makes one attempt, within the seconds it is given (at most `timeout`), and raises
    nothing but `Trouble`. Four times `timeout` after the first attempt the call is given up, and
    so it is after four attempts that the endpoint failed or left unanswered; one that is throttling
    is asked for as long as there is time. Between attempts others have their turn. `before_send`
    is called right before each attempt; what it raises ends the call.

    Raises the last `Trouble`, with `attempts` and `seconds` set.
    """
    call = _Call(pace, tokens, timeout)
    while True:
        try:
            received = await call.attempt(send, before_send)
        except ProviderError as trouble:
            pause = call.pause_after(trouble)
            if pause is None:
                raise call.given_up(trouble) from None
            await asyncio.sleep(pause)
        else:
            return Delivery(received, call.attempts, call.seconds())


class _Call:
    """How far one call has come."""

    def __init__(self, pace: RateLimiter, tokens: int, timeout: float) -> None:
        self.attempts = 0
        self._failures = 0
        self._first_sent_at: float | None = None
        self._last: ProviderError | None = None
        self._cut_short = False
        self._pace, self._tokens, self._timeout = pace, tokens, timeout

    def seconds(self) -> float:
        """Since the first attempt was sent."""
        first = self._first_sent_at
        return 0.0 if first is None else self._pace.clock() - first

    def _left(self) -> float:
        return _TIMEOUTS * self._timeout - self.seconds()

    async def attempt(
        self,
        send: Callable[[float], Awaitable[Answer]],
        before_send: Callable[[], Awaitable[None] | None],
    ) -> Answer:
        """Wait for a turn and send; tell the pace how it went."""
        again = self._first_sent_at is not None
        async with self._pace.turn(self._tokens, patience=self._left(), again=again):
            if self._left() <= 0:
                raise TurnTimeoutError("timeout", "the call's time was over")
            if (waiting := before_send()) is not None:
                await waiting
            sent_at = self._pace.clock()
            if self._first_sent_at is None:
                self._first_sent_at = sent_at
            self.attempts += 1
            seconds = min(self._timeout, self._left())
            self._cut_short = seconds < self._timeout
            try:
                received = await send(seconds)
            except ProviderError as trouble:
                if trouble.kind in ("throttled", "timeout"):
                    self._pace.throttled(sent_at, trouble.retry_after)
                raise
            self._pace.answered()
            return received

    def pause_after(self, trouble: ProviderError) -> float | None:
        """Seconds to wait before the next attempt; None where there should be none.

        Drawn from all of a range that doubles each time ("full jitter"), lest calls
        that failed together come back together.
        """
        if self._over(trouble) or trouble.kind not in ("throttled", "server", "timeout"):
            return None
        self._last = trouble
        self._failures += trouble.kind != "throttled"
        longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self.attempts - 1, 9))
        pause = random.uniform(0, longest)
        asked = trouble.retry_after or 0.0
        if self._failures == _ATTEMPTS or max(pause, asked) >= self._left():
            return None
        return pause if trouble.kind == "throttled" else max(pause, asked)

    def given_up(self, trouble: ProviderError) -> ProviderError:
        """What to raise: that time was over tells less than why another attempt was needed."""
        told = self._last if self._over(trouble) and self._last else trouble
        told.attempts, told.seconds = self.attempts, self.seconds()
        return told

    def _over(self, trouble: ProviderError) -> bool:
        """Whether it is only that the time of the call was over."""
        return isinstance(trouble, TurnTimeoutError) or (
            self._cut_short and trouble.kind == "timeout"
        )
