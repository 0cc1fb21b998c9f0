"""Work that asks models, done such that Ctrl-C ends it in order."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Any, Final, TypeVar

Done = TypeVar("Done")

_LOOK: Final = 0.2
"""Seconds until the main thread looks up from its wait."""


def unless_interrupted(work: Callable[[], Done], stop: threading.Event) -> Done:
    """What `work` returns, done in another thread: what is on its way at Ctrl-C is still noted.

    `stop` is set where the wait ends otherwise.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="work") as pool:
        future = pool.submit(work)
        try:
            await_all([future])
            return future.result()
        except BaseException:
            stop.set()
            raise


def await_all(futures: Iterable[Future[Any]]) -> None:
    """Return when all of them are done; raises what one of them raised as soon as it did.

    Not for ever at a time: Polars handles Ctrl-C such that it does not end a wait.
    """
    every = list(futures)
    while (looked := wait(every, _LOOK, FIRST_EXCEPTION)).not_done:
        for future in looked.done:
            future.result()
