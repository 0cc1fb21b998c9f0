"""What `serve` and `deploy` say of the schedules that they register."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from claimflow.flows.pipeline.schedules import Scheduled, SharedLimit

if TYPE_CHECKING:
    from claimflow.flows.orchestration.deployments import Found


def print_schedules(scheduled: Iterable[Scheduled]) -> None:
    """One line for each deployment: its name, when it runs, and what."""
    for name, _, written in scheduled:
        if written.cron is not None:
            when = f"cron {written.cron} in {written.timezone or 'UTC'}"
        else:
            when = f"every {written.interval}"
        rules = f"overlap {written.overlap}, missed {written.missed}"
        print(f"evaluate/{name}: {written.pipeline}, {when}; {rules}", flush=True)


def print_limits(limits: Mapping[str, SharedLimit]) -> None:
    """One line for each limit that runs share."""
    for name, limit in limits.items():
        print(f"limit {name}: {limit.rpm:,} requests a minute, for all runs together", flush=True)


def print_found(found: "Found") -> None:
    """One line for each thing that was put right first."""
    for orphan in found.orphans:
        print(f"run {orphan.name} is marked as crashed: {orphan.reason}")
    for name in found.missed:
        print(f"run {name} was missed and is left out")
    for name in found.left:
        print(f"evaluate/{name} is no longer in the file: its schedule is removed")
