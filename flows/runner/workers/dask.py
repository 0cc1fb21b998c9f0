"""Workers of a Dask cluster."""

import platform
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final

from claimflow.flows.errors import WorkersError
from claimflow.flows.runner.workers.protocol import Made

if TYPE_CHECKING:
    from distributed import Client
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import CancelledError
from urllib.parse import urlsplit

from distributed import Client, Future
from distributed.scheduler import KilledWorker

from claimflow.flows.errors import StoppedError

# What must be the same here and on every worker of a cluster, or rows might differ.


_PACKAGES: Final = ("claimflow", "polars", "onnxruntime")


@cache
def versions() -> tuple[tuple[str, str], ...]:
    """Python (its first two numbers) and the packages that make rows, with their versions."""
    python = ".".join(platform.python_version_tuple()[:2])
    return (("Python", python), *((name, version(name)) for name in _PACKAGES))


def unlike(client: "Client") -> str:
    """How a worker of a cluster differs from this process, in words; empty where none does.

    Asked by functions of Python's own: a worker may not have claimflow at all.
    """
    found: dict[str, dict[str, Any]] = {"Python": client.run(platform.python_version)}
    for name in _PACKAGES:
        found[name] = client.run(version, name, on_error="return")
    return next(_differences(found), "")


def call_same(
    expected: tuple[tuple[str, str], ...], work: Callable[..., Made], arguments: tuple[Any, ...]
) -> Made:
    """What `work` returns, on a worker that is like the process that sent it.

    A worker may join a cluster in mid-run; raises `WorkersError` where it is another.
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


# The workers of a Dask cluster. Imports Dask, so whoever may not need it imports it late.


_PORT: Final = 8786
"""The port of a scheduler whose address names none."""

_CONNECT: Final = 10
"""Seconds until a scheduler that does not answer, or that has no workers, is given up."""

_LOOK: Final = 0.02
"""Seconds between two looks at whether a chunk is done and the run was asked to stop."""

_COUNTED: Final = 5.0
"""Seconds for which the number of workers is taken to be what it was."""

_ALONE: Final = 60.0
"""Seconds without a single worker after which a run gives up."""


class DaskWorkers:
    """The workers of the scheduler at `address`, as many as there are at any moment.

    Raises `ValueError`, in words for the user, where there is no scheduler or no worker, and
    where a worker has another version of what must be the same everywhere.
    """

    def __init__(self, address: str, stop: threading.Event, shards: int = 1) -> None:
        self.address = address
        self.shards = shards
        self._stop = stop
        self._turn = threading.Lock()
        self._client = _connected(address)
        try:
            self._client.wait_for_workers(1, timeout=_CONNECT)
            strange = unlike(self._client)
        except TimeoutError:
            strange = f"the scheduler at {address} has no workers"
        if strange:
            self.close()
            raise ValueError(strange)
        self._count = self._threads()
        self._looked = self._seen = time.monotonic()

    def worth(self, chunks: int) -> bool:
        """As `Workers.worth`: always, for this machine may be a small one."""
        return chunks > 0

    def each(
        self, work: Callable[..., Made], chunks: Iterable[tuple[Any, ...]], *, what: str
    ) -> Iterator[Made]:
        """As `Workers.each`; two chunks for each thread of a worker are taken."""
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
        """Leave the cluster, which goes on."""
        self._client.close(timeout=_CONNECT)

    def _submit(self, work: Callable[..., Made], arguments: tuple[Any, ...]) -> Future:
        return self._client.submit(call_same, versions(), work, arguments, pure=False)

    def _result(self, future: Future, what: str) -> Any:
        while not future.done():
            if self._stop.wait(_LOOK):
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
        with self._turn:
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


def _connected(address: str) -> Client:
    """A client of the scheduler, whose losses we put in words of our own."""
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    try:
        parts = urlsplit(address if "://" in address else f"tcp://{address}")
        # A client that finds nobody would keep this process for 20 seconds at its end.
        socket.create_connection((parts.hostname, parts.port or _PORT), _CONNECT).close()
        return Client(address, timeout=_CONNECT, set_as_default=False, name="claimflow")
    except (OSError, ValueError) as error:
        raise ValueError(f"no Dask scheduler answers at {address}") from error
