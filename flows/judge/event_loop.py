"""An event loop in a thread of its own, which any thread may use."""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

Result = TypeVar("Result")

_WORKERS: Final = 4
"""Threads that prepare calls and wait for the store. More would wait for the interpreter's lock."""


class _Threads(ThreadPoolExecutor):
    """Threads that prepare calls, such as litellm's, and return a coroutine that sends them.

    A wait that is cancelled drops the coroutine before it has begun. Python would print on the
    user's terminal that it was never awaited.
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """As `Executor.submit`."""

        def call() -> Any:
            result = fn(*args, **kwargs)
            return _Droppable(result) if inspect.iscoroutine(result) else result

        return super().submit(call)


class _Droppable(Coroutine[Any, Any, Any]):
    """A coroutine that ends quietly when it is dropped before it has begun."""

    def __init__(self, inner: Coroutine[Any, Any, Any]) -> None:
        self._inner = inner

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._inner.__await__()

    def send(self, value: Any) -> Any:
        return self._inner.send(value)

    def throw(self, *error: Any) -> Any:
        return self._inner.throw(*error)

    def close(self) -> None:
        self._inner.close()

    def __del__(self) -> None:
        if inspect.getcoroutinestate(self._inner) == inspect.CORO_CREATED:
            self._inner.close()


class Loop:
    """An event loop in a thread of its own, of that name, started when first used."""

    def __init__(self, at_end: Callable[[], Awaitable[None]], *, name: str = "llm") -> None:
        self._name = name
        self._at_end = at_end
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """The result of `coroutine`, or what it raises. Any thread may call this."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._running_loop()).result()

    def close(self) -> None:
        """End the loop, after `at_end` has run in it."""
        with self._lock:
            if self._loop is None or self._thread is None:
                return
            asyncio.run_coroutine_threadsafe(self._finish(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._loop = None

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._loop.set_default_executor(_Threads(_WORKERS, f"{self._name} worker"))
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name=self._name, daemon=True
                )
                self._thread.start()
            return self._loop

    async def _finish(self) -> None:
        await self._at_end()
        loop = asyncio.get_running_loop()
        await loop.shutdown_asyncgens()
        await loop.shutdown_default_executor()
