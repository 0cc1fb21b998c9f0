"""Runs that share a rate, in processes of their own, against a real Prefect server."""

import json
import subprocess
import sys
from pathlib import Path

from tests.endpoint import Endpoint, serve
from tests.flows.judged import Judged
from tests.flows.limits import Limit
from tests.flows.prefect_server import MAIN, environment

PER_SECOND = 20

ALLOWED = PER_SECOND + 4
"""Of any second: what is sent evenly may arrive a little closer together."""


def run(folder: Path, server: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, "run", "p.yaml"],
        env=environment(folder / "home", PREFECT_API_URL=server),
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def write(folder: Path, endpoint: Endpoint, count: int, limit: str) -> Path:
    """The folder of a pipeline, whose samples are called after it."""
    folder.mkdir()
    names = [f"{folder.name}{number:03}" for number in range(count)]
    Judged(folder, endpoint).write(names, shared_limit=limit)
    return folder


def busiest(times: list[float]) -> int:
    """How many there are within a second, at most."""
    return max(sum(start <= time < start + 1 for time in times) for start in times)


def test_two_runs_share_a_rate(server: str, tmp_path: Path) -> None:
    limit = Limit(server, "shared-by-two", 60 * PER_SECOND)
    with serve(latency=0.05) as endpoint:
        folders = [write(tmp_path / name, endpoint, 50, limit.name) for name in ("one", "two")]
        runs = [run(folder, server) for folder in folders]
        told = [going.communicate()[1] for going in runs]
        assert [going.returncode for going in runs] == [0, 0], told
        asked = [
            [one.arrived for one in endpoint.requests if f"Case {name}" in json.dumps(one.body)]
            for name in ("one", "two")
        ]
    assert [len(times) for times in asked] == [50, 50]
    assert busiest([*asked[0], *asked[1]]) <= ALLOWED
    first, second = sorted(asked)
    both = [time for time in first if second[0] <= time <= second[-1]]
    if len(both) > 15:
        # While both ask each has half of it, and alone one has all.
        assert busiest(both) <= PER_SECOND / 2 + 3
    assert limit.places() == 0


def test_a_limit_that_is_not_there_is_one_clear_line(server: str, tmp_path: Path) -> None:
    with serve() as endpoint:
        going = run(write(tmp_path / "none", endpoint, 1, "nowhere"), server)
        told = going.communicate()[1].splitlines()[-1]
        assert endpoint.hits == 0
    assert going.returncode == 2
    assert told == (
        "claimflow: p.yaml:9 judge.shared_limit: the Prefect server has no limit 'nowhere'; "
        "write it under limits in a schedules file and run `claimflow deploy`"
    )
