"""What a run on record is, before anything that it found."""

from datetime import datetime
from typing import Any, NamedTuple

from claimflow.flows.engine.storage.store import Store
from claimflow.flows.engine.storage.tags import CURRENT


class RunHead(NamedTuple):
    """A run on record; times are UTC, `ended_at` is None where nobody noted its end.

    `failures` counts the failed rows of its tables.
    """

    run_id: str
    pipeline: str
    status: str
    reason: str | None
    started_at: datetime
    ended_at: datetime | None
    tags: list[str]
    failures: int

    @property
    def seconds(self) -> float | None:
        """How long it took, None where nobody knows."""
        return (self.ended_at - self.started_at).total_seconds() if self.ended_at else None


def run_head(store: Store, run_id: str) -> RunHead:
    """What a run is; it is one on record."""
    with store.reading() as connection:
        found: tuple[Any, ...] = connection.execute(_HEAD, {"run": run_id}).fetchall()[0]
    return RunHead(*found)


_HEAD = f"""
SELECT run_id, pipeline, status, reason, started_at, ended_at,
       (SELECT coalesce(list(tag ORDER BY tag), []) FROM ({CURRENT}) WHERE run_id = $run),
       (SELECT coalesce(sum(failures), 0)::BIGINT FROM audit.run_steps
        JOIN (SELECT artifact_id, failures FROM audit.artifacts) USING (artifact_id)
        WHERE run_id = $run)
FROM audit.runs WHERE run_id = $run
"""
