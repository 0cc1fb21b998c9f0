"""Recovery from lost processes and servers: orphaned runs, missed runs, leases."""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NamedTuple
from uuid import UUID

import httpx
from prefect import flow_engine
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterDeploymentId,
    FlowRunFilterExpectedStartTime,
    FlowRunFilterState,
    FlowRunFilterStateName,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.concurrency._leases import maintain_concurrency_lease
from prefect.exceptions import ObjectNotFound, PrefectException
from prefect.states import Cancelled, Crashed
from prefect.types import KeyValueLabels

from claimflow.flows.store.runs import process_alive


def keep_running_without_lease() -> None:
    """Let flows of this process continue when their concurrency lease cannot be renewed.

    A run of a deployment with a concurrency limit holds a lease, which Prefect renews every four
    minutes. When the server cannot be reached Prefect 3.8.8 ends the run, so that no two overlap.
    Here the run continues with a warning: the model calls that it has paid for are worth more,
    and two runs on one store take turns.

    Prefect can do both (`raise_on_lease_renewal_failure`), but its flow engine passes the strict
    value and has no setting, argument or hook for the other. So the function that the engine
    calls is replaced, for the whole process: call this only in a process that does nothing but
    execute one flow run of ours, as `claimflow.deployed` does.
    """
    vars(flow_engine)["maintain_concurrency_lease"] = _maintain_without_raising


@contextmanager
def _maintain_without_raising(lease_id: UUID, lease_duration: float, **_: bool) -> Iterator[None]:
    with maintain_concurrency_lease(lease_id, lease_duration):
        yield


MISSED_AFTER: Final = timedelta(minutes=10)
"""How late a run must be to count as missed; one that is less late is just started."""


def skip_missed_runs(
    client: SyncPrefectClient,
    deployment_id: UUID,
    rule: Literal["run", "skip"],
    *,
    late: timedelta = MISSED_AFTER,
) -> list[str]:
    """Cancel the missed runs of a deployment: all by "skip", all but the newest by "run".

    Prefect starts the remaining ones as soon as a worker is there. Runs that a user started, and
    runs that wait for an earlier one, are not touched. Returns the names of the cancelled runs.
    """
    due = client.read_flow_runs(
        flow_run_filter=FlowRunFilter(
            deployment_id=FlowRunFilterDeploymentId(any_=[deployment_id]),
            state=FlowRunFilterState(name=FlowRunFilterStateName(any_=["Scheduled", "Late"])),
            expected_start_time=FlowRunFilterExpectedStartTime(before_=datetime.now(UTC) - late),
        ),
        sort=FlowRunSort.EXPECTED_START_TIME_DESC,
    )
    missed = [run for run in due if run.auto_scheduled]
    skipped = missed if rule == "skip" else missed[1:]
    for run in skipped:
        reason = "missed: no worker was running to start it"
        client.set_flow_run_state(run.id, Cancelled(name="Missed", message=reason), force=True)
    return [run.name for run in skipped]


_HOST: Final = "claimflow.host"
_PROCESS: Final = "claimflow.process"

_ACTIVE: Final = [StateType.RUNNING, StateType.PENDING, StateType.CANCELLING]


class OrphanedRun(NamedTuple):
    """A flow run that was marked as crashed, and why."""

    name: str
    reason: str


def label_with_process(flow_run_id: UUID | str) -> None:
    """Label a flow run with its host and process id; skipped if the server cannot be reached."""
    try:
        with get_client(sync_client=True) as client:
            labels: KeyValueLabels = {_HOST: platform.node(), _PROCESS: os.getpid()}
            client.update_flow_run_labels(UUID(str(flow_run_id)), labels)
    except (httpx.HTTPError, PrefectException):
        return


def mark_orphaned_runs(client: SyncPrefectClient, deployment_ids: list[UUID]) -> list[OrphanedRun]:
    """Set runs of these deployments whose process is gone to Crashed; returns them.

    Only runs of this host can be looked up. Of others, the automation for silent runs decides.
    Then the concurrency slots of deployments without an active run are freed.
    """
    orphans = []
    for run in _active_runs(client, deployment_ids):
        reason = _orphan_reason(run)
        if reason is not None:
            client.set_flow_run_state(run.id, Crashed(message=reason), force=True)
            orphans.append(OrphanedRun(run.name, reason))
    for deployment_id in deployment_ids:
        _free_slots(client, deployment_id)
    return orphans


def _active_runs(client: SyncPrefectClient, deployment_ids: list[UUID]) -> list[FlowRun]:
    if not deployment_ids:
        return []
    return client.read_flow_runs(
        flow_run_filter=FlowRunFilter(
            deployment_id=FlowRunFilterDeploymentId(any_=deployment_ids),
            state=FlowRunFilterState(type=FlowRunFilterStateType(any_=_ACTIVE)),
        )
    )


def _orphan_reason(run: FlowRun) -> str | None:
    """Why a run is orphaned; None if its process may be alive."""
    host, process = run.labels.get(_HOST), run.labels.get(_PROCESS)
    if host == platform.node() and isinstance(process, int) and not process_alive(process):
        return f"its process {process} on {host} is gone"
    return None


def _free_slots(client: SyncPrefectClient, deployment_id: UUID) -> None:
    """Free slots that no run holds: a restarting server can lose the leases of taken slots."""
    try:
        limit = client.read_global_concurrency_limit_by_name(f"deployment:{deployment_id}")
    except ObjectNotFound:
        return
    if limit.active_slots and not _active_runs(client, [deployment_id]):
        free = GlobalConcurrencyLimitUpdate(active_slots=0)
        client.update_global_concurrency_limit(limit.name, free)
