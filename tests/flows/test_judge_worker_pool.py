import asyncio
import threading
from collections.abc import Iterator

import pytest

from claimflow.flows.errors import StoppedError
from claimflow.flows.judge import worker_pool
from claimflow.flows.judge.worker_pool import WorkerPool


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "_GRACE_SECONDS", 0.3)
    monkeypatch.setattr(worker_pool, "_POLL_SECONDS", 0.02)


def test_every_batch_is_handled_by_a_limited_number_of_workers() -> None:
    working = most = 0
    handled: list[int] = []

    async def handle(batch: int) -> None:
        nonlocal working, most
        working += 1
        most = max(most, working)
        await asyncio.sleep(0.001)
        working -= 1
        handled.append(batch)

    asyncio.run(WorkerPool(5, threading.Event()).work_through(iter(range(50)), handle))
    assert sorted(handled) == list(range(50))
    assert most == 5


def test_batches_are_made_as_they_are_needed() -> None:
    made = 0

    def batches() -> Iterator[int]:
        nonlocal made
        while True:
            made += 1
            yield made

    async def handle(batch: int) -> None:
        await asyncio.sleep(0.001)
        if batch == 10:
            raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        asyncio.run(WorkerPool(2, threading.Event()).work_through(batches(), handle))
    assert made < 20


def test_what_breaks_one_lets_the_others_finish_what_they_began() -> None:
    handled: list[int] = []

    async def handle(batch: int) -> None:
        await asyncio.sleep(0.02 if batch == 1 else 0.1)
        if batch == 1:
            raise ValueError("broken")
        handled.append(batch)

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(WorkerPool(3, threading.Event()).work_through(iter(range(100)), handle))
    assert handled == [0, 2]


def test_what_breaks_the_work_of_one_step_ends_that_of_another() -> None:
    async def breaks(batch: int) -> None:
        raise ValueError("broken")

    async def goes_on(batch: int) -> None:
        await asyncio.sleep(3600)

    async def main() -> list[BaseException | None]:
        pool = WorkerPool(1, threading.Event())
        handlers = (goes_on, breaks, goes_on)
        steps = (pool.work_through(iter([1]), handle) for handle in handlers)
        return await asyncio.gather(*steps, return_exceptions=True)

    assert [str(error) for error in asyncio.run(main())] == ["broken"] * 3


def test_a_stop_waits_for_calls_in_flight_but_not_for_those_that_hang() -> None:
    stop = threading.Event()
    ended: dict[int, str] = {}

    async def handle(batch: int) -> None:
        if batch == 1:
            stop.set()
        try:
            await asyncio.sleep(0.1 if batch == 0 else 3600)
            ended[batch] = "came back"
        except asyncio.CancelledError:
            ended[batch] = "cancelled"
            raise

    with pytest.raises(StoppedError):
        asyncio.run(WorkerPool(2, stop).work_through(iter(range(9)), handle))
    assert ended == {0: "came back", 1: "cancelled"}


def test_a_stop_seen_by_a_call_is_no_breakage() -> None:
    stop = threading.Event()

    async def handle(batch: int) -> None:
        stop.set()
        raise StoppedError

    with pytest.raises(StoppedError):
        asyncio.run(WorkerPool(2, stop).work_through(iter(range(9)), handle))


def test_waiting_for_the_answer_of_another_step_is_stopped_too() -> None:
    stop = threading.Event()

    async def main() -> None:
        never = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.05, stop.set)
        await WorkerPool(1, stop).wait_for(asyncio.shield(never))

    with pytest.raises(StoppedError):
        asyncio.run(main())


def test_a_cancelled_answer_stops_those_waiting_for_it() -> None:
    async def main() -> None:
        answer = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.05, answer.cancel)
        await WorkerPool(1, threading.Event()).wait_for(asyncio.shield(answer))

    with pytest.raises(StoppedError):
        asyncio.run(main())


def test_work_begins_when_the_last_item_of_the_one_before_is_taken() -> None:
    events: list[str] = []

    async def run() -> None:
        pool = WorkerPool(2, threading.Event())
        release = asyncio.Event()

        async def handle(item: str) -> None:
            events.append(f"begin {item}")
            if item == "a3":
                await release.wait()
            await asyncio.sleep(0.01)
            events.append(f"end {item}")

        async with asyncio.TaskGroup() as both:
            both.create_task(pool.work_through(iter(["a1", "a2", "a3"]), handle))
            await asyncio.sleep(0)
            both.create_task(pool.work_through(iter(["b1", "b2"]), handle))
            while "end b2" not in events:
                await asyncio.sleep(0.01)
            release.set()

    asyncio.run(asyncio.wait_for(run(), 10))
    assert events.index("begin b1") > events.index("begin a3")
    assert events.index("end b2") < events.index("end a3")


def test_votes_go_on_side_by_side_and_what_follows_begins_after_their_last_items() -> None:
    events: list[str] = []

    async def run() -> None:
        pool = WorkerPool(1, threading.Event())

        async def handle(item: str) -> None:
            events.append(item)
            await asyncio.sleep(0.01)

        async with asyncio.TaskGroup() as all_work:
            for name, together in (("a", "x"), ("b", "x"), ("c", "y"), ("d", None), ("e", None)):
                items = iter([f"{name}{number}" for number in range(4)])
                all_work.create_task(pool.work_through(items, handle, together=together))
                await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(run(), 10))
    votes = [item for item in events if item[0] in "ab"]
    assert votes == [f"{name}{number}" for number in range(4) for name in "ab"]
    first_of = {name: events.index(f"{name}0") for name in "cde"}
    assert first_of["c"] > max(events.index("a3"), events.index("b3"))
    assert first_of["d"] > events.index("c3")
    assert first_of["e"] > events.index("d3")


def test_work_that_breaks_off_lets_the_next_begin() -> None:
    stopped = threading.Event()

    async def run() -> None:
        pool = WorkerPool(1, stopped)

        async def handle(_: int) -> None:
            stopped.set()

        results = await asyncio.gather(
            pool.work_through(iter([1, 2]), handle),
            pool.work_through(iter([3]), handle),
            return_exceptions=True,
        )
        assert [type(one) for one in results] == [StoppedError, StoppedError]

    asyncio.run(asyncio.wait_for(run(), 10))
