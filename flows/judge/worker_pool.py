"""Workers that ask an endpoint at the same time, for all steps of a run."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Hashable, Iterator
from itertools import islice
from typing import Final, TypeVar

from claimflow.flows.errors import StoppedError

_GRACE_SECONDS: Final = 3.0
"""How long calls in flight may still take when the run is to end."""

_POLL_SECONDS: Final = 0.2
"""How often to check whether the run is to end."""

WorkItem = TypeVar("WorkItem")
Result = TypeVar("Result")


class WorkerPool:
    """Up to `most` workers for each step that asks; an exception in one step ends all of them.

    Work begins in the order of the calls of `work_through`, each when the last item of the one
    before is taken: so the rows of a part of the samples can be made while the next part is asked
    about. Calls in succession with the same `together`, such as the votes of a step, go on side by
    side: where a budget ends, what was asked has all of its votes. Used by the coroutines of one
    loop.
    """

    def __init__(self, most: int, stop: threading.Event) -> None:
        self._most = most
        self._stop = stop
        self._broken: Exception | None = None
        self._turn: _Turn | None = None

    async def work_through(
        self,
        items: Iterator[WorkItem],
        handle: Callable[[WorkItem], Awaitable[None]],
        *,
        together: Hashable = None,
    ) -> None:
        """Call `handle` for each of `items`, which the workers take one after the other.

        A task for each item would take much memory. Raises `StoppedError` when the run is to
        stop, else the first error of any `handle`.
        """

        turn = self._turn
        if turn is None or not turn.takes(together):
            turn = self._turn = _Turn(together, after=turn)
        leave = turn.join()
        taken = _until_last(items, leave)

        async def work() -> None:
            # An error raised here would cancel the calls of the other workers.
            try:
                for item in taken:
                    if self._is_ending():
                        return
                    await handle(item)
            except StoppedError:
                return
            except Exception as error:
                self._broken = self._broken or error

        async def all_work() -> None:
            if turn.before is not None:
                await turn.before.wait()
            async with asyncio.TaskGroup() as workers:
                for _ in range(self._most):
                    workers.create_task(work())

        try:
            await self.wait_for(all_work())
        finally:
            leave()

    async def wait_for(self, awaitable: Awaitable[Result]) -> Result:
        """The result of `awaitable`.

        When the run is to end, `awaitable` is cancelled after a few seconds.
        """
        task = asyncio.ensure_future(awaitable)
        while not task.done():
            ending = self._is_ending()
            await asyncio.wait({task}, timeout=_GRACE_SECONDS if ending else _POLL_SECONDS)
            if ending and not task.done():
                task.cancel()
                await asyncio.wait({task})
        if self._broken is not None:
            raise self._broken
        if self._stop.is_set() or task.cancelled():
            raise StoppedError
        return task.result()

    def _is_ending(self) -> bool:
        return self._stop.is_set() or self._broken is not None


class _Turn:
    """Calls of `work_through` that go on side by side: their work begins when `before` is set.

    `is_over` is set when the last item of each is taken.
    """

    def __init__(self, together: Hashable, *, after: "_Turn | None") -> None:
        self.before: asyncio.Event | None = None if after is None else after.is_over
        self.is_over: asyncio.Event = asyncio.Event()
        self._together = together
        self._open = set[object]()

    def takes(self, together: Hashable) -> bool:
        """Whether a further call belongs to this turn."""
        return together is not None and together == self._together and not self.is_over.is_set()

    def join(self) -> Callable[[], None]:
        """Add a call; returns what to call, once or more often, when its last item is taken."""
        call = object()
        self._open.add(call)

        def leave() -> None:
            self._open.discard(call)
            if not self._open:
                self.is_over.set()

        return leave


def _until_last(items: Iterator[WorkItem], last_taken: Callable[[], None]) -> Iterator[WorkItem]:
    """The items; `last_taken` is called when the last one is taken."""
    following = list(islice(items, 1))
    while following:
        [item] = following
        following = list(islice(items, 1))
        if not following:
            last_taken()
        yield item
