"""Workers of a Dask cluster. Imports Dask, so import this module only where it is used."""

import logging
import platform
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final
from urllib.parse import urlsplit

from distributed import Client, Future
from distributed.scheduler import KilledWorker

from claimflow.flows.errors import StoppedError, WorkersError
from claimflow.flows.runner.workers import Made

_PACKAGES: Final = ("claimflow", "polars", "onnxruntime")
"""Packages whose versions must be the same everywhere, since other versions may make other rows."""

_PORT: Final = 8786
"""The port of a scheduler if its address has none."""

_CONNECT: Final = 10
"""Seconds to wait for the scheduler, and for its first worker."""

_POLL_SECONDS: Final = 0.02
"""Seconds between two checks whether a chunk is done and the run was stopped."""

_COUNTED: Final = 5.0
"""Seconds for which the count of workers is reused."""

_ALONE: Final = 60.0
"""Seconds without any worker after which a run gives up."""


class DaskWorkers:
    """The workers of the scheduler at `address`; they may join and leave at any time.

    Raises `ValueError` with a message for the user if there is no scheduler or no worker, or if
    a worker has another version of Python or of a package that makes rows.
    """

    def __init__(self, address: str, stop: threading.Event, shards: int = 1) -> None:
        self.address = address
        self.shards = shards
        self._stop = stop
        self._lock = threading.Lock()
        self._client = _connect(address)
        try:
            self._client.wait_for_workers(1, timeout=_CONNECT)
            problem = version_difference(self._client)
        except TimeoutError:
            problem = f"the scheduler at {address} has no workers"
        if problem:
            self.close()
            raise ValueError(problem)
        self._count = self._threads()
        self._looked = self._seen = time.monotonic()

    def worth(self, chunks: int) -> bool:
        """Always: a cluster is there to be used, and this machine may be small."""
        return chunks > 0

    def each(
        self, work: Callable[..., Made], chunks: Iterable[tuple[Any, ...]], *, what: str
    ) -> Iterator[Made]:
        """As `Workers.each`; reads two chunks per worker thread."""
        waiting: deque[Future] = deque()
        try:
            for arguments in chunks:
                waiting.append(self._submit(work, arguments))
                if len(waiting) >= 2 * self._count:
                    yield self._result(waiting.popleft(), what)
            while waiting:
                yield self._result(waiting.popleft(), what)
        finally:
            if waiting:
                self._client.cancel(list(waiting), force=True)

    def close(self) -> None:
        """Disconnect from the cluster, which keeps running."""
        self._client.close(timeout=_CONNECT)

    def _submit(self, work: Callable[..., Made], arguments: tuple[Any, ...]) -> Future:
        return self._client.submit(call_same_version, versions(), work, arguments, pure=False)

    def _result(self, future: Future, what: str) -> Any:
        while not future.done():
            if self._stop.wait(_POLL_SECONDS):
                raise StoppedError
            self._count_workers()
        try:
            return future.result()
        except KilledWorker as error:
            deaths = f"{error.allowed_failures + 1} workers, one after the other"
            why = f"{deaths}, ended while they made {what}; is there enough memory?"
            raise WorkersError(why) from error
        except CancelledError as error:
            raise WorkersError(f"the Dask scheduler at {self.address} was lost") from error

    def _count_workers(self) -> None:
        with self._lock:
            now = time.monotonic()
            if now - self._looked < _COUNTED:
                return
            self._looked = now
            count = self._threads()
            if count:
                self._count, self._seen = count, now
            elif now - self._seen > _ALONE:
                raise WorkersError(f"{self.address} has had no worker for a minute")

    def _threads(self) -> int:
        return sum(self._client.nthreads().values())


@cache
def versions() -> tuple[tuple[str, str], ...]:
    """The versions of Python (major and minor) and of the packages that make rows."""
    python = ".".join(platform.python_version_tuple()[:2])
    return (("Python", python), *((name, version(name)) for name in _PACKAGES))


def version_difference(client: Client) -> str:
    """A message on the first worker whose versions differ from those here, or "".

    Uses functions of the standard library only, since a worker may not have claimflow at all.
    """
    found: dict[str, dict[str, Any]] = {"Python": client.run(platform.python_version)}
    for name in _PACKAGES:
        found[name] = client.run(version, name, on_error="return")
    return next(_differences(found), "")


def call_same_version(
    expected: tuple[tuple[str, str], ...], work: Callable[..., Made], arguments: tuple[Any, ...]
) -> Made:
    """Run on a worker: call `work`, if the versions here are the `expected` ones.

    Raises `WorkersError` otherwise: a worker may join a cluster during a run.
    """
    for (name, there), (_, here) in zip(expected, versions(), strict=True):
        if here != there:
            raise WorkersError(f"a worker that joined has {name} {here}, and here is {there}")
    return work(*arguments)


def _differences(found: dict[str, dict[str, Any]]) -> Iterator[str]:
    for name, here in versions():
        for worker, there in sorted(found[name].items()):
            if isinstance(there, PackageNotFoundError):
                yield f"the worker {worker} has no {name}, and here is {here}"
            elif not f"{there}.".startswith(f"{here}."):
                yield f"the worker {worker} has {name} {there}, and here is {here}"


def _connect(address: str) -> Client:
    """A client of the scheduler; its own log messages on lost connections are suppressed."""
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    try:
        parts = urlsplit(address if "://" in address else f"tcp://{address}")
        # A client without a scheduler would delay the exit of this process by 20 seconds.
        socket.create_connection((parts.hostname, parts.port or _PORT), _CONNECT).close()
        return Client(address, timeout=_CONNECT, set_as_default=False, name="claimflow")
    except (OSError, ValueError) as error:
        raise ValueError(f"no Dask scheduler answers at {address}") from error
