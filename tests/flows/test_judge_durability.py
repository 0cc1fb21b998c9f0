"""Runs that are killed, interrupted, locked out or out of room: nothing is paid for twice."""

import random
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from claimflow.flows.store.arrow import read_table
from tests.endpoint import faults
from tests.endpoint.record import Recorded
from tests.endpoint.server import Endpoint, serve
from tests.flows.forks import Forks, Process
from tests.flows.judged import CLAIMS, DECOMPOSE, EMBEDDED, SCORE, VERIFY, Judged, sample
from tests.flows.locked_store import LockedStore

SECOND: Final = 1.0
"""How old a reply may be, at most, to be lost by a kill."""

DEEP: Final = {
    "response_claims": DECOMPOSE,
    "reference_claims": DECOMPOSE | {"of": "reference"},
    "response_in_reference": VERIFY,
    "reference_in_response": VERIFY | {"claims": "reference_claims", "against": "response"},
    "factual_correctness": {"use": "factual_correctness"},
    "summary": {"use": "summarize_scores"},
}
"""Four calls for each sample."""

FLAT: Final = {"response_claims": EMBEDDED, "response_in_reference": VERIFY, "precision": SCORE}
"""One call for each sample."""


def start(forks: Forks, judged: Judged, *, bytes_per_file: int = 0, wait: float = 60) -> Process:
    folder, name = judged.path.parent, judged.path.name
    return forks.run(folder, "run", name, bytes_per_file=bytes_per_file, wait=wait)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serve() as endpoint:
        yield endpoint


def wait_for(happened: Callable[[], Any], *, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.002)


def lost(requests: list[Recorded], kills: list[tuple[float, float]]) -> list[float]:
    """How many seconds before a kill those replies had come that were asked for again.

    A kill is the moments at which it was sent and at which the process was gone.
    """
    ages = []
    started = 0.0
    for sent, gone in kills:
        after = {one.key for one in requests if one.arrived > gone}
        ages += [
            sent - one.replied
            for one in requests
            if one.status == 200 and one.replied and started < one.arrived < one.replied < sent
            if one.key in after
        ]
        started = gone
    return sorted(ages)


def tables(judged: Judged) -> dict[str, list[tuple[Any, ...]]]:
    """What the newest run that is done found out, whichever calls told it."""
    with judged.store.reading() as connection:
        return {
            name: read_table(connection, f"SELECT * FROM latest.{name} ORDER BY ALL")
            .drop("run_id", "call_id", strict=False)
            .rows()
            for name in ("samples", "claims", "verdicts", "scores", "summaries")
        }


def kill(going: Process) -> tuple[float, float]:
    """End a run; returns when it was told and when it was gone."""
    going.send(signal.SIGKILL)
    sent = time.monotonic()
    assert going.code() == -signal.SIGKILL
    return sent, time.monotonic()


def unsaved(judged: Judged) -> list[str]:
    return sorted(path.name for path in judged.path.parent.glob("*.journal"))


def written(folder: Path, endpoint: Endpoint, samples: int, **more: Any) -> Judged:
    folder.mkdir()
    judged = Judged(folder, endpoint)
    judged.write([case(str(number)) for number in range(samples)], **more)
    return judged


def case(name: str) -> dict[str, Any]:
    """A sample of which nothing is asked that is asked of another one."""
    return sample(name, response=f"{' '.join(CLAIMS)} Case {name} is closed.")


def wrong_at_first(body: Any) -> bool:
    return len(body["messages"]) == 2


def _has_passed(endpoint: Endpoint, hits: int, distinct: float) -> bool:
    return endpoint.hits > hits and len(endpoint.hits_by_key) >= distinct


