"""A real Prefect server, one for all the processes that the tests run in."""

import fcntl
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

MAIN = "import sys; from claimflow.flows.cli.main import main; sys.exit(main(sys.argv[1:]))"
"""`claimflow`, for `python -c`."""

LEASES = "prefect.server.concurrency.lease_storage.filesystem"

DETACHED = """
out="$1"; owner="$2"; shift 2
"$@" >"$out" 2>&1 </dev/null &
server=$!
echo $server
exec >/dev/null 2>&1 </dev/null
(while kill -0 "$owner" && kill -0 $server; do sleep 2; done; kill $server) &
"""
"""Starts a command that outlives this process, but not the tests as a whole."""


def environment(folder: Path, **more: str) -> dict[str, str]:
    """What a process has that uses Prefect from `folder`."""
    quiet = {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}
    return os.environ | quiet | {"PREFECT_HOME": str(folder)} | more


def ask(url: str, body: Any = None, method: str | None = None) -> Any:
    """What the server answers to a GET, or to a POST of `body`; None if the answer is empty.

    While its database is locked it says 503, and Prefect's own client asks again as well. Every
    test process uses this one server, so on a busy machine an answer may take many seconds.
    """
    request = urllib.request.Request(
        url,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
        method=method,
    )
    for pause in (0.5, 1, 2, 4, None):
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                return json.loads(reply.read() or b"null")
        except urllib.error.HTTPError as error:
            if error.code != 503 or pause is None:
                raise
            error.close()
            time.sleep(pause)
    return None


FINAL = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}


class Api:
    """What a test asks the server."""

    def __init__(self, url: str) -> None:
        self.url = url

    def deployment(self, name: str) -> Any:
        return ask(f"{self.url}/deployments/name/evaluate/{name}")

    def patch(self, place: str, fields: Any) -> None:
        """Change fields of what is at a place below the address."""
        ask(f"{self.url}/{place}", fields, "PATCH")

    def trigger(self, name: str) -> str:
        """Start a run by hand; returns its id."""
        known = self.deployment(name)["id"]
        return str(ask(f"{self.url}/deployments/{known}/create_flow_run", {})["id"])

    def run(self, flow_run: str) -> Any:
        return ask(f"{self.url}/flow_runs/{flow_run}")

    def runs(self, name: str) -> list[Any]:
        known = {"deployments": {"name": {"any_": [name]}}, "sort": "EXPECTED_START_TIME_ASC"}
        found: list[Any] = []
        # The server gives no more than so many at a time.
        while some := ask(f"{self.url}/flow_runs/filter", known | {"offset": len(found)}):
            found += some
        return found

    def ended(self, flow_run: str) -> str:
        """The state that a run ends in."""
        until(lambda: self.run(flow_run)["state_type"] in FINAL)
        return str(self.run(flow_run)["state_type"])

    def places(self, name: str) -> int:
        """How many runs of a deployment count as going on."""
        limit = f"deployment:{self.deployment(name)['id']}"
        return int(ask(f"{self.url}/v2/concurrency_limits/{limit}")["active_slots"])

    def propose(self, flow_run: str, state: str) -> str:
        """Ask for a state as a worker does; returns the name of that which the run has then."""
        message = ask(f"{self.url}/flow_runs/{flow_run}/set_state", {"state": {"type": state}})
        return str(message["state"]["name"] if message["state"] else message["status"])


@contextmanager
def serving(folder: Path, world: Mapping[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """`claimflow serve s.yaml` in a folder, its output in log.txt; killed at the end."""
    written = folder / "log.txt"
    with written.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", MAIN, "serve", "s.yaml"],
            env=dict(world),
            cwd=folder,
            stdout=log,
            stderr=log,
        )
    try:
        until(lambda: "serving until Ctrl-C" in written.read_text("utf-8"))
        yield process
    finally:
        process.kill()
        process.wait()


def until(true: Callable[[], Any], seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@contextmanager
def shared_server(folder: Path) -> Iterator[str]:
    """The API address of the server in `folder`: started by the first, ended by the last."""
    folder.mkdir(exist_ok=True)
    with _locked(folder) as known:
        if not known.get("users"):
            known.update(_start(folder))
        known["users"] = known.get("users", 0) + 1
        url = known["url"]
    try:
        yield url
    finally:
        with _locked(folder) as known:
            known["users"] -= 1
            if not known["users"]:
                os.kill(known["process"], signal.SIGTERM)


def _start(folder: Path) -> dict[str, Any]:
    port = _free_port()
    log = folder / "server.log"
    owner = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1"]
    # A child of a shell that is gone outlives the process of ours that was first.
    started = subprocess.run(
        ["sh", "-c", DETACHED, "sh", str(log), str(owner), *command, "--port", str(port)],
        env=environment(
            folder,
            PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS="1",
            PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE=LEASES,
            PREFECT_SERVER_SERVICES_REPOSSESSOR_LOOP_SECONDS="1",
            # It would write a hundred runs of every deployment.
            PREFECT_SERVER_SERVICES_SCHEDULER_MAX_RUNS="10",
        ),
        stdout=subprocess.PIPE,
        check=True,
        start_new_session=True,
    )
    url = f"http://127.0.0.1:{port}/api"
    for _ in range(240):
        try:
            ask(f"{url}/health")
            return {"url": url, "process": int(started.stdout)}
        except OSError:
            time.sleep(0.5)
    raise AssertionError(log.read_text("utf-8"))


def _free_port() -> int:
    """One that is still free when the server, seconds later, takes it.

    It is below the range from which the system assigns free ports.
    """
    for port in random.sample(range(20_000, 30_000), 100):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")


@contextmanager
def _locked(folder: Path) -> Iterator[dict[str, Any]]:
    """What is known of the server, to be changed by one process at a time."""
    with (folder / "server.json").open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        known = json.loads(file.read() or "{}")
        yield known
        file.truncate(0)
        file.write(json.dumps(known))
