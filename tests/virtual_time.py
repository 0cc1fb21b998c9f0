"""A loop whose clock leaps to the next event, so that nobody waits."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any


class Leaping(selectors.DefaultSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "everyone waits for something that will never happen"
        self.now += max(timeout, 0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop in virtual time."""

    def __init__(self) -> None:
        self.leaping = Leaping()
        super().__init__(self.leaping)

    def time(self) -> float:
        return self.leaping.now


def run(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """What `main` returns, run in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


def clock() -> float:
    """The virtual time, in seconds."""
    return asyncio.get_running_loop().time()
