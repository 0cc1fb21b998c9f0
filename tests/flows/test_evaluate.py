"""The flow against a real Prefect server on loopback, read back through its API."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

MAIN = "import sys; from flows.cli import main; sys.exit(main(sys.argv[1:]))"


def environment(folder: Path, **more: str) -> dict[str, str]:
    quiet = {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}
    return os.environ | quiet | {"PREFECT_HOME": str(folder)} | more


def ask(url: str, body: Any = None) -> Any:
    request = urllib.request.Request(
        url,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as reply:
        return json.load(reply)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The API address of a Prefect server of its own."""
    folder = tmp_path_factory.mktemp("prefect")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "prefect", "server", "start"]
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            env=environment(folder),
            stdout=log,
            stderr=log,
        )
        url = f"http://127.0.0.1:{port}/api"
        for _ in range(240):
            try:
                ask(f"{url}/health")
                break
            except OSError:
                assert process.poll() is None, (folder / "server.log").read_text()
                time.sleep(0.5)
        yield url
        process.terminate()
        process.wait()


def run(small: Path, folder: Path, *options: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", MAIN, "run", str(small), *options],
        env=environment(folder, **more),
        cwd=small.parent,
        capture_output=True,
        text=True,
        check=False,
    )


def settled(url: str, flow_run: str) -> list[dict[str, Any]]:
    """The task runs of a flow run, once the server has recorded how they all ended."""
    for _ in range(120):
        found = ask(f"{url}/task_runs/filter", {"flow_runs": {"id": {"any_": [flow_run]}}})
        if len(found) == 8 and all(task["state_type"] == "COMPLETED" for task in found):
            return list(found)
        time.sleep(0.5)
    raise AssertionError(found)


def test_every_step_is_a_task_run(server: str, small: Path, tmp_path: Path) -> None:
    done = run(small, tmp_path / "home", PREFECT_API_URL=server)
    assert done.returncode == 0, done.stderr
    assert "3 samples, 8 steps made, 0 reused" in done.stdout
    assert "leaked" not in done.stderr

    (flow_run,) = ask(f"{server}/flow_runs/filter", {})
    assert flow_run["state_type"] == "COMPLETED"
    assert flow_run["parameters"]["config"] == str(small)
    tasks = {task["name"]: task for task in settled(server, flow_run["id"])}
    assert set(tasks) == {
        "samples",
        "response_claims",
        "reference_claims",
        "response_in_reference",
        "context_matches",
        "precision",
        "deterministic_faithfulness",
        "summary",
    }
    reads = {
        entry["id"] for inputs in tasks["precision"]["task_inputs"].values() for entry in inputs
    }
    needed = ("samples", "response_claims", "response_in_reference")
    assert reads == {tasks[name]["id"] for name in needed}

    again = run(small, tmp_path / "home", PREFECT_API_URL=server)
    assert "3 samples, 0 steps made, 8 reused" in again.stdout

    ids = small.with_name("ids")
    ids.write_text("tower\n", "utf-8")
    options = ["--only", "response_claims", "context_matches", "--again", "context_matches"]
    some = ["--samples", str(ids), *options, "--fresh"]
    part = run(small, tmp_path / "home", *some, PREFECT_API_URL=server)
    assert "1 sample, 3 steps made, 0 reused" in part.stdout, part.stderr
    assert "response_claims: 1 rows made (1 samples taken over), 0 failed" in part.stderr


def test_a_server_that_is_not_there_is_one_clear_line(small: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    done = run(small, tmp_path / "home", PREFECT_API_URL=f"http://127.0.0.1:{port}/api")
    assert done.returncode == 2
    assert done.stderr == (
        "claimflow: PREFECT_API_URL: no Prefect server answers there; start one with "
        "`prefect server start`, or unset it to run without Prefect\n"
    )
    assert not small.with_name("small.duckdb").exists()
