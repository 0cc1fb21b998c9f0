"""Request rates that runs share, each a global concurrency limit of Prefect.

The limit's number is requests a minute; a slot of it is a run that asks, for the rate is
divided among those (`places.py`).
"""

from collections.abc import Mapping
from contextvars import copy_context
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import (
    GlobalConcurrencyLimitCreate,
    GlobalConcurrencyLimitUpdate,
)
from prefect.client.schemas.filters import (
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterStartTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import StateType
from prefect.client.schemas.responses import GlobalConcurrencyLimitResponse
from prefect.exceptions import ObjectNotFound
from prefect.runtime import flow_run

from claimflow.flows.engine.config.pipeline import Pipeline
from claimflow.flows.engine.config.schedules_schema import SharedLimit
from claimflow.flows.engine.errors import Fault, InputError
from claimflow.flows.engine.llm.sharing import KeepTo, Sharing, Turnstile, unshared
from claimflow.flows.places import Place

_LONGEST: Final = timedelta(days=2)


def register_limits(client: SyncPrefectClient, limits: Mapping[str, SharedLimit]) -> None:
    """Have each limit on the server as it is written; who has a place keeps it.

    Places that nobody has are freed where no run goes on: a server may forget, as it
    restarts, whose they were.
    """
    free = bool(limits) and _nobody_runs(client)
    for name, written in limits.items():
        # With a decay the server would forget who has a place.
        change = GlobalConcurrencyLimitUpdate(limit=written.rpm, slot_decay_per_second=0)
        if free:
            change.active_slots = 0
        try:
            client.update_global_concurrency_limit(name, change)
        except ObjectNotFound:
            new = GlobalConcurrencyLimitCreate(name=name, limit=written.rpm)
            client.create_global_concurrency_limit(new)


def _nobody_runs(client: SyncPrefectClient) -> bool:
    """Whether no run goes on; one that began days ago is one whose end the server missed."""
    going = FlowRunFilter(
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.RUNNING])),
        start_time=FlowRunFilterStartTime(after_=datetime.now(UTC) - _LONGEST),
    )
    ours = FlowFilter(name=FlowFilterName(any_=["evaluate"]))
    return not client.read_flow_runs(flow_filter=ours, flow_run_filter=going, limit=1)


def shared_by_runs(pipeline: Pipeline) -> Sharing:
    """The limits that a pipeline names, for the flow run that goes on here.

    Raises `InputError` where the server has none of such a name.
    """
    named = pipeline.shared_limits()
    if not named:
        return unshared
    limits: dict[str, GlobalConcurrencyLimitResponse] = {}
    faults = []
    with get_client(sync_client=True) as client:
        for place, name in named.items():
            try:
                limits[name] = client.read_global_concurrency_limit_by_name(name)
            except ObjectNotFound:
                what = f"the Prefect server has no limit {name!r}"
                right = "write it under limits in a schedules file and run `claimflow deploy`"
                faults.append(Fault(place, what, right))
    if faults:
        raise InputError(faults)
    # Requests are sent in a thread that does not know of the flow run.
    context, holder = copy_context(), UUID(str(flow_run.id))

    def turnstile(name: str, keep_to: KeepTo) -> Turnstile:
        return Place(limits[name], keep_to, holder=holder, context=context)

    return turnstile
