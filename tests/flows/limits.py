"""A limit that runs share, as tests see it on the Prefect server."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.flows.prefect_server import ask


class Limit:
    """The limit of a name on the server at `url`; made where `rpm` is given."""

    def __init__(self, url: str, name: str, rpm: int | None = None, *, decay: float = 0.0) -> None:
        self._url = f"{url}/v2/concurrency_limits"
        self.name = name
        if rpm is not None:
            written = {"name": name, "limit": rpm, "slot_decay_per_second": decay}
            ask(f"{self._url}/", written)

    def read(self) -> Any:
        """As the server has it."""
        return ask(f"{self._url}/{self.name}")

    def places(self) -> int:
        """Among how many the rate is divided."""
        return int(self.read()["active_slots"])

    def take(self) -> None:
        """Take a place, for good."""
        ask(f"{self._url}/increment", {"names": [self.name], "slots": 1, "mode": "concurrency"})


def expire(leases: Path, limit: Limit, flow_run: str) -> None:
    """Have the lease that a run has of `limit` end now: a client may ask for no less than a minute.

    By the server's own hand: it and the runs of other tests write to the same files meanwhile.
    """
    # The server's modules take a second to load.
    from prefect.server.concurrency.lease_storage.filesystem import ConcurrencyLeaseStorage

    kept = ConcurrencyLeaseStorage(leases)

    async def end() -> bool:
        holders = await kept.list_holders_for_limit(UUID(limit.read()["id"]))
        (lease,) = (lease for lease, holder in holders if str(holder.id) == flow_run)
        return await kept.renew_lease(lease, timedelta(0))

    assert asyncio.run(end())