def check_kills(
    folder: Path, forks: Forks, endpoint: Endpoint, *, kills: int, samples: int
) -> None:
    """Kill a run at random points: the next one asks nothing again, and finds the same."""
    wrong = faults.share(0.3, faults.malformed(), faults.prose(), faults.missing(), faults.fenced())
    endpoint.behaviour.fault = faults.where(wrong_at_first, wrong)
    quiet = written(folder / "quiet", endpoint, samples, steps=DEEP, max_concurrency=64)
    assert start(forks, quiet).code() == 0
    calls = endpoint.hits
    assert calls >= 4 * samples
    endpoint.clear()

    endpoint.behaviour.latency, endpoint.behaviour.spread = 0.3, 0.9
    judged = written(folder / "killed", endpoint, samples, steps=DEEP, max_concurrency=32)
    drawn = random.Random(7)
    killed: list[tuple[float, float]] = []
    for point in sorted(drawn.uniform(0, 0.95) for _ in range(kills)):
        before = endpoint.hits
        going = start(forks, judged)
        wait_for(partial(_has_passed, endpoint, before, point * calls))
        time.sleep(drawn.uniform(0, 0.5))
        killed.append(kill(going))
    last = start(forks, judged)
    assert last.code() == 0, last.err()
    assert max(lost(endpoint.requests, killed), default=0) < SECOND
    assert tables(judged) == tables(quiet)
    assert unsaved(judged) == []
    assert judged.ask("SELECT count(*) - count(DISTINCT call_id) FROM audit.calls") == [(0,)]
    assert judged.ask("SELECT count(*) FROM audit.calls WHERE open") == [(0,)]
    assert judged.ask("SELECT count(*) FROM audit.runs WHERE status = 'killed'") == [(kills,)]


def test_a_run_killed_at_random_points_asks_nothing_twice(
    tmp_path: Path, forks: Forks, endpoint: Endpoint
) -> None:
    check_kills(tmp_path, forks, endpoint, kills=6, samples=24)


def test_a_store_locked_for_a_while_holds_a_run_up_and_no_more(
    tmp_path: Path, forks: Forks, endpoint: Endpoint
) -> None:
    endpoint.behaviour.latency = 0.3
    judged = written(tmp_path / "held", endpoint, 200, steps=FLAT, max_concurrency=8)
    going = start(forks, judged)
    wait_for(lambda: endpoint.hits > 20)
    with LockedStore(judged.store.path) as held:
        wait_for(lambda: time.monotonic() > held.since + 6.5)
        assert unsaved(judged) != []
    assert going.code() == 0, going.err()
    late = [one for one in endpoint.requests if held.since + 5.5 < one.arrived < held.until]
    assert late == []
    assert unsaved(judged) == []
    assert endpoint.hits == 200
    assert judged.ask("SELECT count(*), count(DISTINCT call_id) FROM audit.calls") == [(200, 200)]


def test_a_store_locked_for_too_long_ends_a_run_and_what_came_is_kept(
    tmp_path: Path, forks: Forks, endpoint: Endpoint
) -> None:
    endpoint.behaviour.latency = 0.2
    judged = written(tmp_path / "shut", endpoint, 250, steps=FLAT, max_concurrency=8)
    going = start(forks, judged, wait=2)
    wait_for(lambda: endpoint.hits > 20)
    with LockedStore(judged.store.path):
        assert going.code() == 3
    path = judged.store.path
    assert going.err().splitlines()[-1] == (
        f"claimflow: {path}: another process has held the store for 2 s; close it, or try "
        "again later"
    )
    assert "Traceback" not in going.err()
    assert unsaved(judged) != []
    before = endpoint.hits
    assert before < 250
    assert all(one.status == 200 for one in endpoint.requests)
    assert start(forks, judged).code() == 0
    assert endpoint.hits == 250
    assert unsaved(judged) == []
    assert judged.ask("SELECT status FROM audit.runs ORDER BY started_at") == [
        ("killed",),
        ("done",),
    ]


