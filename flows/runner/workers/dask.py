"""Workers of a Dask cluster. Imports Dask, so import this module only where it is used."""

import hashlib
import logging
import os
import pickle
import platform
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import CancelledError
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from distributed import Client, Future, get_worker
from distributed.scheduler import KilledWorker

from claimflow.flows.errors import StoppedError, WorkersError
from claimflow.flows.process import less_garbage_collected
from claimflow.flows.runner.workers import Made
from claimflow.stages.base import Stage

_PACKAGES: Final = ("claimflow", "polars", "pydantic", "numpy", "onnxruntime", "tokenizers")
"""Packages whose versions must be the same everywhere, since other versions may make other rows."""

_OWN: Final = "claimflow"
"""The package whose sources must be the same everywhere, beside those that define stages."""

_PORT: Final = 8786
"""The port of a scheduler if its address has none."""

_CONNECT: Final = 10
"""Seconds to wait for the scheduler, and for its first worker."""

_POLL_SECONDS: Final = 0.2
"""Seconds between two checks whether the run was stopped."""

_COUNTED: Final = 5.0
"""Seconds for which the count of workers is reused."""

_ALONE: Final = 60.0
"""Seconds without any worker after which a run gives up."""


class DaskWorkers:
    """The workers of the scheduler at `address`; they may join and leave at any time.

    `stages` are those that the workers are to run. Raises `ValueError` with a message for the
    user if there is no scheduler or no worker, or if a worker has another version of Python or of
    a package that makes rows, or other sources of claimflow or of a package of `stages`.
    """

    def __init__(
        self, address: str, stop: threading.Event, shards: int = 1, stages: Iterable[Stage] = ()
    ) -> None:
        self.address = address
        self.shards = shards
        self._stop = stop
        packages = {_OWN, *(package for stage in stages for package in stage_packages(stage))}
        self._sources = {package: source_hash(package) for package in sorted(packages)}
        self._lock = threading.Lock()
        self._client = _connect(address)
        try:
            self._client.wait_for_workers(1, timeout=_CONNECT)
            problem = difference(self._client, self._sources)
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
    ) -> Generator[Made]:
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

    def shared(self, _tables: Iterable[Any]) -> None:
        """As `Workers.shared`."""

    def on_each(self, work: Callable[..., Any], *arguments: Any) -> Mapping[str, Any]:
        """As `Engine.on_each`, by the address of the worker."""
        found: Mapping[str, Any] = self._client.run(work, *arguments, on_error="return")
        return found

    def close(self) -> None:
        """Disconnect from the cluster, which keeps running."""
        self._client.close(timeout=_CONNECT)

    def _submit(self, work: Callable[..., Made], arguments: tuple[Any, ...]) -> Future:
        required = (versions(), self._sources)
        # As bytes the scheduler need not make tables of them, only to send them on.
        packed = pickle.dumps((work, arguments), pickle.HIGHEST_PROTOCOL)
        return self._client.submit(call_same_code, *required, packed, pure=False)

    def _result(self, future: Future, what: str) -> Any:
        done = threading.Event()
        future.add_done_callback(lambda _: done.set())
        while not done.wait(_POLL_SECONDS):
            if self._stop.is_set():
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


@cache
def source_hash(package: str) -> str:
    """A hash of the Python files of a package or module, by their names in it and their bytes.

    The same wherever and however the package is installed; "" where it is not.
    """
    spec = find_spec(package)
    if spec is None:
        return ""
    files = {Path(spec.origin).name: Path(spec.origin)} if spec.origin else {}
    for root in spec.submodule_search_locations or ():
        # A checkout has links to the folders of the package.
        for folder, _, names in os.walk(root, followlinks=True):
            paths = (Path(folder, name) for name in names if name.endswith(".py"))
            files |= {path.relative_to(root).as_posix(): path for path in paths}
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        content = path.read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:12]


def stage_packages(stage: Stage) -> set[str]:
    """The packages that define a stage and its bases, but for those compared by version."""
    found = {kind.__module__.partition(".")[0] for kind in type(stage).__mro__}
    # Classes of a script or notebook run in this process.
    return found - {"__main__", *_PACKAGES} - sys.stdlib_module_names


def difference(client: Client, sources: Mapping[str, str]) -> str:
    """A message on the first worker that differs from here, or "".

    Versions are compared first and by functions of the standard library, since a worker may not
    have claimflow at all. `sources` are the expected hashes by package.
    """
    found: dict[str, dict[str, Any]] = {"Python": client.run(platform.python_version)}
    for name in _PACKAGES:
        found[name] = client.run(version, name, on_error="return")
    for name, here in versions():
        for worker, there in sorted(found[name].items()):
            if isinstance(there, PackageNotFoundError):
                return f"the worker {worker} has no {name}, and here is {here}"
            if not f"{there}.".startswith(f"{here}."):
                return f"the worker {worker} has {name} {there}, and here is {here}"
    for package, here in sources.items():
        for worker, there in sorted(client.run(source_hash, package, on_error="return").items()):
            if there != here:
                return _other_sources(worker, package, there, here)
    return ""


def call_same_code(
    expected: tuple[tuple[str, str], ...],
    sources: Mapping[str, str],
    packed: bytes,
) -> Any:
    """Run on a worker: call a function, if the versions and sources here are the expected ones.

    `packed` is the function with its arguments, pickled. Raises `WorkersError` otherwise: a worker
    may join a cluster during a run.
    """
    for (name, there), (_, here) in zip(expected, versions(), strict=True):
        if here != there:
            worker = get_worker().address
            raise WorkersError(f"the worker {worker} has {name} {here}, and here is {there}")
    for package, there in sources.items():
        here = source_hash(package)
        if here != there:
            raise WorkersError(_other_sources(get_worker().address, package, here, there))
    work, arguments = pickle.loads(packed)  # noqa: S301, as every task of Dask
    with less_garbage_collected():
        return work(*arguments)


def _other_sources(worker: str, package: str, there: str | Exception, here: str) -> str:
    # An error where the worker's claimflow is so old that it lacks the function.
    found = there if there and isinstance(there, str) else "none"
    return f"the worker {worker} has other sources of {package} ({found}) than here ({here})"


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
