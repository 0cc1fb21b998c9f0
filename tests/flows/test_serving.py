"""`claimflow serve` on a real Prefect server, and how it ends."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.endpoint.server import Endpoint, serve
from tests.flows.judged import Judged
from tests.flows.prefect_server import Api, environment, serving, until


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serve() as running:
        yield running


def world(folder: Path, url: str) -> dict[str, str]:
    return environment(folder / "home", PREFECT_API_URL=url, PREFECT_RUNNER_POLL_FREQUENCY="1")


def test_sigterm_cancels_the_run_and_ends_without_a_warning(
    server: str, endpoint: Endpoint, tmp_path: Path
) -> None:
    api = Api(server)
    judged = Judged(tmp_path, endpoint)
    asking: dict[str, Any] = {"max_concurrency": 1}
    judged.write([f"s{place:02}" for place in range(30)], **asking)
    name = "ends-by-sigterm"
    night = f"deployments:\n  {name}: {{pipeline: p.yaml, cron: '0 2 1 * *'}}\n"
    (tmp_path / "s.yaml").write_text(night, "utf-8")
    endpoint.behaviour.latency = 0.3
    with serving(tmp_path, world(tmp_path, server)) as process:
        until(lambda: api.runs(name))
        run = api.trigger(name)
        until(lambda: endpoint.hits >= 5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    log = (tmp_path / "log.txt").read_text("utf-8")
    assert "Warning" not in log
    assert "Traceback" not in log
    assert "SIGTERM received: running runs are cancelled" in log
    assert api.ended(run) == "CANCELLED"
    assert judged.ask("SELECT status FROM audit.runs") == [("stopped",)]
    assert not api.deployment(name)["paused"]
    assert endpoint.hits < 30
