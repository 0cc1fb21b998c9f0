"""All that is to be said of two runs, read from the store in one window."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

import duckdb
import polars as pl

from claimflow.flows.engine.compare.causes import StepChange, step_changes, steps_in_one_run
from claimflow.flows.engine.compare.claims import claim_changes
from claimflow.flows.engine.compare.metrics import (
    MetricDifference,
    chosen,
    in_one_run,
    metric_differences,
)
from claimflow.flows.engine.compare.pairs import (
    Runs,
    moved_scores,
    other_samples,
    paired_scores,
    unit_of_samples,
)
from claimflow.flows.engine.storage.store import Store
from claimflow.flows.engine.storage.tags import CURRENT


class RunFacts(NamedTuple):
    """A run, as the head of a comparison names it."""

    run_id: str
    pipeline: str
    status: str
    started_at: datetime
    samples: int
    tags: list[str]


class Comparison(NamedTuple):
    """What changed from run `a` to run `b`.

    `samples`, `scores` and `claims` are tables of what is not the same in both, as
    `other_samples`, `moved_scores` and `claim_changes` give them. `only` names the metrics and
    the steps that one of the runs has and the other lacks.
    """

    a: RunFacts
    b: RunFacts
    by: str | None
    metrics: list[MetricDifference]
    steps: list[StepChange]
    samples: pl.DataFrame
    scores: pl.DataFrame
    claims: pl.DataFrame
    only: dict[str, tuple[list[str], list[str]]]

    @property
    def causes(self) -> pl.DataFrame:
        """How many claims changed in which way and why: change, cause, count."""
        counts = self.claims.group_by("change", "cause", maintain_order=True).agg(count=pl.len())
        first = pl.col("change").rle_id()
        return counts.sort(first, pl.col("count"), descending=[False, True], maintain_order=True)


def compare(
    store: Store, runs: Runs, *, by: str | None = None, metrics: Iterable[str] = ()
) -> Comparison:
    """Run `b` held against run `a`, both in `store`.

    `by` names the metadata field whose samples count as one unit, `metrics` those to compare
    (all by default). Raises `InputError` for a field or a metric that neither run has.
    """
    with store.reading() as connection:
        pairs = chosen(paired_scores(connection, runs), metrics)
        units = unit_of_samples(connection, runs.b, by) if by else None
        steps = step_changes(connection, runs)
        samples = other_samples(connection, runs)
        claims = claim_changes(connection, runs, steps, samples)
        a, b = (_facts(connection, run) for run in runs)
        only = {"metrics": in_one_run(pairs), "steps": steps_in_one_run(connection, runs)}
    differences = metric_differences(pairs, units)
    return Comparison(a, b, by, differences, steps, samples, moved_scores(pairs), claims, only)


def _facts(connection: duckdb.DuckDBPyConnection, run: str) -> RunFacts:
    found: tuple[Any, ...] = connection.execute(
        f"""
        SELECT run_id, pipeline, status, started_at,
               (SELECT count(*) FROM samples WHERE run_id = $run),
               (SELECT coalesce(list(tag ORDER BY tag), []) FROM ({CURRENT}) WHERE run_id = $run)
        FROM audit.runs WHERE run_id = $run
        """,
        {"run": run},
    ).fetchall()[0]
    return RunFacts(*found)
