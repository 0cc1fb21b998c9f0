"""Registers the schedules of a file as Prefect deployments."""

import asyncio
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentUpdate, WorkPoolCreate
from prefect.client.schemas.filters import FlowFilter, FlowFilterName
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.client.schemas.responses import DeploymentResponse
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectNotFound
from prefect.runner import Runner
from prefect.schedules import Cron, Interval, Schedule
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.types.entrypoint import EntrypointType
from prefect.workers.process import ProcessWorker

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.orchestration.automations import remove_automations
from claimflow.flows.orchestration.flow import evaluate
from claimflow.flows.orchestration.recovery import (
    MISSED_AFTER,
    OrphanedRun,
    mark_orphaned_runs,
    skip_missed_runs,
)
from claimflow.flows.pipeline.schedules import Scheduled, ScheduleFile, limits_of

TAG: Final = "claimflow"

_LEFT: Final = "no longer in its file"
"""The tag of a deployment whose entry was removed from its schedules file."""

_COLLISION: Final = {
    "wait": ConcurrencyLimitStrategy.ENQUEUE,
    "skip": ConcurrencyLimitStrategy.CANCEL_NEW,
}

_ANCHOR: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""Start of all intervals, fixed so that registering again does not shift the runs."""

ENTRYPOINT: Final = "claimflow.deployed.evaluate"
"""Where a process that executes a flow run finds the flow. The server stores it."""


class Repairs(NamedTuple):
    """What was found and corrected before the schedules of a file are registered again."""

    orphans: list[OrphanedRun]
    missed: list[str]
    """Names of runs that were missed and are skipped."""
    removed: list[str]
    """Names of deployments that are no longer in the file and are paused."""
    moved: list[str]
    """Names of deployments that an earlier version registered with another entrypoint."""


@contextmanager
def api(url: str | None = None) -> Iterator[SyncPrefectClient]:
    """A client of the configured Prefect API, or of the one at `url`, which Prefect then uses.

    Raises `RuntimeError` with "reach API" in its message if no server answers.
    """
    settings = temporary_settings({PREFECT_API_URL: url} if url else {})
    with settings, get_client(sync_client=True) as client:
        client.raise_for_api_version_mismatch()
        yield client


def check_names(
    client: SyncPrefectClient, file: Path, schedules: ScheduleFile, *, replace: bool = False
) -> None:
    """Raise `InputError` for names and limits of `file` that another schedules file has.

    A deployment belongs to the schedules file that registered it; one that claimflow did not
    register belongs to no file, and its name is refused as well. A limit is refused where another
    file, if it can be read here, gives another number. With `replace` deployments and limits are
    taken over: one whose name differs by upper and lower case is paused, and a file that loses all
    of its deployments loses its automations.
    """
    names = {one.name.casefold(): one.name for one in schedules.scheduled}
    tag = file_tag(file)
    others = [one for one in _evaluations(client) if tag not in one.tags and _LEFT not in one.tags]
    taken = [one for one in others if one.name.casefold() in names]
    files = {_file_of(one) for one in others} - {None}
    if replace:
        for one in taken:
            if one.name != names[one.name.casefold()]:
                note = f"{names[one.name.casefold()]} of {tag} took its place"
                _pause(client, one, note)
        left = {_file_of(one) for one in others if one not in taken}
        for other in files - left:
            remove_automations(client, str(other))
        return
    faults = []
    for one in taken:
        owner = _file_of(one)
        by = f"of {owner}" if owner else "that claimflow did not register"
        place = f"{file} deployments.{names[one.name.casefold()]}"
        hint = "choose another name, or take it over by --replace"
        faults.append(Fault(place, f"there is a deployment evaluate/{one.name} {by}", hint))
    for other in sorted(map(str, files)):
        for name, limit in limits_of(Path(other)).items():
            here = schedules.limits.get(name, limit)
            if here.rpm != limit.rpm:
                what = f"{other} gives this limit {limit.rpm:,} requests a minute"
                hint = "write the same in both, or overrule it by --replace"
                faults.append(Fault(f"{file} limits.{name}", what, hint))
    if faults:
        raise InputError(faults)


def repair(
    client: SyncPrefectClient,
    file: Path,
    scheduled: list[Scheduled],
    *,
    late: timedelta = MISSED_AFTER,
) -> Repairs:
    """Mark orphaned runs, skip missed runs, and pause deployments that left `file`.

    Call it before the schedules of `file` are registered again.
    """
    written = {one.name: one.deployment for one in scheduled}
    registered = [one for one in _evaluations(client) if file_tag(file) in one.tags]
    orphans = mark_orphaned_runs(client, [one.id for one in registered])
    missed: list[str] = []
    removed: list[str] = []
    moved: list[str] = []
    for one in registered:
        rule = written[one.name].missed if one.name in written else "skip"
        missed += skip_missed_runs(client, one.id, rule, late=late)
        if one.name not in written and _LEFT not in one.tags:
            _pause(client, one, f"{one.name} is no longer in {file_tag(file)}")
            removed.append(one.name)
        if one.name in written and one.entrypoint != ENTRYPOINT:
            moved.append(one.name)
    return Repairs(orphans, missed, removed, moved)


def _pause(client: SyncPrefectClient, one: DeploymentResponse, why: str) -> None:
    """Pause a deployment, delete its schedules, and note why."""
    for schedule in one.schedules:
        client.delete_deployment_schedule(one.id, schedule.id)
    note = f"Paused without a schedule: {why}."
    update = DeploymentUpdate(paused=True, description=note, tags=[*one.tags, _LEFT])
    client.update_deployment(one.id, update)


def serve(client: SyncPrefectClient, file: Path, scheduled: Iterable[Scheduled]) -> None:
    """Register the deployments and start their runs from this process until it is stopped.

    On SIGTERM and Ctrl-C running runs are cancelled, and then it returns.
    """
    # By default Prefect pauses schedules on shutdown, and they stay paused after a restart.
    runner = _Runner(pause_on_shutdown=False)
    for deployment in _deployments(client, file, scheduled):
        runner.add_deployment(deployment)
    with suppress(KeyboardInterrupt):
        asyncio.run(runner.start())


class _Runner(Runner):
    """Prefect's runner, which cancels running runs on SIGTERM."""

    def handle_sigterm(self, *_: Any, **__: Any) -> None:
        """Cancel the runs and stop.

        Prefect's own method calls a coroutine function without awaiting it: a warning is printed
        and running runs are left to end by themselves.
        """
        if not self.started:
            sys.exit(0)
        self._logger.info("SIGTERM received: running runs are cancelled")
        self.execute_in_background(self.astop)


