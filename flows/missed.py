"""Runs that nobody started when they were due."""

from datetime import UTC, datetime, timedelta
from typing import Final, Literal
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterDeploymentId,
    FlowRunFilterExpectedStartTime,
    FlowRunFilterState,
    FlowRunFilterStateName,
)
from prefect.client.schemas.sorting import FlowRunSort
from prefect.states import Cancelled

MISSED: Final = timedelta(minutes=10)
"""How late a run is that was missed; one that is less late just starts."""


def settle_missed(
    client: SyncPrefectClient,
    deployment_id: UUID,
    rule: Literal["run", "skip"],
    *,
    late: timedelta = MISSED,
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
