"""Worker processes, one a core, for stages whose work is Python's."""

import multiprocessing
import os
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from multiprocessing.connection import Connection
from typing import Any, Final

import polars as pl

from flows.engine.errors import StoppedError
from stages.base import Stage

COUNT: Final = min(
    len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 8
)
"""Workers of a run: one a core, and no more than 8, for each holds about 200 MB."""

_LOOK: Final = 0.2
"""Seconds between two looks at whether the run was asked to stop."""

_SERVE: Final = (
    "import sys; sys.path[:] = {path!r}; from flows.engine.workers import serve; serve()"
)

Tables = Mapping[str, Any]


class Workers:
    """Processes that make tables from tables; each is started when there is work for it.

    They are fresh interpreters: neither Polars nor DuckDB survives a fork. Ctrl-C does not
    reach them; `close` ends them, whatever they are at, and so does the end of this process.
    """

    def __init__(self, stop: threading.Event, count: int = COUNT) -> None:
        self.count = count
        self._stop = stop
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="worker")
        self._own = threading.local()
        self.processes: list[subprocess.Popen[bytes]] = []

    def make(self, stage: Stage, parts: Iterable[Tables]) -> Iterator[pl.DataFrame]:
        """What `stage`, which needs no tools, makes of each of `parts`, in their order.

        At most one part more than there are workers is taken before its table is wanted.
        Raises what the stage raises, and `StoppedError` when the run was asked to stop.
        """
        waiting: deque[Future[pl.DataFrame]] = deque()
        try:
            for tables in parts:
                waiting.append(self._pool.submit(self._ask, stage, tables))
                if len(waiting) > self.count:
                    yield self._result(waiting.popleft())
            while waiting:
                yield self._result(waiting.popleft())
        finally:
            for future in waiting:
                future.cancel()

    def close(self) -> None:
        """End the workers."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in self.processes:
            process.kill()
        self._pool.shutdown()
        for process in self.processes:
            process.wait()

    def _result(self, future: Future[pl.DataFrame]) -> pl.DataFrame:
        while wait([future], _LOOK).not_done:
            if self._stop.is_set():
                raise StoppedError
        return future.result()

    def _ask(self, stage: Stage, tables: Tables) -> pl.DataFrame:
        """One part made by the worker of this thread."""
        if not hasattr(self._own, "connection"):
            self._own.process, self._own.connection = self._start()
        try:
            self._own.connection.send((stage, tables))
            made = self._own.connection.recv()
        except (EOFError, OSError) as error:
            code = self._own.process.wait()
            what = f"a worker process ended (exit code {code}) while it made {stage.use}"
            raise RuntimeError(what) from error
        if isinstance(made, BaseException):
            raise made
        table: pl.DataFrame = made
        return table

    def _start(self) -> tuple[subprocess.Popen[bytes], Connection]:
        ours, theirs = multiprocessing.Pipe()
        with theirs:
            process = subprocess.Popen(  # noqa: S603, it is this very Python
                [sys.executable, "-c", _SERVE.format(path=sys.path)],
                stdin=theirs.fileno(),
                # One thread each: the others have their own cores.
                env=os.environ | {"POLARS_MAX_THREADS": "1"},
                process_group=0,
            )
        self.processes.append(process)
        return process, ours


def serve() -> None:
    """What a worker does: answer each part that comes on standard input with its table."""
    with Connection(sys.stdin.fileno()) as connection:
        while True:
            try:
                stage, tables = connection.recv()
            except EOFError:
                return
            connection.send(_made(stage, tables))


def _made(stage: Stage, tables: Tables) -> pl.DataFrame | Exception:
    try:
        return stage.make(tables, {})
    except Exception as error:
        error.add_note(f"in a worker process:\n{traceback.format_exc()}")
        return error
