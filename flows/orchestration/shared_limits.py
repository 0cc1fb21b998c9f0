"""Request rates shared by runs through Prefect concurrency limits."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from contextvars import Context, copy_context
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Final, TypeVar
from uuid import UUID

import httpx
from prefect import get_run_logger
from prefect.client.orchestration import PrefectClient, SyncPrefectClient, get_client
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
from prefect.client.schemas.objects import ConcurrencyLeaseHolder, StateType
from prefect.client.schemas.responses import GlobalConcurrencyLimitResponse
from prefect.exceptions import ObjectNotFound
from prefect.runtime import flow_run

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.judge.rate_limit import (
    OpenSharedLimiter,
    SetRate,
    SharedLimiter,
    no_shared_limit,
)
from claimflow.flows.pipeline.pipeline import Pipeline
from claimflow.flows.pipeline.schedules import SharedLimit

# Each run that sends requests holds one slot of the limit, under a lease that a killed run cannot
# renew. The slots in use say by how many runs the rate is divided, evenly, and each run keeps to
# its part by itself. Polling once a second costs the same however many requests are sent.
#
# A slot for each request, with Prefect's slot decay, is worse (measured with 3.8.8 at 20 requests
# a second): of two runs that take ten slots at a time one gets all and the other none, and two that
# take them one by one send 14 together, at more than one API call for each.

_POLL_SECONDS: Final = 1.0
"""Seconds between two polls of the slots in use."""

_SETTLED: Final = 3.0
"""Seconds after which the other runs have seen a new one and reduced their rate."""

_LEASE: Final = 60.0
"""Seconds until an unrenewed lease expires; the minimum that Prefect accepts."""

_RENEWED: Final = 20.0
"""Seconds between two renewals of the lease."""

_PATIENCE: Final = 10.0
"""Seconds to wait for the server; Prefect's client repeats requests meanwhile."""

_FAREWELL: Final = 3.0
"""The same when the run ends."""

_REFUSED: Final = (404, 410, 422, 423)
"""HTTP statuses for: no such limit, no such lease, no slot left."""

Reply = TypeVar("Reply")


class RateSlot:
    """The slot of one judge of a run, held while it is sent requests.

    A run that cannot reach the server continues at its last rate and logs one warning.
    """

    def __init__(
        self,
        limit: GlobalConcurrencyLimitResponse,
        set_rate: SetRate,
        *,
        holder: UUID,
        context: Context,
    ) -> None:
        self._name = limit.name
        self._set_rate = set_rate
        self._holder = ConcurrencyLeaseHolder(type="flow_run", id=holder)
        self._context = context
        self._part = max(limit.limit, 1) / (limit.active_slots + 1)
        self._lease: UUID | None = None
        self._renew_at = 0.0
        self._lost = False
        self._users = 0
        self._wanted = asyncio.Event()
        self._taken = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """As `SharedLimiter.slot`."""
        self._users += 1
        self._wanted.set()
        try:
            if self._keeping is None:
                self._keeping = asyncio.create_task(self._keep(), context=self._context.copy())
            await self._taken.wait()
            if self._keeping.done():
                self._keeping.result()
            yield
        finally:
            self._users -= 1

    async def close(self) -> None:
        """As `SharedLimiter.close`."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait({self._keeping})

    async def _keep(self) -> None:
        try:
            async with get_client() as client:
                while await self._wanted.wait():
                    await self._hold(client)
        finally:
            # Release the waiting requests: this task will not take a slot any more.
            self._taken.set()

    async def _hold(self, client: PrefectClient) -> None:
        """Hold a slot as long as there are requests."""
        try:
            await self._enter(client)
            self._taken.set()
            while self._users:
                await asyncio.sleep(_POLL_SECONDS)
                await self._poll(client)
            self._wanted.clear()
        finally:
            self._taken.clear()
            await self._leave(client)

    async def _enter(self, client: PrefectClient) -> None:
        """Take a slot, and give the other runs time to notice before it is used."""
        while not await self._take(client):
            if self._lost:
                self._set_rate(self._part)
                return
            await asyncio.sleep(_POLL_SECONDS)
        if await self._divide(client) > 1:
            await asyncio.sleep(_SETTLED)
            await self._divide(client)

    async def _poll(self, client: PrefectClient) -> None:
        if self._lease is None:
            await self._take(client)
        elif time.monotonic() > self._renew_at:
            self._renew_at = time.monotonic() + _RENEWED
            renewing = client.renew_concurrency_lease(self._lease, _LEASE)
            if await self._request(renewing) is None and not self._lost:
                self._lease = None
        await self._divide(client)

    async def _take(self, client: PrefectClient) -> bool:
        reply = await self._request(
            client.increment_concurrency_slots_with_lease(
                [self._name], 1, "concurrency", lease_duration=_LEASE, holder=self._holder
            )
        )
        if reply is None:
            return False
        self._lease = UUID(reply.json()["lease_id"])
        self._renew_at = time.monotonic() + _RENEWED
        return True

    async def _divide(self, client: PrefectClient) -> int:
        """Update this run's part of the rate; returns the number of runs that share it."""
        limit = await self._request(client.read_global_concurrency_limit_by_name(self._name))
        among = max(limit.active_slots, 1) if limit else 1
        if limit:
            self._part = max(limit.limit, 1) / among if limit.active else inf
        self._set_rate(self._part)
        return among

    async def _leave(self, client: PrefectClient) -> None:
        lease, self._lease = self._lease, None
        if lease is not None and not self._lost:
            leaving = client.release_concurrency_slots_with_lease(lease)
            await self._request(leaving, patience=_FAREWELL)

    async def _request(
        self, asked: Awaitable[Reply], *, patience: float = _PATIENCE
    ) -> Reply | None:
        """The reply of the server; None if it refuses or cannot be reached."""
        try:
            async with asyncio.timeout(patience):
                reply = await asked
        except Exception as error:
            response = error.response if isinstance(error, httpx.HTTPStatusError) else None
            if response is None or response.status_code not in _REFUSED:
                self._warn_once(error)
            return None
        self._lost = False
        return reply

    def _warn_once(self, error: Exception) -> None:
        if not self._lost:
            get_run_logger().warning(
                "shared limit %s: Prefect does not answer (%s); going on with %.0f requests a "
                "minute, the part it had",
                self._name,
                type(error).__name__,
                self._part,
            )
        self._lost = True


