"""Finds the configured Prefect server, or starts a local one."""

import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from claimflow.flows.errors import Fault, InputError


def is_configured() -> bool:
    """Whether the environment or a Prefect profile names an API.

    Prefect, which takes seconds to import, is imported only if there is a profile.
    """
    if os.environ.get("PREFECT_API_URL"):
        return True
    home = Path(os.environ.get("PREFECT_HOME") or Path.home() / ".prefect")
    profiles = Path(os.environ.get("PREFECT_PROFILES_PATH") or home / "profiles.toml")
    if not profiles.is_file():
        return False
    from prefect.settings import PREFECT_API_URL

    return bool(PREFECT_API_URL.value())


@contextmanager
def explain_unreachable(hint: str) -> Iterator[None]:
    """Turn the error of an unreachable Prefect server into an `InputError` with a `hint`."""
    try:
        yield
    except RuntimeError as error:
        if "reach API" not in str(error):
            raise
        what = "no Prefect server answers there"
        raise InputError([Fault("PREFECT_API_URL", what, hint)]) from error


HOME: Final = Path(".claimflow") / "prefect"
_PORT: Final = 4200
_START: Final = 180.0
"""Seconds to wait for the server to start."""


@contextmanager
def local_server(home: Path = HOME) -> Iterator[str]:
    """Start a Prefect server whose data is in `home`; gives its root address.

    The server is stopped at the end of the block; one that already runs for this folder is used
    and left running. This process and its children use it from then on. Raises `InputError` if it
    does not start.
    """
    home = home.resolve()
    home.mkdir(parents=True, exist_ok=True)
    os.environ["PREFECT_HOME"] = str(home)
    # A restart forgets leases that are in memory only, and their slots would stay taken.
    os.environ.setdefault(
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE",
        "prefect.server.concurrency.lease_storage.filesystem",
    )
    address = home / "address"
    port = _running(address)
    if port is not None:
        yield _use(port)
        return
    port = _free_port()
    with (home / "server.log").open("a") as log:
        command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1"]
        server = subprocess.Popen(
            [*command, "--port", str(port)],
            env=os.environ | {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"},
            stdout=log,
            stderr=log,
            # Ctrl-C must not reach the server: ending runs still report to it.
            start_new_session=True,
        )
    try:
        _await(server, port, home / "server.log")
        address.write_text(str(port), "utf-8")
        yield _use(port)
    finally:
        address.unlink(missing_ok=True)
        server.terminate()
        server.wait()


def _use(port: int) -> str:
    url = f"http://127.0.0.1:{port}"
    os.environ["PREFECT_API_URL"] = f"{url}/api"
    return url


def _running(address: Path) -> int | None:
    with suppress(OSError, ValueError):
        port = int(address.read_text("utf-8"))
        return port if _answers(port) else None
    return None


def _answers(port: int) -> bool:
    with suppress(OSError, http.client.HTTPException):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/api/health")
            return connection.getresponse().status == http.HTTPStatus.OK
        finally:
            connection.close()
    return False


def _free_port() -> int:
    for port in (_PORT, 0):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)) as free:
            return int(free.getsockname()[1])
    raise InputError([Fault("Prefect server", "there is no free port", "set PREFECT_API_URL")])


def _await(server: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    deadline = time.monotonic() + _START
    while not _answers(port):
        if server.poll() is not None or time.monotonic() > deadline:
            hint = "set PREFECT_API_URL to a server that runs"
            raise InputError([Fault("Prefect server", f"does not start: see {log}", hint)])
        time.sleep(0.3)
