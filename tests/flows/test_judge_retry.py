"""In virtual time, so that no test waits."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.flows.judge.provider import ProviderError
from claimflow.flows.judge.rate_limit import RateLimiter
from claimflow.flows.judge.retry import Delivery, send_with_retries
from tests.virtual_time import clock, run

TIMEOUT = 60.0


class Endpoint:
    """Does in turn what `script` says, the last of it for ever, taking `latency` seconds."""

    def __init__(self, *script: str | ProviderError, latency: float = 1.0) -> None:
        self.script = list(script)
        self.latency = latency
        self.sent_at: list[float] = []

    async def send(self, seconds: float) -> str:
        self.sent_at.append(clock())
        answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        latency = 1e9 if answer == "hang" else self.latency
        await asyncio.sleep(min(latency, seconds))
        if latency > seconds:
            raise ProviderError("timeout", f"no reply within {seconds:g} seconds")
        if isinstance(answer, ProviderError):
            raise ProviderError(answer.kind, answer.message, retry_after=answer.retry_after)
        return answer


def call(
    endpoint: Endpoint,
    pace: RateLimiter | None = None,
    before_send: Callable[[], Awaitable[None] | None] = lambda: None,
) -> Coroutine[Any, Any, Delivery[str]]:
    pace = pace or RateLimiter(8, clock=clock)
    return send_with_retries(
        endpoint.send, limiter=pace, tokens=1, timeout=TIMEOUT, before_send=before_send
    )


async def failing(endpoint: Endpoint, pace: RateLimiter | None = None) -> ProviderError:
    with pytest.raises(ProviderError) as raised:
        await call(endpoint, pace)
    return raised.value


def throttled(retry_after: float | None = None) -> ProviderError:
    return ProviderError("throttled", "too many", retry_after=retry_after)


SERVER = ProviderError("server", "broken")


def test_an_answer_comes_with_its_attempts_and_seconds() -> None:
    endpoint = Endpoint("yes")
    assert run(lambda: call(endpoint)) == Delivery("yes", 1, 1.0)


@pytest.mark.parametrize("kind", ["fatal", "format", "refused", "too_long", "bad_request"])
def test_what_no_repetition_mends_is_raised_at_once(kind: Any) -> None:
    endpoint = Endpoint(ProviderError(kind, "no", retry_after=1.0))
    text = run(lambda: failing(endpoint))
    assert (text.kind, text.attempts, text.seconds) == (kind, 1, 1.0)
    assert len(endpoint.sent_at) == 1


def test_a_broken_endpoint_gets_four_attempts_ever_further_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(random, "uniform", lambda low, high: low + high)
    endpoint = Endpoint(SERVER)
    text = run(lambda: failing(endpoint))
    assert endpoint.sent_at == [0, 1.5, 3.5, 6.5]
    assert (text.kind, text.message, text.attempts, text.seconds) == ("server", "broken", 4, 7.5)


def test_pauses_are_drawn_from_their_whole_range(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def uniform(low: float, high: float) -> float:
        asked.append((low, high))
        return 0.25

    monkeypatch.setattr(random, "uniform", uniform)
    endpoint = Endpoint(*[throttled()] * 8, "yes")
    assert run(lambda: call(endpoint)).attempts == 9
    assert asked == [(0, 0.5 * 2**n) for n in range(6)] + [(0, 20), (0, 20)]


def test_an_endpoint_that_hangs_is_given_up_at_four_timeouts() -> None:
    endpoint = Endpoint("hang")
    text = run(lambda: failing(endpoint))
    assert (text.kind, text.attempts) == ("timeout", 4)
    assert text.seconds == pytest.approx(4 * TIMEOUT)
    assert endpoint.sent_at[:2] == [0, pytest.approx(60.25, abs=0.25)]


def test_a_throttling_endpoint_is_asked_until_four_timeouts() -> None:
    endpoint = Endpoint(throttled())
    text = run(lambda: failing(endpoint))
    assert text.kind == "throttled"
    assert text.attempts == len(endpoint.sent_at) > 10
    assert 4 * TIMEOUT - 20 < text.seconds <= 4 * TIMEOUT


def test_an_attempt_that_time_cut_short_tells_why_it_was_made() -> None:
    endpoint = Endpoint(throttled(4 * TIMEOUT - 5), "hang")
    text = run(lambda: failing(endpoint))
    assert (text.kind, text.message, text.attempts) == ("throttled", "too many", 2)
    assert text.seconds == pytest.approx(4 * TIMEOUT)


def test_failures_mend() -> None:
    endpoint = Endpoint(SERVER, throttled(1.0), "hang", SERVER, throttled(), "yes")
    delivered = run(lambda: call(endpoint))
    assert (delivered.received, delivered.attempts) == ("yes", 6)


def test_retry_after_is_obeyed() -> None:
    endpoint = Endpoint(throttled(30.0), "yes")
    run(lambda: call(endpoint))
    assert endpoint.sent_at == [0, 31.0]


def test_retry_after_of_a_broken_endpoint_holds_back_this_call_only() -> None:
    async def main() -> None:
        pace = RateLimiter(8, clock=clock)
        broken = asyncio.create_task(call(first, pace))
        await asyncio.sleep(2)
        await call(second, pace)
        await broken

    first = Endpoint(ProviderError("server", "broken", retry_after=30.0), "yes")
    second = Endpoint("yes")
    run(main)
    assert first.sent_at == [0, 31.0]
    assert second.sent_at == [2.0]


@pytest.mark.parametrize("kind", ["throttled", "server"])
def test_a_retry_after_beyond_what_is_left_gives_up_at_once(kind: Any) -> None:
    endpoint = Endpoint(ProviderError(kind, "later", retry_after=3600.0))
    text = run(lambda: failing(endpoint))
    assert (text.kind, text.message, text.attempts, text.seconds) == (kind, "later", 1, 1.0)


def test_a_run_does_not_hang_on_a_retry_after_of_an_hour() -> None:
    async def main() -> list[ProviderError]:
        pace = RateLimiter(8, clock=clock)
        return await asyncio.gather(*(failing(endpoint, pace) for _ in range(100)))

    endpoint = Endpoint(throttled(3600.0))
    troubles = run(main)
    assert len(endpoint.sent_at) == 8
    assert {text.kind for text in troubles} == {"throttled"}
    assert sorted({(text.attempts, text.seconds) for text in troubles}) == [(0, 0.0), (1, 1.0)]


def test_waiting_for_a_turn_before_the_first_attempt_does_not_count() -> None:
    async def main() -> list[Delivery[str]]:
        pace = RateLimiter(1, clock=clock)
        return await asyncio.gather(*(call(endpoint, pace) for _ in range(10)))

    endpoint = Endpoint("yes", latency=59)
    assert run(main) == [Delivery("yes", 1, 59.0)] * 10


def test_the_turn_is_given_back_between_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        pace = RateLimiter(1, clock=clock)
        await asyncio.gather(call(first, pace), call(second, pace))

    monkeypatch.setattr(random, "uniform", lambda low, high: high)
    first, second = Endpoint(SERVER, "yes"), Endpoint("yes")
    run(main)
    assert first.sent_at == [0, 2.0]
    assert second.sent_at == [1.0]


def test_the_last_error_of_the_endpoint_is_reported_when_no_turn_comes() -> None:
    async def main() -> ProviderError:
        pace = RateLimiter(1, clock=clock)
        waiting = asyncio.create_task(failing(endpoint, pace))
        await asyncio.sleep(0)
        async with pace.turn(1, patience=10, again=True):
            await asyncio.sleep(1000)
        return await waiting

    endpoint = Endpoint(SERVER)
    text = run(main)
    assert (text.kind, text.attempts, text.seconds) == ("server", 1, 4 * TIMEOUT)


def test_only_throttling_and_silence_slow_us_down() -> None:
    async def limit_after(*script: str | ProviderError) -> int:
        pace = RateLimiter(8, clock=clock)
        await call(Endpoint(*script, "yes"), pace)
        return pace.limit

    assert run(lambda: limit_after(SERVER, SERVER)) == 8
    assert run(lambda: limit_after("hang")) == 4
    assert run(lambda: limit_after(throttled(), throttled())) == 2


def test_answers_speed_us_up() -> None:
    async def main() -> int:
        pace = RateLimiter(64, clock=clock)
        await asyncio.gather(*(call(Endpoint("yes"), pace) for _ in range(16)))
        return pace.limit

    assert run(main) > 8


@pytest.mark.parametrize("waits", [False, True])
def test_each_attempt_is_announced_and_may_be_forbidden(waits: bool) -> None:
    class StopError(Exception):
        pass

    class Signal:
        calls = 0

        def __call__(self) -> Awaitable[None] | None:
            self.calls += 1
            if self.calls == 3:
                raise StopError
            return asyncio.sleep(5) if waits else None

    async def main() -> None:
        pace = RateLimiter(1, clock=clock)
        with pytest.raises(StopError):
            await call(endpoint, pace, signal)
        await call(Endpoint("yes"), pace)

    signal, endpoint = Signal(), Endpoint(SERVER)
    run(main)
    assert len(endpoint.sent_at) == 2
    assert endpoint.sent_at[0] == (5 if waits else 0)


@given(
    st.lists(
        st.sampled_from(["yes", "hang", SERVER, throttled(), throttled(2.0), throttled(50.0)]),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 4),
)
def test_every_call_ends_in_time(script: list[str | ProviderError], most: int) -> None:
    async def main() -> None:
        pace = RateLimiter(most, clock=clock)
        endpoint = Endpoint(*script)
        calls = (call(endpoint, pace) for _ in range(6))
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(outcome, Delivery | ProviderError)
            assert outcome.seconds <= 4 * TIMEOUT + 1e-6

    run(main)
