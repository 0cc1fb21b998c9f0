"""One asyncio loop in a thread of its own, for all that is asked of endpoints in a run."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

Result = TypeVar("Result")

_WORKERS: Final = 4
"""litellm prepares every call in a thread: more of them only take turns at the interpreter.
Some may wait for the store meanwhile."""


class Loop:
    """Runs coroutines for threads that wait for them. Started when first used."""

    def __init__(self, at_end: Callable[[], Awaitable[None]]) -> None:
        self._at_end = at_end
        self._turn = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """What `coroutine` returns or raises, run among those of other threads."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._started()).result()

    def close(self) -> None:
        """End the loop, after `at_end` has run in it."""
        with self._turn:
            if self._loop is None or self._thread is None:
                return
            asyncio.run_coroutine_threadsafe(self._finish(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._loop = None

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._turn:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._loop.set_default_executor(ThreadPoolExecutor(_WORKERS, "llm worker"))
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="llm", daemon=True
                )
                self._thread.start()
            return self._loop

    async def _finish(self) -> None:
        await self._at_end()
        loop = asyncio.get_running_loop()
        await loop.shutdown_asyncgens()
        await loop.shutdown_default_executor()
