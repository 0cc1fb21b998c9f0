"""How the canaries of a run came out, beside the labels and what the judge said before."""

from collections.abc import Container, Mapping
from typing import Any, Final, NamedTuple

import duckdb
import numpy as np

from claimflow.flows.engine.canaries.drift import Moved, Restless, moved, restless
from claimflow.flows.engine.canaries.record import has_canaries
from claimflow.flows.engine.storage.store import Store
from claimflow.stages.intervals import mean_interval


class CanaryAccount(NamedTuple):
    """What one judge of a run said of the canaries; `steps` have it.

    Of `canaries` it gave no verdict on `failed`, and on `agreed` of the rest the verdict is the
    label; `low` and `high` bound the 95 % interval of that share, None below two. `anew` were
    asked anew. `moved` and `since`, the id of a run, are None where nothing was said before;
    `same` says that judge, prompt and settings were the same then.
    """

    steps: tuple[str, ...]
    canaries: int
    failed: int
    agreed: int
    low: float | None
    high: float | None
    anew: int
    since: str | None
    same: bool
    moved: Moved | None
    restless: Restless

    @property
    def judged(self) -> int:
        """How many have a verdict."""
        return self.canaries - self.failed

    @property
    def drifts(self) -> bool:
        """Whether the judge has moved by more than chance."""
        moved = self.moved is not None and self.moved.beyond_chance
        return moved or self.restless.beyond_chance


_JUDGES: Final = """
SELECT list(step ORDER BY position, step), judge, pipeline, judged_at
FROM (SELECT DISTINCT run_id, step, judge, pipeline, judged_at FROM audit.canaries
      WHERE run_id = $run)
LEFT JOIN audit.run_steps USING (run_id, step)
GROUP BY judge, pipeline, judged_at ORDER BY min(position), min(step)
"""

_NOW: Final = """
SELECT canary, label, verdict, anew FROM audit.canaries
WHERE run_id = $run AND step = $step ORDER BY rowid
"""

# The first that the same judge said, for who moves a little each night moves; of another judge,
# prompt or settings the last.
_BEFORE: Final = """
SELECT canary, arg_min(verdict, nearness), arg_min(run_id, nearness), min(judged_at)
FROM (
  SELECT *, CASE WHEN $same THEN epoch_us(judged_at) ELSE -epoch_us(judged_at) END AS nearness
  FROM audit.canaries
  WHERE pipeline = $pipeline AND step = $step AND judged_at < $at AND status = 'judged'
        AND (judge = $judge) = $same
) GROUP BY canary ORDER BY canary
"""

# A run that did not ask keeps what was said before, with the time at which it was asked.
_ANEW: Final = """
WITH said AS (
  SELECT canary, arg_min(verdict, judged_at) AS verdict, bool_or(anew AND run_id = $run) AS now
  FROM audit.canaries
  WHERE pipeline = $pipeline AND step = $step AND judge = $judge AND judged_at <= $at
        AND status = 'judged'
  GROUP BY canary, asked_at
)
SELECT any_value(verdict) FILTER (now), list(verdict) FILTER (NOT now)
FROM said GROUP BY canary HAVING bool_or(now) AND NOT bool_and(now)
"""


def canaries_of(store: Store, run_id: str) -> list[CanaryAccount]:
    """How the judges of a run did on its canaries, in the order of their steps."""
    with store.reading() as connection:
        return canaries_in(connection, run_id)


def canaries_in(connection: duckdb.DuckDBPyConnection, run_id: str) -> list[CanaryAccount]:
    """As `canaries_of`, of an open store."""
    if not has_canaries(connection):
        return []
    judges = connection.execute(_JUDGES, {"run": run_id}).fetchall()
    return [_account(connection, run_id, *row) for row in judges]


def _account(
    connection: duckdb.DuckDBPyConnection,
    run_id: str,
    steps: list[str],
    judge: object,
    pipeline: str,
    at: object,
) -> CanaryAccount:
    where = {"pipeline": pipeline, "step": steps[0], "judge": judge, "at": at}
    rows = connection.execute(_NOW, {"run": run_id, "step": steps[0]}).fetchall()
    said = {canary: (label, verdict) for canary, label, verdict, _ in rows if verdict is not None}
    right = np.sort(np.array([float(a == b) for a, b in said.values()]))
    low, high = mean_interval(right)
    same, before = _before(connection, where, said)
    asked = connection.execute(_ANEW, where | {"run": run_id}).fetchall()
    pairs = [(said[key][0], verdict, said[key][1]) for key, (verdict, _, _) in before.items()]
    first = min(before.values(), key=lambda row: row[2]) if before else None
    return CanaryAccount(
        tuple(steps),
        len(rows),
        len(rows) - len(said),
        int(right.sum()),
        low,
        high,
        sum(anew for *_, anew in rows),
        first[1] if first else None,
        same,
        moved(pairs) if pairs else None,
        restless(asked),
    )


def _before(
    connection: duckdb.DuckDBPyConnection, where: Mapping[str, Any], said: Container[Any]
) -> tuple[bool, dict[Any, tuple[Any, ...]]]:
    """(whether by the same judge, what was said before of each canary, in which run and when)."""
    for same in (True, False):
        found = connection.execute(_BEFORE, {**where, "same": same}).fetchall()
        before = {row[0]: row[1:] for row in found if row[0] in said}
        if before:
            return same, before
    return True, {}
