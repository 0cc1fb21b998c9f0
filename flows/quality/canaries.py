"""Canary results: agreement with labels, and drift of a judge."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import duckdb
import numpy as np

from claimflow.flows.runner.canaries import has_canaries
from claimflow.flows.store.store import Store
from claimflow.stages.scores.formulas import mean_interval

# Whether a judge has moved by more than chance.


LEVEL: Final = 0.01
"""The chance of calling a judge moved that has not, of each of the two tests."""


class Moved(NamedTuple):
    """Verdicts of one judge on the same canaries, before and now.

    Of `both` that have a verdict twice `were_right` and `are_right` had their label; `lost` were
    right and are not, `gained` are right and were not, `flipped` are other ones at all. `p` is
    the chance of so uneven a `lost` and `gained` if the judge had not moved.
    """

    both: int
    were_right: int
    are_right: int
    lost: int
    gained: int
    flipped: int
    p: float

    @property
    def beyond_chance(self) -> bool:
        """Whether agreement with the labels is another one than before."""
        return self.p < LEVEL


class Restless(NamedTuple):
    """How often a judge that was asked anew did not say of a canary what it usually says.

    Of canaries asked anew in this run, `of` had been asked twice before or more often, and of
    those `unusual` got another verdict than their most frequent one; `expected` would have by
    what was said before. `p` is the chance of so many if this run were like any before it.
    """

    unusual: int
    of: int
    expected: float
    p: float

    @property
    def beyond_chance(self) -> bool:
        """Whether it says otherwise of more canaries than it used to."""
        return self.p < LEVEL


def moved(pairs: list[tuple[str, str, str]]) -> Moved:
    """Of (label, verdict before, verdict now) of each canary; the exact test of McNemar 1947.

    Two-sided, on the canaries that were right in one of the two alone.
    """
    were = sum(before == label for label, before, _ in pairs)
    are = sum(now == label for label, _, now in pairs)
    lost = sum(before == label != now for label, before, now in pairs)
    gained = sum(now == label != before for label, before, now in pairs)
    flipped = sum(before != now for _, before, now in pairs)
    return Moved(len(pairs), were, are, lost, gained, flipped, _mcnemar(lost, gained))


def restless(asked: Iterable[tuple[str, Sequence[str]]]) -> Restless:
    """Of (verdict now, verdicts before) of each canary that was asked anew.

    An exact permutation test, one-sided, with each canary a stratum of its own: had the judge
    not changed, any of the verdicts on a canary might have been the one given now. So a canary
    that is always in doubt counts for no more than its doubt, however often it was asked.
    """
    chances, unusual = [], 0
    for now, before in asked:
        if len(before) < 2:
            continue
        counts = Counter([now, *before])
        most = max(counts.values())
        chances.append(sum(n for n in counts.values() if n < most) / counts.total())
        unusual += counts[now] < most
    return Restless(unusual, len(chances), sum(chances), _at_least(unusual, chances))


def _at_least(least: int, chances: Sequence[float]) -> float:
    """The chance that so many of independent events happen, each with a chance of its own."""
    happen = np.ones(1)
    for chance in chances:
        happen = np.convolve(happen, [1 - chance, chance])
    return min(1.0, float(happen[least:].sum()))


def _mcnemar(lost: int, gained: int) -> float:
    if lost == gained:
        return 1.0
    # Takes a while to import, and most judges stay as they are.
    from scipy.stats import binomtest

    return float(binomtest(lost, lost + gained).pvalue)


# How the canaries of a run came out, beside the labels and what the judge said before.


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


# Whether a judge stays as it was, for a gate.


class Steadiness(NamedTuple):
    """The rest of an outcome of a gate: `value` is the agreement with the labels now, `line` that
    in the run `baseline`, on the canaries judged in both.
    """

    baseline: str | None
    value: float | None
    low: float | None
    high: float | None
    line: float
    outcome: Literal["pass", "fail", "inconclusive"]
    reason: str


def steadiness(connection: duckdb.DuckDBPyConnection, run_id: str, step: str) -> Steadiness:
    """Fails where the judge of a step, or the only judge, has moved by more than chance."""
    found = [one for one in canaries_in(connection, run_id) if step in ("", *one.steps)]
    if not found or found[0].moved is None:
        reason = "no judge said anything of the canaries before"
        return Steadiness(None, None, None, None, 0.0, "inconclusive", reason)
    one, moved = found[0], found[0].moved
    reason = f"{moved.both:,} of {one.canaries:,} canaries judged in both"
    if one.drifts:
        reason = f"more than chance; {reason}"
    now, before = moved.are_right / moved.both, moved.were_right / moved.both
    outcome: Literal["pass", "fail"] = "fail" if one.drifts else "pass"
    return Steadiness(one.since, now, None, None, before, outcome, reason)
