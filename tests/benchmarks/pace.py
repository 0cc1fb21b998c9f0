"""Calls per second and share of refused calls, for several ways to pace 1,500 calls.

    python -m tests.benchmarks.pace

In virtual time: the loop's clock jumps to the next event, so that minutes take seconds. A reply
takes 0.3 s, a refusal 0.02 s. An endpoint that takes 20 calls at a time can give at most 66.7
calls per second; one that takes 64, 213.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from claimflow.flows.judge.provider import ProviderError
from claimflow.flows.judge.rate_limit import ConcurrencyLimit, RateLimiter
from claimflow.flows.judge.retry import send_with_retries
from tests.virtual_time import clock, run

CALLS = 1500
WORKERS = 256
LATENCY = 0.3


class Server(NamedTuple):
    """Takes `rate` requests in any second and `at_once` at a time; a share of `faults` fails."""

    rate: float = float("inf")
    at_once: float = float("inf")
    retry_after: float | None = None
    faults: float = 0.0


class RunningServer:
    """A server that counts what it receives and refuses."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.taken: deque[float] = deque()
        self.in_flight = self.sent = self.refused = 0

    async def send(self, seconds: float) -> bool:
        self.sent += 1
        now = clock()
        while self.taken and self.taken[0] <= now - 1 + 1e-6:
            self.taken.popleft()
        if len(self.taken) >= self.server.rate or self.in_flight >= self.server.at_once:
            self.refused += 1
            await asyncio.sleep(0.02)
            raise ProviderError("throttled", "too many", retry_after=self.server.retry_after)
        self.taken.append(now)
        self.in_flight += 1
        await asyncio.sleep(LATENCY * random.uniform(0.9, 1.1))
        self.in_flight -= 1
        if random.random() < self.server.faults:
            raise ProviderError("server", "broken")
        return True


class Steady(ConcurrencyLimit):
    """A limit that does not adapt."""

    def grow(self) -> None:
        pass

    def cut(self, sent_at: float, now: float) -> None:
        pass


def adaptive() -> RateLimiter:
    return RateLimiter(64, clock=clock)


def fixed(most: int) -> RateLimiter:
    pace = RateLimiter(most, clock=clock)
    pace._limit = Steady(most, most)
    return pace


POLICIES: dict[str, Callable[[], RateLimiter]] = {
    "fixed 16": lambda: fixed(16),
    "fixed 64": lambda: fixed(64),
    "adaptive, to 64": adaptive,
    "rpm 6000 told": lambda: RateLimiter(64, rpm=6000, clock=clock),
}
SERVERS = {
    "100/s, Retry-After 1": Server(rate=100, retry_after=1.0),
    "100/s": Server(rate=100),
    "20 at once": Server(at_once=20),
    "20 at once, Retry-After 1": Server(at_once=20, retry_after=1.0),
    "100/s, 5 % faults": Server(rate=100, faults=0.05),
    "no limit": Server(),
}


async def measure(server: Server, pace: RateLimiter) -> tuple[float, float, int]:
    """Answered calls per second, share of refused requests, calls given up."""
    running = RunningServer(server)
    left = iter(range(CALLS))
    failed = 0

    async def work() -> None:
        nonlocal failed
        for _ in left:
            try:
                await send_with_retries(running.send, limiter=pace, tokens=1, timeout=60)
            except ProviderError:
                failed += 1

    await asyncio.gather(*(work() for _ in range(WORKERS)))
    return (CALLS - failed) / clock(), running.refused / running.sent, failed


if __name__ == "__main__":
    print(f"{'server':<27}{'policy':<18}calls/s     refused   given up")
    for name, server in SERVERS.items():
        for policy, pace in POLICIES.items():
            random.seed(0)
            speed, away, failed = run(partial(measure, server, pace()))
            print(f"{name:<27}{policy:<18}{speed:>7.1f} {away:>10.1%} {failed:>10}")
