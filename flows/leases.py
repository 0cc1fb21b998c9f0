"""Runs that outlive a server that is away for long.

A run of a deployment whose runs must not overlap holds a lease, which Prefect renews every
four minutes. When it cannot it ends the run, so that no two overlap. Here the run goes on:
what it pays for is worth more, and two runs on one store take turns.

Prefect 3.8.8 knows both ways (`raise_on_lease_renewal_failure`), but its flow engine asks for
the strict one in so many words: there is no setting, argument or hook to say otherwise. So the
name that the engine calls is replaced, by the same function with the other answer.
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
    vars(flow_engine)["maintain_concurrency_lease"] = _kept_as_long_as_it_can_be