def test_a_run_killed_while_the_store_is_locked_loses_nothing(
    tmp_path: Path, forks: Forks, endpoint: Endpoint
) -> None:
    endpoint.behaviour.latency = 0.1
    judged = written(tmp_path / "both", endpoint, 100, steps=FLAT, max_concurrency=8)
    going = start(forks, judged)
    wait_for(lambda: endpoint.hits > 20)
    with LockedStore(judged.store.path) as held:
        wait_for(lambda: time.monotonic() > held.since + 2)
        killed = kill(going)
    again = start(forks, judged)
    assert again.code() == 0, again.err()
    assert max(lost(endpoint.requests, [killed]), default=0) < SECOND
    assert unsaved(judged) == []
    calls = "SELECT count(*), count(DISTINCT call_id) FROM audit.calls"
    assert judged.ask(calls) == [(len(endpoint.hits_by_key),) * 2]


def test_a_full_disk_ends_a_run_with_one_line(
    tmp_path: Path, forks: Forks, endpoint: Endpoint
) -> None:
    judged = written(tmp_path / "full", endpoint, 600, steps=FLAT, max_concurrency=8)
    endpoint.behaviour.latency = 0.05
    going = start(forks, judged, bytes_per_file=1_000_000)
    assert going.code() == 3
    error_lines = going.err().splitlines()
    errors = [line for line in error_lines if line.startswith("claimflow:")]
    assert errors == [
        f"claimflow: {judged.store.path}: cannot be written (File too large); make room and run "
        "again; what is on file is kept"
    ]
    assert "Traceback" not in "\n".join(error_lines)
    ((kept,),) = judged.ask("SELECT count(*) FROM audit.calls")
    assert kept > 0
    hits = endpoint.hits
    assert hits < 600
    assert start(forks, judged).code() == 0
    assert endpoint.hits <= hits + 600 - kept
    assert judged.ask("SELECT count(*) FROM latest.verdicts") == [(2400,)]


def test_ctrl_c_lets_calls_in_flight_come_back_and_leaves_those_that_hang(
    tmp_path: Path, forks: Forks, endpoint: Endpoint
) -> None:
    endpoint.behaviour.latency = 1.5
    hanging = faults.share(0.4, faults.hang())
    endpoint.behaviour.fault = hanging
    judged = written(tmp_path / "stopped", endpoint, 40, steps=FLAT, max_concurrency=8)
    going = start(forks, judged)
    wait_for(lambda: endpoint.hits == 8)
    going.send(signal.SIGINT)
    started = time.monotonic()
    assert going.code() == 130
    seconds = time.monotonic() - started
    assert 1.0 < seconds < 9.0
    assert "claimflow: stopped; finished work is kept; run again to continue" in going.err()
    back = {one.key for one in endpoint.requests if one.status == 200}
    assert 0 < len(back) < endpoint.hits == 8
    assert judged.ask("SELECT status FROM audit.runs") == [("stopped",)]
    assert judged.ask("SELECT count(*) FROM audit.calls") == [(len(back),)]

    endpoint.clear()
    endpoint.behaviour.latency, endpoint.behaviour.fault = 0.0, None
    assert start(forks, judged).code() == 0
    assert not back & set(endpoint.hits_by_key)
    assert endpoint.hits == 40 - len(back)


def test_an_interrupted_noise_measurement_asks_nothing_again(
    tmp_path: Path, forks: Forks, endpoint: Endpoint
) -> None:
    endpoint.behaviour.latency = 0.3
    judged = written(tmp_path / "noise", endpoint, 4, steps=FLAT, max_concurrency=1)
    command = ("noise", "p.yaml", "--repeats", "3")
    going = forks.run(judged.path.parent, *command)
    wait_for(lambda: endpoint.hits >= 3)
    going.send(signal.SIGINT)
    assert going.code() == 130
    last = going.err().splitlines()[-1]
    assert last.endswith("stopped; finished work is kept; run again to continue")
    assert endpoint.hits < 12
    endpoint.behaviour.latency = 0.0
    assert forks.run(judged.path.parent, *command).code() == 0
    assert endpoint.hits == 12
    assert set(endpoint.hits_by_key.values()) == {1}
    statuses = judged.ask("SELECT status FROM audit.runs ORDER BY started_at")
    assert statuses == [("stopped",), ("measured",)]