class Pool(NamedTuple):
    """A work pool: whether it is new, its type, and whether it is paused."""

    new: bool
    type: str
    paused: bool


def deploy(
    client: SyncPrefectClient, file: Path, scheduled: Iterable[Scheduled], *, pool: str
) -> Pool:
    """Register the deployments for the workers of a pool, which is created if there is none."""
    try:
        found = client.read_work_pool(pool)
        work = Pool(new=False, type=found.type, paused=found.is_paused)
    except ObjectNotFound:
        template = ProcessWorker.get_default_base_job_template()
        client.create_work_pool(
            WorkPoolCreate(name=pool, type="process", base_job_template=template)
        )
        work = Pool(new=True, type="process", paused=False)
    for deployment in _deployments(client, file, scheduled):
        deployment.apply(work_pool_name=pool)
    return work


def file_tag(file: Path) -> str:
    """The tag of all deployments of one schedules file."""
    return str(file.resolve())


def _file_of(deployment: DeploymentResponse) -> str | None:
    """The schedules file that registered a deployment; None if claimflow did not."""
    # Users may add tags of their own.
    paths = (tag for tag in deployment.tags if Path(tag).is_absolute())
    return next(paths, None) if TAG in deployment.tags else None


def _evaluations(client: SyncPrefectClient) -> list[DeploymentResponse]:
    """All deployments of flows of our flow's name."""
    ours = FlowFilter(name=FlowFilterName(any_=[evaluate.name]))
    found: list[DeploymentResponse] = []
    # The server gives at most 200 at a time.
    while some := client.read_deployments(flow_filter=ours, offset=len(found)):
        found += some
    return found


def _deployments(
    client: SyncPrefectClient, file: Path, scheduled: Iterable[Scheduled]
) -> list[RunnerDeployment]:
    # Keep deployments paused that a user paused; registering them again would resume them.
    paused = {one.name for one in _evaluations(client) if one.paused and _LEFT not in one.tags}
    return [_deployment(file, one, paused=one.name in paused) for one in scheduled]


def _deployment(file: Path, one: Scheduled, *, paused: bool) -> RunnerDeployment:
    collision = _COLLISION[one.deployment.overlap]
    deployment = RunnerDeployment.from_flow(
        evaluate,
        one.name,
        schedule=_schedule(one),
        paused=paused,
        concurrency_limit=ConcurrencyLimitConfig(limit=1, collision_strategy=collision),
        parameters=one.parameters,
        tags=[TAG, file_tag(file)],
        # An importable name is valid wherever claimflow is installed, unlike a path.
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    deployment.entrypoint = ENTRYPOINT
    return deployment


def _schedule(one: Scheduled) -> Schedule:
    every = one.deployment.interval
    if every is not None:
        return Interval(every, anchor_date=_ANCHOR, timezone="UTC")
    return Cron(str(one.deployment.cron), timezone=one.deployment.timezone or "UTC")
