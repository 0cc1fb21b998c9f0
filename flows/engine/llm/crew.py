"""The workers on one endpoint: they end together, and let what is paid come back first."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, TypeVar

from claimflow.flows.engine.errors import StoppedError

_GRACE: Final = 3.0
"""Seconds that calls in flight have to come back when the work is to end."""

_LOOK: Final = 0.2
"""Seconds between two looks whether it is."""

Batch = TypeVar("Batch")
Result = TypeVar("Result")


class Crew:
    """Up to `most` workers for every step that asks; what breaks one step's work ends them all."""

    def __init__(self, most: int, stop: threading.Event) -> None:
        self._most = most
        self._stop = stop
        self._broken: Exception | None = None

    async def work_through(
        self, batches: Iterator[Batch], settle: Callable[[Batch], Awaitable[None]]
    ) -> None:
        """Have each of `batches` settled. A pool and not a task for each: there may be many.

        Raises `StoppedError` when the run is to stop, or what any `settle` raised first.
        """

        async def work() -> None:
            # Nothing is raised here, for that would cancel the calls of the others.
            try:
                for batch in batches:
                    if self._is_ending():
                        return
                    await settle(batch)
            except StoppedError:
                return
            except Exception as error:
                self._broken = self._broken or error

        async def all_work() -> None:
            async with asyncio.TaskGroup() as workers:
                for _ in range(self._most):
                    workers.create_task(work())

        await self.patiently(all_work())

    async def patiently(self, awaitable: Awaitable[Result]) -> Result:
        """What is awaited; when the work is to end it gets a moment more."""
        task = asyncio.ensure_future(awaitable)
        while not task.done():
            ending = self._is_ending()
            await asyncio.wait({task}, timeout=_GRACE if ending else _LOOK)
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
