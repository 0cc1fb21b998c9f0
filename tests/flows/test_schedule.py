"""Schedules on a real Prefect server: served, deployed, killed and resumed."""

import asyncio
import os
import platform
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.orchestration.local_server import HOME
from tests.endpoint.server import Endpoint, serve
from tests.flows.foreign_packages import add_foreign_packages
from tests.flows.forks import Forks
from tests.flows.judged import Judged
from tests.flows.limits import Limit, expire
from tests.flows.prefect_server import Api, ask, environment, serving, until

SECOND = 1.0
"""A kill may lose replies that are younger than this, in seconds."""


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serve() as running:
        yield running


@pytest.fixture
def leases(server: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server keeps its leases."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    return folder / "prefect-server/concurrency_leases"


@pytest.fixture
def api(server: str) -> Api:
    return Api(server)


@pytest.fixture
def paused_afterwards(api: Api) -> Iterator[None]:
    """Pause the deployment `often` afterwards: a run per second would keep the server busy."""
    yield
    known = api.deployment("often")["id"]
    ask(f"{api.url}/deployments/{known}/pause_deployment", {})


def command(forks: Forks, folder: Path, *arguments: str) -> str:
    """The output of a successful command."""
    done = forks.run(folder, *arguments)
    assert done.code() == 0, done.err()
    return done.out()


def write(folder: Path, *lines: str, limits: str = "{}") -> None:
    text = "\n".join(["deployments:", *(f"  {line}" for line in lines), f"limits: {limits}", ""])
    (folder / "s.yaml").write_text(text, "utf-8")


WRITTEN = ("out/*/scores.parquet", "pages/*.html")
"""What a nightly run publishes: a table and a page."""


@contextmanager
def served(api: Api, folder: Path, **more: str) -> Iterator[None]:
    """`claimflow serve s.yaml` in a folder, with this server."""
    # A server of this folder that still runs is used again.
    home = folder / HOME
    home.mkdir(parents=True)
    (home / "address").write_text(api.url.split(":")[-1].removesuffix("/api"), "utf-8")
    alone = environment(folder / "home", PREFECT_RUNNER_POLL_FREQUENCY="1", **more)
    alone.pop("PREFECT_API_URL", None)
    with serving(folder, alone) as process:
        yield
        process.terminate()
        assert process.wait(60) == 0
    assert "leaked" not in (folder / "log.txt").read_text("utf-8")


def samples(first: int, last: int) -> list[str]:
    return [f"s{number:02}" for number in range(first, last)]


def test_a_killed_run_is_resumed_by_the_next(
    api: Api, endpoint: Endpoint, leases: Path, tmp_path: Path
) -> None:
    judged = Judged(tmp_path, endpoint)
    pool = Limit(api.url, "e2e-pool")
    asking: dict[str, Any] = {"max_concurrency": 1, "shared_limit": pool.name}
    judged.write(samples(0, 3), **asking)
    night = "e2e: {pipeline: p.yaml, cron: '0 2 1 * *', publish: out, report: pages}"
    write(tmp_path, night, limits="{e2e-pool: {rpm: 60000}}")
    # Packages `flows` and `stages` that are not ours are found before all others.
    with served(api, tmp_path, PYTHONPATH=add_foreign_packages(tmp_path)):
        # Runs are planned for as far as a hundred days ahead, three at the least.
        until(lambda: len(api.runs("e2e")) >= 3)
        assert all(run["expected_start_time"][8:19] == "01T02:00:00" for run in api.runs("e2e"))

        assert api.ended(api.trigger("e2e")) == "COMPLETED"
        assert endpoint.hits == 3
        assert [len(list(tmp_path.glob(names))) for names in WRITTEN] == [1, 1]

        judged.write(samples(0, 30), **asking)
        endpoint.behaviour.latency = 0.3
        second = api.trigger("e2e")
        until(lambda: endpoint.hits >= 13)
        killed = time.monotonic()
        os.kill(api.run(second)["labels"]["claimflow.process"], signal.SIGKILL)
        endpoint.behaviour.latency = 0.0
        assert (api.ended(second), pool.places()) == ("CRASHED", 1)
        # The part of the rate that the dead run had is free when its lease ends.
        expire(leases, pool, second)
        until(lambda: pool.places() == 0)
        answered = {
            one.key
            for one in endpoint.requests[3:]
            if one.replied is not None and one.replied < killed - SECOND
        }
        assert len(answered) > 3

        assert api.ended(api.trigger("e2e")) == "COMPLETED"
        assert {endpoint.hits_by_key[key] for key in answered} == {1}
        assert len(endpoint.hits_by_key) == 30
        assert judged.ask("SELECT count(*) FROM latest.scores WHERE status = 'scored'") == [(30,)]
        statuses = judged.ask("SELECT status FROM audit.runs ORDER BY started_at")
        assert statuses == [("done",), ("killed",), ("done",)]
        assert [len(list(tmp_path.glob(names))) for names in WRITTEN] == [2, 2]
    deployment = api.deployment("e2e")
    assert not deployment["paused"]
    assert [one["active"] for one in deployment["schedules"]] == [True]
    (cron,) = (one["schedule"] for one in deployment["schedules"])
    assert (cron["cron"], cron["timezone"]) == ("0 2 1 * *", "UTC")


def test_a_night_in_batches_is_collected_by_a_later_run(
    api: Api, endpoint: Endpoint, tmp_path: Path
) -> None:
    """Also where all replies are asked anew, and although no process waits meanwhile."""
    judged = Judged(tmp_path, endpoint)
    judged.write("abc", batch=True)
    judged.run()
    write(
        tmp_path,
        "batches: {pipeline: p.yaml, cron: '0 2 1 * *', parameters: {fresh: true}, batch_wait: 1}",
    )
    endpoint.behaviour.batches.seconds = 3600
    with served(api, tmp_path):
        until(lambda: len(api.runs("batches")) >= 3)
        before = {run["id"] for run in api.runs("batches")}
        night = api.trigger("batches")
        assert api.ended(night) == "COMPLETED"
        state = api.run(night)["state"]
        assert state["name"] == "AwaitingBatches"
        (later,) = (
            run
            for run in api.runs("batches")
            if run["id"] not in before | {night} and not run["auto_scheduled"]
        )
        due = datetime.fromisoformat(later["expected_start_time"])
        assert 14 < (due - datetime.now(UTC)).total_seconds() / 60 < 15
        assert f"a run that collects them is scheduled for {due:%Y-%m-%d %H:%M} UTC" in str(state)
        # Nothing is red.
        tasks = ask(f"{api.url}/task_runs/filter", {"flow_runs": {"id": {"any_": [night]}}})
        assert {task["state_type"] for task in tasks} == {"COMPLETED"}
        endpoint.behaviour.batches.seconds = 0
        soon = {"type": "SCHEDULED", "state_details": {"scheduled_time": str(datetime.now(UTC))}}
        ask(f"{api.url}/flow_runs/{later['id']}/set_state", {"state": soon, "force": True})
        assert api.ended(later["id"]) == "COMPLETED"
        assert api.run(later["id"])["state"]["name"] == "Completed"
    assert judged.ask("SELECT status FROM audit.runs ORDER BY started_at") == [
        ("done",),
        ("pending",),
        ("done",),
    ]
    # Once before the night, once in it.
    assert set(Counter(map(str, endpoint.batches.submitted())).values()) == {2}


SETTLE = """
import sys
from datetime import timedelta
from uuid import UUID
from claimflow.flows.orchestration.recovery import skip_missed_runs
from claimflow.flows.orchestration.deployments import api
with api() as client:
    print(*skip_missed_runs(client, UUID(sys.argv[1]), sys.argv[2], late=timedelta(0)), sep="\\n")
"""


def test_deployments_orphaned_and_missed_runs(
    api: Api, paused_afterwards: None, tracked_forks: Forks, small: Path, tmp_path: Path
) -> None:
    write(
        tmp_path,
        "skipping: {pipeline: small.yaml, cron: '0 2 * * *', timezone: Europe/Berlin}",
        "waiting: {pipeline: small.yaml, cron: '0 2 * * *', overlap: wait}",
        "often: {pipeline: small.yaml, every: 1, missed: skip}",
        limits="{deployed: {rpm: 1200}}",
    )
    assert command(tracked_forks, tmp_path, "deploy", "s.yaml", "--pool", "nights") == (
        "evaluate/skipping: small.yaml, cron 0 2 * * * in Europe/Berlin; overlap skip, missed run\n"
        "evaluate/waiting: small.yaml, cron 0 2 * * * in UTC; overlap wait, missed run\n"
        "evaluate/often: small.yaml, every 0:00:01; overlap skip, missed skip\n"
        "limit deployed: 1,200 requests a minute, for all runs together\n"
        "messages about runs that failed or are late are sent nowhere: name a block under notify\n"
        "work pool nights (new): runs wait for a worker; start one on each machine\n"
        "  prefect worker start --pool nights\n"
    )
    assert ask(f"{api.url}/work_pools/nights")["type"] == "process"

    gone = subprocess.Popen(["true"])
    gone.wait()
    orphans = {name: api.trigger(name) for name in ("skipping", "waiting")}
    for orphan in orphans.values():
        assert api.propose(orphan, "PENDING") == "Pending"
        assert api.propose(orphan, "RUNNING") == "Running"
        label(api, gone.pid, orphan)
    assert api.propose(api.trigger("skipping"), "PENDING") == "Cancelled"
    assert api.propose(api.trigger("waiting"), "PENDING") == "AwaitingConcurrencySlot"

    def due() -> list[Any]:
        now = datetime.now(UTC)
        planned = api.runs("often")
        return [run for run in planned if datetime.fromisoformat(run["expected_start_time"]) < now]

    until(lambda: len(due()) >= 3)
    often = api.deployment("often")["id"]
    left = subprocess.run(
        [sys.executable, "-c", SETTLE, often, "run"],
        env=environment(tmp_path / "home", PREFECT_API_URL=api.url),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    states = {run["name"]: run["state_name"] for run in due()}
    skipped = {name for name, state in states.items() if state == "Missed"}
    assert len(skipped) >= 2
    assert skipped == set(left) - {""}
    assert {"Scheduled", "Late"} & {states[name] for name in states.keys() - skipped}

    # A place that nobody has, as of a run that was deleted, and somebody's wish to pause.
    taken = {"names": [f"deployment:{often}"], "slots": 1, "mode": "concurrency"}
    ask(f"{api.url}/v2/concurrency_limits/increment", taken)
    assert api.places("often") == 1
    paused = api.deployment("skipping")["id"]
    ask(f"{api.url}/deployments/{paused}/pause_deployment", {})

    # As the first release registered it, whose packages had other names.
    assert api.deployment("skipping")["entrypoint"] == "claimflow.deployed.evaluate"
    api.patch(f"deployments/{paused}", {"entrypoint": "flows.evaluate.evaluate"})

    write(tmp_path, "skipping: {pipeline: small.yaml, every: 6h}", limits="{deployed: {rpm: 60}}")
    told = command(tracked_forks, tmp_path, "deploy", "s.yaml", "--pool", "nights").splitlines()
    why = f"its process {gone.pid} on {platform.node()} is gone"
    for orphan in orphans.values():
        run = api.run(orphan)
        assert (run["state_type"], run["state"]["message"]) == ("CRASHED", why)
        assert f"run {run['name']} is marked as crashed: {why}" in told
    left = "evaluate/often is no longer in the file: it is paused; "
    assert [line for line in told if line.startswith(left)]
    again = "registered again, because another version of claimflow registered them"
    assert [line for line in told if "again" in line] == [f"{again}: evaluate/skipping"]
    assert api.deployment("skipping")["entrypoint"] == "claimflow.deployed.evaluate"
    assert told[-2] == "work pool nights: runs wait for a worker; start one on each machine"
    assert api.deployment("often")["schedules"] == []
    assert api.places("often") == 0
    assert api.deployment("often")["paused"]
    assert api.deployment("skipping")["paused"]
    (every,) = api.deployment("skipping")["schedules"]
    assert every["schedule"]["interval"] == 6 * 3600
    assert every["schedule"]["anchor_date"].startswith("2026-01-01T00:00:00")
    assert Limit(api.url, "deployed").read()["limit"] == 60
    for name in orphans:
        assert api.propose(api.trigger(name), "PENDING") == "Pending"


MISSING = "00" if version("prefect").startswith("3.8.") else "01"
"""The hour, in UTC, of a run at an hour that spring does not have: Prefect 3.9 moved it."""


@pytest.mark.parametrize(
    ("cron", "after", "times"),
    [
        # In spring the clock goes from two to three, in autumn from three back to two.
        ("0 2 * * *", "2027-03-27 12", [f"28 {MISSING}:00", "29 00:00"]),
        ("30 2 * * *", "2027-03-27 12", [f"28 {MISSING}:30", "29 00:30"]),
        ("0 3 * * *", "2027-03-27 12", ["28 01:00", "29 01:00"]),
        ("0 2 * * *", "2026-10-24 12", ["25 00:00", "26 01:00"]),
        ("0 * * * *", "2027-03-28 00", ["28 00:00", "28 01:00", "28 02:00"]),
        ("0 * * * *", "2026-10-25 00", ["25 00:00", "25 02:00", "25 03:00"]),
    ],
)
def test_the_change_of_summer_time_is_as_the_guide_says(
    cron: str, after: str, times: list[str]
) -> None:
    from prefect.server.schemas.schedules import CronSchedule

    start = datetime.fromisoformat(after).replace(tzinfo=UTC)
    dates = CronSchedule(cron=cron, timezone="Europe/Berlin").get_dates(len(times), start=start)
    assert [f"{date.astimezone(UTC):%d %H:%M}" for date in asyncio.run(dates)] == times


def label(api: Api, process: int, flow_run: str) -> None:
    """Label a flow run with a process of this machine, as the flow does."""
    labels = {"claimflow.host": platform.node(), "claimflow.process": process}
    api.patch(f"flow_runs/{flow_run}/labels", labels)


OUTLIVE = """
import threading
from uuid import uuid4
from prefect import flow_engine
from prefect.concurrency._leases import maintain_concurrency_lease
import claimflow
import claimflow.flows.orchestration.flow
assert flow_engine.maintain_concurrency_lease is maintain_concurrency_lease
import claimflow.deployed
with flow_engine.maintain_concurrency_lease(uuid4(), 1, raise_on_lease_renewal_failure=True):
    (renewing,) = (one for one in threading.enumerate() if one.name.startswith("concurrency"))
    renewing.join()
print("continued")
"""


def test_a_run_continues_when_its_lease_cannot_be_renewed(api: Api, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OUTLIVE],
        env=environment(tmp_path / "home", PREFECT_API_URL=api.url),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "continued\n", done.stderr
    assert "Execution will continue" in done.stderr
