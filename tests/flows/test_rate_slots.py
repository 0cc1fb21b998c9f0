"""Two processes share a rate limit on a real Prefect server."""

import json
from pathlib import Path

from tests.endpoint.server import Endpoint, serve
from tests.flows.forks import Forks
from tests.flows.judged import Judged
from tests.flows.limits import Limit

PER_SECOND = 20

ALLOWED = PER_SECOND + 4
"""Requests in any second: what is sent evenly can arrive a little closer together."""


def write(folder: Path, endpoint: Endpoint, count: int, limit: str) -> Path:
    """The folder of a pipeline, whose samples are called after it."""
    folder.mkdir()
    names = [f"{folder.name}{number:03}" for number in range(count)]
    Judged(folder, endpoint).write(names, shared_limit=limit)
    return folder


def busiest(times: list[float]) -> int:
    """How many there are within a second, at most."""
    return max(sum(start <= time < start + 1 for time in times) for start in times)


def test_two_runs_share_a_rate(server: str, tracked_forks: Forks, tmp_path: Path) -> None:
    limit = Limit(server, "shared-by-two", 60 * PER_SECOND)
    with serve(latency=0.05) as endpoint:
        folders = [write(tmp_path / name, endpoint, 50, limit.name) for name in ("one", "two")]
        runs = [tracked_forks.run(folder, "run", "p.yaml") for folder in folders]
        codes = [going.code() for going in runs]
        assert codes == [0, 0], [going.err() for going in runs]
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


def test_a_missing_limit_is_one_line(tracked_forks: Forks, tmp_path: Path) -> None:
    with serve() as endpoint:
        folder = write(tmp_path / "none", endpoint, 1, "nowhere")
        going = tracked_forks.run(folder, "run", "p.yaml")
        assert going.code() == 2
        # Behind it Prefect may say that it still has events to send.
        message = [line for line in going.err().splitlines() if line.startswith("claimflow: ")]
        assert endpoint.hits == 0
    assert message == [
        "claimflow: p.yaml:9 judge.shared_limit: the Prefect server has no limit 'nowhere'; "
        "write it under limits in a schedules file and run `claimflow deploy`"
    ]
