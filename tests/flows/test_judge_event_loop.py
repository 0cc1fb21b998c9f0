import asyncio
import gc
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from claimflow.flows.judge.event_loop import Loop


async def nothing() -> None:
    pass


def test_threads_share_one_loop_in_a_thread_of_its_own() -> None:
    loop = Loop(at_end=nothing)
    met = threading.Barrier(3)

    async def where() -> tuple[int, int]:
        return id(asyncio.get_running_loop()), threading.get_ident()

    def ask(_: int) -> tuple[tuple[int, int], int]:
        met.wait()
        return loop.run(where()), threading.get_ident()

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(ask, range(3)))
    loop.close()
    assert len({place for place, _ in found}) == 1
    assert len({asker for _, asker in found}) == 3
    assert found[0][0][1] not in {asker for _, asker in found}


def test_coroutines_of_several_threads_run_side_by_side() -> None:
    loop = Loop(at_end=nothing)
    arrived = 0
    both = asyncio.Event()

    async def meet() -> None:
        nonlocal arrived
        arrived += 1
        if arrived == 2:
            both.set()
        await asyncio.wait_for(both.wait(), 10)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: loop.run(meet()), range(2)))
    loop.close()


def test_what_a_coroutine_raises_is_raised_to_who_runs_it() -> None:
    loop = Loop(at_end=nothing)

    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        loop.run(fail())
    loop.close()


def test_the_end_comes_once_in_the_loop_and_leaves_no_thread() -> None:
    ended: list[int] = []

    async def at_end() -> None:
        ended.append(id(asyncio.get_running_loop()))

    async def number() -> int:
        await asyncio.to_thread(lambda: None)
        return id(asyncio.get_running_loop())

    before = set(threading.enumerate())
    loop = Loop(at_end)
    used = loop.run(number())
    loop.close()
    loop.close()
    assert ended == [used]
    # Others may have ended meanwhile.
    assert set(threading.enumerate()) <= before


def test_an_unused_loop_is_never_started() -> None:
    async def at_end() -> None:
        raise AssertionError("there is nothing to end")

    before = set(threading.enumerate())
    Loop(at_end).close()
    assert set(threading.enumerate()) <= before


def test_a_prepared_call_that_is_not_waited_for_any_more_is_dropped_quietly() -> None:
    # A coroutine that is never awaited warns when it is freed, and a warning fails the test.
    prepared = threading.Event()

    async def send() -> str:
        return "sent"

    def prepare() -> Coroutine[Any, Any, str]:
        prepared.wait()
        return send()

    async def call() -> str:
        return await (await asyncio.get_running_loop().run_in_executor(None, prepare))

    async def call_twice() -> str:
        given_up = asyncio.create_task(call())
        await asyncio.sleep(0)
        given_up.cancel()
        prepared.set()
        await asyncio.wait({given_up})
        return await call()

    loop = Loop(at_end=nothing)
    assert loop.run(call_twice()) == "sent"
    loop.close()
    gc.collect()
