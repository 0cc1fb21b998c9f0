"""Recovery: lost flow runs, missed schedules, leases."""

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
from prefect.events.filters import EventAnyResourceFilter, EventFilter, EventNameFilter
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


# Runs that nobody started when they were due.


MISSED_AFTER: Final = timedelta(minutes=10)
"""How late a run is that was missed; one that is less late just starts."""


def skip_missed_runs(
    client: SyncPrefectClient,
    deployment_id: UUID,
    rule: Literal["run", "skip"],
    *,
    late: timedelta = MISSED_AFTER,
) -> list[str]:
    """Cancel the missed runs of a deployment: all by "skip", all but the newest by "run".

    Prefect starts every one that is left as soon as something serves it. What somebody
    started by hand is left alone, and so is what waits for a run before it. Returns the names
    of the runs that were cancelled.
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
        reason = "missed: nothing was there to start it"
        client.set_flow_run_state(run.id, Cancelled(name="Missed", message=reason), force=True)
    return [run.name for run in skipped]


# Flow runs whose process is gone: found, marked, and no longer in anybody's way.


_HOST: Final = "claimflow.host"
_PROCESS: Final = "claimflow.process"

_SILENT: Final = timedelta(minutes=15)
"""How long a run may send no heartbeat; Prefect sends one every three minutes."""

_STARTING: Final = timedelta(minutes=5)
"""How long a run may take to start; Prefect holds its place for as long."""

_UNHEARD: Final = timedelta(days=1)
"""How long a run may go on that never sent one, as where heartbeats are off."""

_GOING: Final = [StateType.RUNNING, StateType.PENDING, StateType.CANCELLING]


class OrphanedRun(NamedTuple):
    """A flow run that was marked as crashed, and why."""

    name: str
    reason: str


def label_with_process(flow_run_id: UUID | str) -> None:
    """Put on a flow run which process it is; left out where the server cannot be reached."""
    try:
        with get_client(sync_client=True) as client:
            labels: KeyValueLabels = {_HOST: platform.node(), _PROCESS: os.getpid()}
            client.update_flow_run_labels(UUID(str(flow_run_id)), labels)
    except (httpx.HTTPError, PrefectException):
        return


def mark_orphaned_runs(client: SyncPrefectClient, deployment_ids: list[UUID]) -> list[OrphanedRun]:
    """Set runs of these deployments whose process is gone to Crashed; returns what they were.

    One on this host is an orphan when its process is gone, any other when nothing was heard
    of it for a quarter of an hour, or when it has been starting for five minutes. Then the
    places are freed that deployments without a going run still hold.
    """
    orphans = []
    for run in _going(client, deployment_ids):
        reason = _why_orphan(client, run)
        if reason is not None:
            client.set_flow_run_state(run.id, Crashed(message=reason), force=True)
            orphans.append(OrphanedRun(run.name, reason))
    for deployment_id in deployment_ids:
        _free_places(client, deployment_id)
    return orphans


def _going(client: SyncPrefectClient, deployment_ids: list[UUID]) -> list[FlowRun]:
    if not deployment_ids:
        return []
    return client.read_flow_runs(
        flow_run_filter=FlowRunFilter(
            deployment_id=FlowRunFilterDeploymentId(any_=deployment_ids),
            state=FlowRunFilterState(type=FlowRunFilterStateType(any_=_GOING)),
        )
    )


def _why_orphan(client: SyncPrefectClient, run: FlowRun) -> str | None:
    """Why a run counts as one whose process is gone; None where it may live."""
    host, process = run.labels.get(_HOST), run.labels.get(_PROCESS)
    if host == platform.node() and isinstance(process, int) and not process_alive(process):
        return f"its process {process} on {host} is gone"
    since = run.state.timestamp if run.state else run.created
    now = datetime.now(UTC)
    if since is None:
        return None
    if host is None and run.state_type == StateType.PENDING:
        return "it never came to start" if now - since > _STARTING else None
    heard = _last_heartbeat(client, run.id)
    if now - max(heard or since, since) > (_SILENT if heard else _UNHEARD):
        return f"nothing was heard of it since {heard or since:%Y-%m-%d %H:%M} UTC"
    return None


def _last_heartbeat(client: SyncPrefectClient, flow_run_id: UUID) -> datetime | None:
    found = client.read_events(
        EventFilter(
            event=EventNameFilter(name=["prefect.flow-run.heartbeat"]),
            any_resource=EventAnyResourceFilter(id=[f"prefect.flow-run.{flow_run_id}"]),
        ),
        limit=1,
    )
    return found.events[0].occurred if found.events else None


def _free_places(client: SyncPrefectClient, deployment_id: UUID) -> None:
    """Free the place that no run has: a server may forget, as it restarts, whose it was."""
    try:
        limit = client.read_global_concurrency_limit_by_name(f"deployment:{deployment_id}")
    except ObjectNotFound:
        return
    if limit.active_slots and not _going(client, [deployment_id]):
        free = GlobalConcurrencyLimitUpdate(active_slots=0)
        client.update_global_concurrency_limit(limit.name, free)
