"""Runs that outlive a server that is away for long.

A run of a deployment whose runs must not overlap holds a lease, which Prefect renews every
four minutes. When it cannot it ends the run, so that no two overlap. Here the run goes on:
what it pays for is worth more, and two runs on one store take turns.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from prefect import flow_engine
from prefect.concurrency._leases import maintain_concurrency_lease


@contextmanager
def _kept_as_long_as_it_can_be(lease_id: UUID, lease_duration: float, **_: bool) -> Iterator[None]:
    with maintain_concurrency_lease(lease_id, lease_duration):
        yield


def outlive_leases() -> None:
    """Let flows of this process go on when their lease cannot be renewed; Prefect warns then."""
    # Prefect has no setting for it.
    vars(flow_engine)["maintain_concurrency_lease"] = _kept_as_long_as_it_can_be
