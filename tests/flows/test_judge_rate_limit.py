"""In virtual time, so that no test waits."""

import asyncio
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.flows.judge.rate_limit import RateLimiter, TurnTimeoutError
from tests.virtual_time import VirtualLoop, clock, run


def pace_of(most: int = 64, rpm: int | None = None, tpm: int | None = None) -> RateLimiter:
    return RateLimiter(most, rpm, tpm, clock)


async def occupy(pace: RateLimiter, seconds: float = 1.0, tokens: int = 1) -> float:
    """A call that is answered after so many seconds; when it was sent."""
    async with pace.turn(tokens, patience=100, again=False):
        sent_at = clock()
        await asyncio.sleep(seconds)
        pace.answered()
    return sent_at


def test_the_limit_doubles_with_every_round_trip() -> None:
    async def main() -> list[int]:
        pace = pace_of(50)
        limits = [pace.limit]
        calls = [asyncio.create_task(occupy(pace)) for _ in range(500)]
        for seconds in (1.5, 1, 1, 1):
            await asyncio.sleep(seconds)
            limits.append(pace.limit)
        await asyncio.gather(*calls)
        return limits

    assert run(main) == [8, 16, 32, 50, 50]


def test_after_a_cut_the_limit_grows_by_one_a_round_trip() -> None:
    async def main() -> list[int]:
        pace = pace_of()
        calls = [asyncio.create_task(occupy(pace)) for _ in range(100)]
        await asyncio.sleep(0.5)
        pace.throttled(clock())
        limits = [pace.limit]
        for _ in range(3):
            await asyncio.sleep(1)
            limits.append(pace.limit)
        await asyncio.gather(*calls)
        return limits

    # 8 * 0.6 = 4.8; the eight in flight are answered while the limit is five already.
    assert run(main) == [4, 6, 7, 8]


def test_a_limit_that_is_not_reached_does_not_grow() -> None:
    async def main() -> int:
        pace = pace_of()
        for _ in range(20):
            await asyncio.gather(*(occupy(pace) for _ in range(7)))
        return pace.limit

    assert run(main) == 8


def test_a_wave_of_throttled_replies_cuts_once() -> None:
    async def main() -> list[int]:
        pace = pace_of(100, rpm=60_000)
        limits = [pace.limit]
        await asyncio.sleep(1)
        for sent_at in (0.0, 0.1, 0.9, 1.0, 0.5):
            pace.throttled(sent_at)
            limits.append(pace.limit)
        await asyncio.sleep(1)
        pace.throttled(1.5)
        return [*limits, pace.limit]

    assert run(main) == [100, 60, 60, 60, 36, 36, 21]


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 40))
def test_the_limit_stays_between_one_and_the_most(answers: list[bool], most: int) -> None:
    async def main() -> None:
        pace = pace_of(most)
        assert pace.limit == min(8, most)
        for answered in answers:
            async with pace.turn(1, patience=1, again=False):
                await asyncio.sleep(1)
                pace.answered() if answered else pace.throttled(clock() - 1)
            assert 1 <= pace.limit <= most

    run(main)


def test_turns_come_in_order_of_arrival_and_never_beyond_the_limit() -> None:
    async def main() -> tuple[list[int], int]:
        pace = pace_of(3)
        order: list[int] = []
        in_flight = most = 0

        async def call(number: int) -> None:
            nonlocal in_flight, most
            async with pace.turn(1, patience=1, again=False):
                order.append(number)
                in_flight += 1
                most = max(most, in_flight)
                await asyncio.sleep(random.random())
                in_flight -= 1

        await asyncio.gather(*(call(number) for number in range(50)))
        return order, most

    assert run(main) == (list(range(50)), 3)


def test_a_call_that_was_sent_before_goes_first() -> None:
    async def main() -> list[str]:
        pace = pace_of(1)
        order: list[str] = []

        async def call(name: str, again: bool) -> None:
            async with pace.turn(1, patience=10, again=again):
                order.append(name)
                await asyncio.sleep(1)

        calls = [("a", False), ("b", False), ("c", False), ("d", True), ("e", True)]
        await asyncio.gather(*(call(*each) for each in calls))
        return order

    assert run(main) == ["a", "d", "e", "b", "c"]


def test_no_call_is_sent_while_the_endpoint_refuses() -> None:
    async def main() -> list[float]:
        pace = pace_of(2)
        calls = [asyncio.create_task(occupy(pace)) for _ in range(4)]
        await asyncio.sleep(0.5)
        pace.throttled(0.0, 3.0)
        pace.throttled(0.0, 1.0)
        return await asyncio.gather(*calls)

    # Cut to one at a time, and back to two by the answers to the two in flight.
    assert run(main) == [0.0, 0.0, 3.5, 3.5]


@pytest.mark.parametrize("again", [False, True])
def test_waiting_is_given_up_as_soon_as_it_is_pointless(again: bool) -> None:
    async def main() -> tuple[list[float], TurnTimeoutError]:
        pace = pace_of(1)
        first = asyncio.create_task(occupy(pace))
        await asyncio.sleep(0.1)

        async def call() -> TurnTimeoutError:
            with pytest.raises(TurnTimeoutError) as raised:
                async with pace.turn(1, patience=240, again=again):
                    raise AssertionError("must not be sent")
            times.append(clock())
            return raised.value

        times: list[float] = []
        waiting = asyncio.create_task(call())
        await asyncio.sleep(0.4)
        pace.throttled(0.0, 3600.0)
        text = await waiting
        await asyncio.sleep(10)
        await call()
        await first
        return times, text

    times, text = run(main)
    assert times == [0.5, 10.5]
    assert (text.kind, text.retry_after) == ("throttled", 3600.0)
    assert text.message == "the endpoint asks to wait 3600 seconds, longer than a call may take"


