"""Local worker processes, one per core."""

import multiprocessing
import os
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Final

from claimflow.flows.errors import StoppedError, WorkersError
from claimflow.flows.runner.workers import Made


def serve() -> None:
    """The main loop of a worker process: answer calls until the parent process is gone."""
    with Connection(sys.stdin.fileno()) as connection, suppress(EOFError, ConnectionError):
        while True:
            try:
                work, arguments = connection.recv()
            except (EOFError, ConnectionError):
                raise
            except Exception as error:
                what = f"a worker process cannot load its work: {type(error).__name__}: {error}"
                connection.send(WorkersError(what))
                continue
            connection.send(_made(work, arguments))


def _made(work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return work(*arguments)
    except Exception as error:
        error.add_note(f"in a worker process:\n{traceback.format_exc()}")
        return error


COUNT: Final = min(
    len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 8
)
"""Workers of a run: one per core, at most 8 because each needs about 200 MB."""

WORTH: Final = 5
"""Chunks that are worth the second of CPU that a worker needs to start."""

_TRIES: Final = 3
"""Processes that may die of a chunk before the run gives up."""

_POLL_SECONDS: Final = 0.2
"""Seconds between two checks whether the run was stopped."""

_SERVE: Final = (
    "import sys; sys.path[:] = {path!r}; "
    "from claimflow.flows.process import collect_less_garbage; collect_less_garbage(); "
    "from claimflow.flows.runner.workers.local import serve; serve()"
)


class LocalWorkers:
    """Processes on this machine; each is started when there is work for it.

    They are fresh interpreters, because neither Polars nor DuckDB survives a fork. Ctrl-C does
    not reach them; `close` kills them, and they end when this process ends.
    """

    def __init__(self, stop: threading.Event, count: int | None = None, shards: int = 1) -> None:
        self.count = count or COUNT
        self.shards = shards
        self._stop = stop
        self._pool = ThreadPoolExecutor(self.count, thread_name_prefix="worker")
        self._thread = threading.local()
        self._lock = threading.Lock()
        self._closed = False
        self.processes: list[subprocess.Popen[bytes]] = []

    def worth(self, chunks: int) -> bool:
        """As `Workers.worth`."""
        return self.count > 1 and chunks >= WORTH

    def each(
        self, work: Callable[..., Made], chunks: Iterable[tuple[Any, ...]], *, what: str
    ) -> Generator[Made]:
        """As `Workers.each`; reads one chunk more than there are workers."""
        waiting: deque[Future[Made]] = deque()
        try:
            for arguments in chunks:
                waiting.append(self._pool.submit(self._ask, work, arguments, what))
                if len(waiting) > self.count:
                    yield self._result(waiting.popleft())
            while waiting:
                yield self._result(waiting.popleft())
        finally:
            for future in waiting:
                future.cancel()

    def shared(self, _tables: Iterable[Any]) -> None:
        """As `Workers.shared`."""

    def on_each(self, _work: Callable[..., Any], *_arguments: Any) -> Mapping[str, Any]:
        """As `Engine.on_each`: no worker runs before there is work for it."""
        return {}

    def close(self) -> None:
        """Kill the workers."""
        with self._lock:
            self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in self.processes:
            process.kill()
        self._pool.shutdown()
        for process in self.processes:
            process.wait()

    def _result(self, future: Future[Made]) -> Made:
        while wait([future], _POLL_SECONDS).not_done:
            if self._stop.is_set():
                raise StoppedError
        return future.result()

    def _ask(self, work: Callable[..., Made], arguments: tuple[Any, ...], what: str) -> Made:
        """Send a chunk to the worker of this thread, or to a new one when that dies."""
        for _ in range(_TRIES):
            if not hasattr(self._thread, "connection"):
                self._thread.process, self._thread.connection = self._start()
            try:
                self._thread.connection.send((work, arguments))
                made: Made | Exception = self._thread.connection.recv()
            except (EOFError, OSError):
                self._thread.connection.close()
                del self._thread.connection
                code = self._thread.process.wait()
                continue
            if isinstance(made, Exception):
                raise made
            return made
        died = f"{_TRIES} worker processes, one after the other, ended while they made {what}"
        raise WorkersError(f"{died} (exit code {code}); is there enough memory?")

    def _start(self) -> tuple[subprocess.Popen[bytes], Connection]:
        ours, theirs = multiprocessing.Pipe()
        with theirs, self._lock:
            if self._closed:
                raise StoppedError
            process = subprocess.Popen(  # noqa: S603, it is this very Python
                [sys.executable, "-c", _SERVE.format(path=sys.path)],
                stdin=theirs.fileno(),
                # One thread each: the other cores have workers of their own.
                env=os.environ | {"POLARS_MAX_THREADS": "1"},
                process_group=0,
            )
            self.processes.append(process)
        return process, ours