_LONGEST: Final = timedelta(days=2)
"""Runs that started earlier are taken to have ended unnoticed."""


def register_limits(client: SyncPrefectClient, limits: Mapping[str, SharedLimit]) -> None:
    """Create or update each shared limit on the server: its value is requests per minute.

    Runs keep their slots. If no run is active, all slots are freed: a restarting server can lose
    the leases of taken slots.
    """
    free = bool(limits) and _no_run_is_active(client)
    for name, written in limits.items():
        # With slot decay the server would free slots that runs still hold.
        change = GlobalConcurrencyLimitUpdate(limit=written.rpm, slot_decay_per_second=0)
        if free:
            change.active_slots = 0
        try:
            client.update_global_concurrency_limit(name, change)
        except ObjectNotFound:
            new = GlobalConcurrencyLimitCreate(name=name, limit=written.rpm)
            client.create_global_concurrency_limit(new)


def _no_run_is_active(client: SyncPrefectClient) -> bool:
    """Whether no evaluation is running on this server."""
    going = FlowRunFilter(
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.RUNNING])),
        start_time=FlowRunFilterStartTime(after_=datetime.now(UTC) - _LONGEST),
    )
    ours = FlowFilter(name=FlowFilterName(any_=["evaluate"]))
    return not client.read_flow_runs(flow_filter=ours, flow_run_filter=going, limit=1)


def shared_limits_of(pipeline: Pipeline) -> OpenSharedLimiter:
    """The shared limits of a pipeline, for the current flow run.

    Raises `InputError` if the server has no limit of that name.
    """
    named = pipeline.shared_limits()
    if not named:
        return no_shared_limit
    limits: dict[str, GlobalConcurrencyLimitResponse] = {}
    faults = []
    with get_client(sync_client=True) as client:
        for place, name in named.items():
            try:
                limits[name] = client.read_global_concurrency_limit_by_name(name)
            except ObjectNotFound:
                what = f"the Prefect server has no limit {name!r}"
                hint = "write it under limits in a schedules file and run `claimflow deploy`"
                faults.append(Fault(place, what, hint))
    if faults:
        raise InputError(faults)
    # Requests are sent from a thread, which does not inherit the context of the flow run.
    context, holder = copy_context(), UUID(str(flow_run.id))

    def open_limiter(name: str, set_rate: SetRate) -> SharedLimiter:
        return RateSlot(limits[name], set_rate, holder=holder, context=context)

    return open_limiter