def test_a_call_that_was_sent_before_waits_no_longer_than_it_may() -> None:
    async def main() -> float:
        pace = pace_of(1)
        first = asyncio.create_task(occupy(pace, 100))
        await asyncio.sleep(0)
        with pytest.raises(TurnTimeoutError):
            async with pace.turn(1, patience=5, again=True):
                raise AssertionError("must not be sent")
        given_up_at = clock()
        await first
        await occupy(pace)
        return given_up_at

    assert run(main) == 5.0


def test_waiting_for_the_calls_before_never_counts() -> None:
    async def main() -> list[float]:
        pace = pace_of(1)
        return await asyncio.gather(*(occupy(pace, 90) for _ in range(4)))

    assert run(main) == [0, 90, 180, 270]


@pytest.mark.parametrize(("answers", "sent"), [(False, False), (True, True)])
def test_being_sent_away_again_and_again_counts_unless_others_are_answered(
    answers: bool, sent: bool
) -> None:
    async def main() -> bool:
        pace = pace_of(1)

        async def refused() -> None:
            for _ in range(5):
                async with pace.turn(1, patience=1000, again=True):
                    if answers:
                        pace.answered()
                    pace.throttled(clock(), 30.0)

        async def call() -> bool:
            try:
                async with pace.turn(1, patience=100, again=False):
                    return True
            except TurnTimeoutError:
                return False

        hog = asyncio.create_task(refused())
        await asyncio.sleep(0)
        got = await call()
        assert clock() == (150 if sent else 90)
        await hog
        return got

    assert run(main) == sent


def test_a_wave_that_asks_to_be_left_alone_counts_once() -> None:
    async def main() -> list[float]:
        pace = pace_of(1)
        calls = [asyncio.create_task(occupy(pace)) for _ in range(2)]
        await asyncio.sleep(0.5)
        for _ in range(10):
            pace.throttled(0.0, 60.0)
            await asyncio.sleep(0.01)
        return await asyncio.gather(*calls)

    assert run(main) == [0.0, pytest.approx(60.59)]


def test_a_known_rate_of_requests_is_kept_evenly() -> None:
    async def main() -> tuple[int, list[float]]:
        pace = pace_of(64, rpm=120)
        first = await asyncio.gather(*(occupy(pace, 5) for _ in range(20)))
        await asyncio.sleep(100)
        start = clock()
        again = await asyncio.gather(*(occupy(pace, 5) for _ in range(3)))
        return pace.limit, first + [at - start for at in again]

    limit, times = run(main)
    assert limit == 64
    assert times == pytest.approx([n * 0.5 for n in range(20)] + [0, 0.5, 1.0])


def test_a_known_rate_of_tokens_is_kept_evenly() -> None:
    async def main() -> list[float]:
        pace = pace_of(64, rpm=60, tpm=600)
        return await asyncio.gather(*(occupy(pace, 5, tokens) for tokens in (30, 5, 20, 10)))

    assert run(main) == pytest.approx([0, 3, 4, 6])


def test_what_a_late_timer_lost_is_made_up_for_but_never_beyond_the_rate() -> None:
    async def main() -> list[float]:
        pace = pace_of(64, rpm=6000)
        calls = [asyncio.create_task(occupy(pace, 0.001)) for _ in range(200)]
        await asyncio.sleep(0.5)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.leaping.now += 1.0  # the process was busy
        return await asyncio.gather(*calls)

    times = run(main)
    assert max(times) == pytest.approx(0.01 * 199 + 1 - 0.06, abs=0.011)
    assert all(at >= n * 0.01 - 1e-9 for n, at in enumerate(times))
    late = [at for at in times if 1.5 <= at <= 1.51]
    assert 5 <= len(late) <= 8


def test_a_part_of_a_shared_rate_holds_from_the_next_call_on() -> None:
    async def main() -> list[float]:
        pace = pace_of(64, rpm=120)
        pace.set_rate(600)
        sent = [await occupy(pace, 0) for _ in range(3)]
        pace.set_rate(60)
        sent += [await occupy(pace, 0) for _ in range(3)]
        pace.set_rate(math.inf)
        return [*sent, *[await occupy(pace, 0) for _ in range(3)]]

    # Its own rate of two a second is never exceeded, whatever others leave.
    assert run(main) == pytest.approx([0, 0.5, 1, 1.5, 2.5, 3.5, 4.5, 5, 5.5])


@given(st.integers(0, 10**9), st.sampled_from([None, 600]))
def test_no_turn_is_lost_when_callers_go_away(seed: int, rpm: int | None) -> None:
    """Cancelled while queued, at the gate, on the way out of the queue, in flight."""
    chance = random.Random(seed)

    async def main() -> None:
        pace = pace_of(4, rpm=rpm)

        async def call(again: bool) -> None:
            async with pace.turn(1, patience=3, again=again):
                sent_at = clock()
                await asyncio.sleep(chance.choice([0, 0.25, 1]))
                if chance.random() < 0.3:
                    pace.throttled(sent_at, chance.choice([None, 0.5]))
                else:
                    pace.answered()

        calls = [asyncio.create_task(call(chance.random() < 0.3)) for _ in range(60)]
        for task in chance.sample(calls, 40):
            await asyncio.sleep(chance.choice([0, 0, 0, 0.25, 0.5]))
            task.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await asyncio.sleep(2)
        assert pace.limit >= 1

        # All turns are free again: as many as the limit says go at once.
        held = [asyncio.create_task(occupy(pace, 10)) for _ in range(pace.limit)]
        start = clock()
        sent = await asyncio.gather(*held)
        spacing = 60 / rpm if rpm else 0
        assert [at - start for at in sent] == pytest.approx([n * spacing for n in range(len(sent))])

    run(main)
