"""Canary results: agreement with labels, and drift of a judge between runs."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import duckdb
import numpy as np

from claimflow.flows.quality.distributions import sign_test_p
from claimflow.flows.store.schema import has_table
from claimflow.stages.scores.formulas import mean_interval

SIGNIFICANCE_LEVEL: Final = 0.01
"""The false alarm rate of each of the two tests."""

# The fields of these classes are keys of JSON documents.


class AgreementChange(NamedTuple):
    """Verdicts of one judge on the same canaries, before and now.

    Of `both` canaries with a verdict each time, `were_right` and `are_right` agreed with their
    label; `lost` agreed only before, `gained` only now, and `flipped` have different verdicts.
    `p` is the p-value of McNemar's test of `lost` against `gained`.
    """

    both: int
    were_right: int
    are_right: int
    lost: int
    gained: int
    flipped: int
    p: float

    @property
    def significant(self) -> bool:
        """Whether agreement with the labels has changed by more than chance."""
        return self.p < SIGNIFICANCE_LEVEL


class Instability(NamedTuple):
    """How often a judge that was asked again deviated from its most frequent verdict.

    Of the `of` canaries asked again in this run that had been asked at least twice before,
    `unusual` got another verdict than their most frequent one; `expected` is that number under
    the permutation test, `p` its p-value.
    """

    unusual: int
    of: int
    expected: float
    p: float

    @property
    def significant(self) -> bool:
        """Whether the judge deviates more often than in earlier runs."""
        return self.p < SIGNIFICANCE_LEVEL


class CanaryResult(NamedTuple):
    """The verdicts of one judge of a run, that of `steps`, on the canaries.

    Of `canaries`, `failed` have no verdict, and the verdict of `agreed` equals the label; `low`
    and `high` bound the 95 % interval of that share, None below two verdicts. `anew` counts the
    canaries asked in this run. `moved` compares with the run `since`; both are None without an
    earlier run. `same` says whether judge, prompt and settings were the same then.
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
    moved: AgreementChange | None
    restless: Instability

    @property
    def judged(self) -> int:
        """How many canaries have a verdict."""
        return self.canaries - self.failed

    @property
    def drifts(self) -> bool:
        """Whether the judge has changed by more than chance, by either test."""
        moved = self.moved is not None and self.moved.significant
        return moved or self.restless.significant


def agreement_change(pairs: list[tuple[str, str, str]]) -> AgreementChange:
    """Compare the (label, verdict before, verdict now) of each canary.

    By the exact two-sided test of McNemar (1947), on the canaries that agreed with their label in
    one of the two runs only.
    """
    were = sum(before == label for label, before, _ in pairs)
    are = sum(now == label for label, _, now in pairs)
    lost = sum(before == label != now for label, before, now in pairs)
    gained = sum(now == label != before for label, before, now in pairs)
    flipped = sum(before != now for _, before, now in pairs)
    return AgreementChange(len(pairs), were, are, lost, gained, flipped, sign_test_p(lost, gained))


def instability(asked: Iterable[tuple[str, Sequence[str]]]) -> Instability:
    """Test the (verdict now, verdicts before) of each canary that was asked again.

    An exact one-sided permutation test with each canary as a stratum: under the null hypothesis
    any of the verdicts on a canary may be the one given now. So a canary on which the judge always
    wavers adds no evidence, however often it was asked.
    """
    chances, unusual = [], 0
    for now, before in asked:
        if len(before) < 2:
            continue
        counts = Counter([now, *before])
        most = max(counts.values())
        chances.append(sum(n for n in counts.values() if n < most) / counts.total())
        unusual += counts[now] < most
    return Instability(unusual, len(chances), sum(chances), _upper_tail(unusual, chances))


def _upper_tail(least: int, chances: Sequence[float]) -> float:
    """P(at least `least` of independent events happen): Poisson binomial distribution."""
    happen = np.ones(1)
    for chance in chances:
        happen = np.convolve(happen, [1 - chance, chance])
    return min(1.0, float(happen[least:].sum()))


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

# Of the same judge the first verdict, so that a slow drift adds up; of another judge, prompt or
# settings the last.
_BEFORE: Final = """
SELECT canary, arg_min(verdict, nearness), arg_min(run_id, nearness), min(judged_at)
FROM (
  SELECT *, CASE WHEN $same THEN epoch_us(judged_at) ELSE -epoch_us(judged_at) END AS nearness
  FROM audit.canaries
  -- The rows of a pruned run stay.
  ANTI JOIN (SELECT run_id FROM audit.runs WHERE selection IS NOT NULL) USING (run_id)
  WHERE pipeline = $pipeline AND step = $step AND judged_at < $at AND status = 'judged'
        AND (judge = $judge) = $same
) GROUP BY canary ORDER BY canary
"""

# A run that did not ask has the earlier verdicts, with the time at which they were asked.
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


def canary_results(connection: duckdb.DuckDBPyConnection, run_id: str) -> list[CanaryResult]:
    """The results of the judges of a run on its canaries, in the order of their steps."""
    if not has_table(connection, "canaries"):
        return []
    judges = connection.execute(_JUDGES, {"run": run_id}).fetchall()
    return [_result(connection, run_id, *row) for row in judges]


def _result(
    connection: duckdb.DuckDBPyConnection,
    run_id: str,
    steps: list[str],
    judge: object,
    pipeline: str,
    at: object,
) -> CanaryResult:
    where = {"pipeline": pipeline, "step": steps[0], "judge": judge, "at": at}
    rows = connection.execute(_NOW, {"run": run_id, "step": steps[0]}).fetchall()
    judged = {canary: (label, verdict) for canary, label, verdict, _ in rows if verdict is not None}
    right = np.sort(np.array([float(label == verdict) for label, verdict in judged.values()]))
    low, high = mean_interval(right)
    same, before = _verdicts_before(connection, where, judged)
    pairs = [(judged[canary][0], old, judged[canary][1]) for canary, (old, _, _) in before.items()]
    first = min(before.values(), key=lambda row: row[2]) if before else None
    return CanaryResult(
        steps=tuple(steps),
        canaries=len(rows),
        failed=len(rows) - len(judged),
        agreed=int(right.sum()),
        low=low,
        high=high,
        anew=sum(anew for *_, anew in rows),
        since=first[1] if first else None,
        same=same,
        moved=agreement_change(pairs) if pairs else None,
        restless=instability(connection.execute(_ANEW, where | {"run": run_id}).fetchall()),
    )


def _verdicts_before(
    connection: duckdb.DuckDBPyConnection, where: Mapping[str, Any], judged: Container[Any]
) -> tuple[bool, dict[Any, tuple[Any, ...]]]:
    """(whether by the same judge, the earlier verdict, its run and time by canary)."""
    for same in (True, False):
        found = connection.execute(_BEFORE, {**where, "same": same}).fetchall()
        before = {row[0]: row[1:] for row in found if row[0] in judged}
        if before:
            return same, before
    return True, {}
