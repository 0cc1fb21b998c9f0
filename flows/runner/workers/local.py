"""Local worker processes, one per core."""

import multiprocessing
import os
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from multiprocessing.connection import Connection
from typing import Any, Final

from claimflow.flows.errors import StoppedError, WorkersError
from claimflow.flows.runner.workers.protocol import Made

# What a local worker process does: call what comes on its standard input.


def serve() -> None:
    """Answer each call until whoever started this process is gone."""
    with Connection(sys.stdin.fileno()) as connection:
        while True:
            try:
                work, arguments = connection.recv()
            except EOFError:
                return
            connection.send(_made(work, arguments))


def _made(work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return work(*arguments)
    except Exception as error:
        error.add_note(f"in a worker process:\n{traceback.format_exc()}")
        return error


# Worker processes on this machine, one a core.


COUNT: Final = min(
    len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 8
)
"""Workers of a run: one a core, and no more than 8, for each holds about 200 MB."""

WORTH: Final = 5
"""Chunks, at least, that are worth the second of CPU that a worker takes to start."""

_TRIES: Final = 3
"""Processes that a chunk may end before it is given up."""

_LOOK: Final = 0.2
"""Seconds between two looks at whether the run was asked to stop."""

_SERVE: Final = (
    "import sys; sys.path[:] = {path!r}; "
    "from claimflow.flows.runner.workers.local import serve; serve()"
)


class LocalWorkers:
    """Processes of this machine; each is started when there is work for it.

    They are fresh interpreters: neither Polars nor DuckDB survives a fork. Ctrl-C does not
    reach them; `close` ends them, whatever they are at, and so does the end of this process.
    """

    def __init__(self, stop: threading.Event, count: int | None = None, shards: int = 1) -> None:
        self.count = count or COUNT
        self.shards = shards
        self._stop = stop
        self._pool = ThreadPoolExecutor(self.count, thread_name_prefix="worker")
        self._own = threading.local()
        self._turn = threading.Lock()
        self._closed = False
        self.processes: list[subprocess.Popen[bytes]] = []

    def worth(self, chunks: int) -> bool:
        """As `Workers.worth`."""
        return self.count > 1 and chunks >= WORTH

    def each(
        self, work: Callable[..., Made], chunks: Iterable[tuple[Any, ...]], *, what: str
    ) -> Iterator[Made]:
        """As `Workers.each`; one chunk more than there are workers is taken."""
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

    def close(self) -> None:
        """End the workers."""
        with self._turn:
            self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in self.processes:
            process.kill()
        self._pool.shutdown()
        for process in self.processes:
            process.wait()

    def _result(self, future: Future[Made]) -> Made:
        while wait([future], _LOOK).not_done:
            if self._stop.is_set():
                raise StoppedError
        return future.result()

    def _ask(self, work: Callable[..., Made], arguments: tuple[Any, ...], what: str) -> Made:
        """A chunk done by the worker of this thread, or by the next one when it dies."""
        for _ in range(_TRIES):
            if not hasattr(self._own, "connection"):
                self._own.process, self._own.connection = self._start()
            try:
                self._own.connection.send((work, arguments))
                made: Made | Exception = self._own.connection.recv()
            except (EOFError, OSError):
                self._own.connection.close()
                del self._own.connection
                code = self._own.process.wait()
                continue
            if isinstance(made, Exception):
                raise made
            return made
        died = f"{_TRIES} worker processes, one after the other, ended while they made {what}"
        raise WorkersError(f"{died} (exit code {code}); is there enough memory?")

    def _start(self) -> tuple[subprocess.Popen[bytes], Connection]:
        ours, theirs = multiprocessing.Pipe()
        with theirs, self._turn:
            if self._closed:
                raise StoppedError
            process = subprocess.Popen(  # noqa: S603, it is this very Python
                [sys.executable, "-c", _SERVE.format(path=sys.path)],
                stdin=theirs.fileno(),
                # One thread each: the others have their own cores.
                env=os.environ | {"POLARS_MAX_THREADS": "1"},
                process_group=0,
            )
            self.processes.append(process)
        return process, ours
