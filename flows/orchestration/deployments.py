"""Registers the schedules of a file as Prefect deployments."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import prefect
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterTags
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.client.schemas.responses import DeploymentResponse
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectNotFound
from prefect.schedules import Cron, Interval, Schedule
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.types.entrypoint import EntrypointType
from prefect.workers.process import ProcessWorker

from claimflow.flows.orchestration.flow import evaluate
from claimflow.flows.orchestration.recovery import (
    MISSED_AFTER,
    OrphanedRun,
    mark_orphaned_runs,
    skip_missed_runs,
)
from claimflow.flows.pipeline.schedules import Scheduled

TAG: Final = "claimflow"

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
    """Names of deployments that are no longer in the file and lost their schedule."""
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


def repair(
    client: SyncPrefectClient,
    file: Path,
    scheduled: list[Scheduled],
    *,
    late: timedelta = MISSED_AFTER,
) -> Repairs:
    """Mark orphaned runs, skip missed runs, and remove schedules that are no longer in `file`.

    Call it before the schedules of `file` are registered again.
    """
    written = {one.name: one.deployment for one in scheduled}
    registered = _registered(client, file)
    orphans = mark_orphaned_runs(client, [one.id for one in registered])
    missed: list[str] = []
    removed: list[str] = []
    moved: list[str] = []
    for one in registered:
        rule = written[one.name].missed if one.name in written else "skip"
        missed += skip_missed_runs(client, one.id, rule, late=late)
        if one.name not in written and one.schedules:
            for schedule in one.schedules:
                client.delete_deployment_schedule(one.id, schedule.id)
            removed.append(one.name)
        if one.name in written and one.entrypoint != ENTRYPOINT:
            moved.append(one.name)
    return Repairs(orphans, missed, removed, moved)


def serve(client: SyncPrefectClient, file: Path, scheduled: Iterable[Scheduled]) -> None:
    """Register the deployments and start their runs from this process until it is stopped."""
    deployments = _deployments(client, file, scheduled)
    # By default Prefect pauses schedules on shutdown, and they stay paused after a restart.
    prefect.serve(*deployments, pause_on_shutdown=False, print_starting_message=False)


def deploy(
    client: SyncPrefectClient, file: Path, scheduled: Iterable[Scheduled], *, pool: str
) -> bool:
    """Register the deployments for the workers of a pool; returns whether the pool is new."""
    new = False
    try:
        client.read_work_pool(pool)
    except ObjectNotFound:
        template = ProcessWorker.get_default_base_job_template()
        client.create_work_pool(
            WorkPoolCreate(name=pool, type="process", base_job_template=template)
        )
        new = True
    for deployment in _deployments(client, file, scheduled):
        deployment.apply(work_pool_name=pool)
    return new


def _registered(client: SyncPrefectClient, file: Path) -> list[DeploymentResponse]:
    tags = DeploymentFilterTags(all_=[TAG, _tag(file)])
    return client.read_deployments(deployment_filter=DeploymentFilter(tags=tags))


def _deployments(
    client: SyncPrefectClient, file: Path, scheduled: Iterable[Scheduled]
) -> list[RunnerDeployment]:
    # Keep deployments paused that a user paused; registering them again would resume them.
    paused = {one.name for one in _registered(client, file) if one.paused}
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
        tags=[TAG, _tag(file)],
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


def _tag(file: Path) -> str:
    """The tag of all deployments of one schedules file."""
    return str(file.resolve())
