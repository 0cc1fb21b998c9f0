"""Cost of a rate limit shared by two clients, compared with Prefect's own rate limit.

    python -m tests.benchmarks.limits [--seconds 20] [--rate 20]

Prints for each method how many calls the two clients send, and the CPU of the Prefect server and
of the clients. Starts a Prefect server, and takes three times the seconds.
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
from contextvars import copy_context
from itertools import chain
from pathlib import Path
from uuid import uuid4

from tests.benchmarks.measuring import process_cpu
from tests.flows.limits import Limit
from tests.flows.prefect_server import shared_server


def _busiest(times: list[float]) -> int:
    return max((sum(start <= at < start + 1 for at in times) for start in times), default=0)


async def _nobody(_url: str, seconds: float, _rate: float) -> list[list[float]]:
    await asyncio.sleep(seconds)
    return []


async def _places(url: str, seconds: float, rate: float) -> list[list[float]]:
    """The times at which two judges of `claimflow.flows.orchestration.shared_limits` send."""
    from prefect.client.orchestration import get_client

    from claimflow.flows.judge.rate_limit import RateLimiter
    from claimflow.flows.orchestration.shared_limits import RateSlot

    Limit(url, "places", round(60 * rate))
    async with get_client() as client:
        limit = await client.read_global_concurrency_limit_by_name("places")

    async def ask() -> list[float]:
        pace = RateLimiter(64)
        place = RateSlot(limit, pace.set_rate, holder=uuid4(), context=copy_context())
        sent = []
        try:
            async with place.slot():
                until = time.monotonic() + seconds
                while time.monotonic() < until:
                    async with pace.turn(1, patience=seconds, again=False):
                        sent.append(time.monotonic())
        finally:
            await place.close()
        return sent

    return list(await asyncio.gather(ask(), ask()))


async def _slots(url: str, seconds: float, rate: float) -> list[list[float]]:
    """The times at which two clients send that ask Prefect for a slot for every call."""
    import httpx
    from prefect.client.orchestration import get_client

    Limit(url, "slots", max(round(rate / 2), 1), decay=rate)

    async def ask() -> list[float]:
        # As `rate_limit` does, which asks for one at a time in each process.
        sent = []
        until = time.monotonic() + seconds
        async with get_client() as client:
            while time.monotonic() < until:
                try:
                    await client.increment_concurrency_slots(["slots"], 1, "rate_limit")
                    sent.append(time.monotonic())
                except httpx.HTTPStatusError as error:
                    await asyncio.sleep(float(error.response.headers.get("Retry-After", 0.3)))
        return sent

    return list(await asyncio.gather(ask(), ask()))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rate", type=float, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, shared_server(Path(folder) / "server") as url:
        os.environ["PREFECT_API_URL"] = url
        os.environ["PREFECT_HOME"] = folder
        server = json.loads((Path(folder) / "server/server.json").read_text("utf-8"))["process"]
        for name, method in (("nobody", _nobody), ("places", _places), ("a slot a call", _slots)):
            before = process_cpu(server), time.process_time()
            sent = asyncio.run(method(url, options.seconds, options.rate))
            theirs, ours = process_cpu(server) - before[0], time.process_time() - before[1]
            each = " and ".join(str(len(one)) for one in sent) or "no"
            print(
                f"{name:14} {each} calls, {_busiest([*chain(*sent)])} in the busiest second of "
                f"{options.rate:g}; CPU-seconds: server {theirs:.2f}, asking {ours:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
