"""Two runs compared: numbers, samples, claims and causes."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

import duckdb
import polars as pl

from claimflow.flows.quality.claim_changes import (
    StepChange,
    claim_changes,
    step_changes,
    step_provenance,
    steps_behind,
)
from claimflow.flows.quality.json_values import json_text
from claimflow.flows.quality.metric_differences import (
    CONVERSATION,
    MetricDifference,
    changed_samples,
    changed_scores,
    conversation_units,
    metadata_values,
    metric_differences,
    paired_scores,
    select_metrics,
    unshared_metrics,
)
from claimflow.flows.store.results import metric_kinds
from claimflow.flows.store.runs import CURRENT_TAGS, PARTIAL
from claimflow.flows.store.store import Store


class RunFacts(NamedTuple):
    """One of the runs that are compared; `partial` as in `RunHead`."""

    run_id: str
    pipeline: str
    status: str
    started_at: datetime
    samples: int
    tags: list[str]
    partial: str | None


class Comparison(NamedTuple):
    """What changed from run `a` to run `b`.

    `samples`, `scores` and `claims` are the tables of `changed_samples`, `changed_scores` and
    `claim_changes`. `only` names the metrics and the steps that one of the runs lacks, as
    (only in a, only in b).
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
    store: Store,
    a: str,
    b: str,
    *,
    by: str | None = None,
    metrics: Iterable[str] = (),
    place: str = "--metric",
) -> Comparison:
    """Compare run `b` with run `a`, reading both in one read of the store.

    `by` names a metadata field whose samples form one unit, by default the conversation where
    samples have one; `metrics` are those to compare (all by default). Raises `InputError` for a
    field or a metric that neither run has; the faults of metrics are at `place`.
    """
    with store.reading() as connection:
        names = list(metrics)
        pairs = select_metrics(paired_scores(connection, a, b), names, place=place)
        units = metadata_values(connection, b, by) if by else conversation_units(connection, b)
        by = by or (None if units is None else CONVERSATION)
        of_a, of_b = (step_provenance(connection, run) for run in (a, b))
        steps = step_changes(of_a, of_b)
        samples = changed_samples(connection, a, b)
        claims = claim_changes(connection, a, b, steps, samples)
        if names:
            behind = steps_behind(connection, (a, b), pairs["metric"].unique().to_list())
            claims = claims.filter(pl.col("step").is_in(behind))
        facts = _facts(connection, a), _facts(connection, b)
        lower = metric_kinds(connection, a, b).lower
    differences = metric_differences(pairs, units, lower=lower)
    unshared = (
        [step for step in of_a if step not in of_b],
        [step for step in of_b if step not in of_a],
    )
    only = {"metrics": unshared_metrics(pairs), "steps": unshared}
    scores = changed_scores(pairs)
    return Comparison(*facts, by, differences, steps, samples, scores, claims, only)


def _facts(connection: duckdb.DuckDBPyConnection, run: str) -> RunFacts:
    found: tuple[Any, ...] = connection.execute(
        f"""
        SELECT run_id, pipeline, status, started_at,
               (SELECT count(*) FROM samples WHERE run_id = $run),
               (SELECT coalesce(list(tag ORDER BY tag), [])
                FROM ({CURRENT_TAGS}) WHERE run_id = $run),
               {PARTIAL}
        FROM audit.runs WHERE run_id = $run
        """,
        {"run": run},
    ).fetchall()[0]
    return RunFacts(*found)


def as_json(comparison: Comparison) -> str:
    """The whole comparison as one JSON object, described in `flows/guides/compare.md`."""
    one = comparison
    document: dict[str, Any] = {
        "a": one.a,
        "b": one.b,
        "by": one.by,
        "metrics": [_metric(metric) for metric in one.metrics],
        "steps": [
            {
                "step": step.step,
                "kind": step.kind,
                "same": step.same,
                "causes": [*step.causes, *(["edited by hand"] if step.edits else [])],
                "settings": list(step.settings),
            }
            for step in one.steps
        ],
        "only_a": {kind: names[0] for kind, names in one.only.items()},
        "only_b": {kind: names[1] for kind, names in one.only.items()},
        "samples": one.samples.to_dicts(),
        "scores": one.scores.drop("metric")
        .rename({"name": "metric", "score_a": "a", "score_b": "b"})
        .select(
            *("metric", "sample_id", "a", "b", "difference"),
            *("status_a", "status_b", "reason_a", "reason_b"),
        )
        .to_dicts(),
        "causes": one.causes.to_dicts(),
        "claims": one.claims.to_dicts(),
    }
    return json_text(document)


def _metric(metric: MetricDifference) -> dict[str, Any]:
    found = metric.difference
    return {
        "metric": metric.metric,
        "lower_is_better": metric.lower_is_better,
        "a": metric.a,
        "b": metric.b,
        "paired": found.samples if found else 0,
        "units": found.units if found else 0,
        "mean_a": metric.mean_a,
        "mean_b": metric.mean_b,
        "difference": found.mean if found else None,
        "low": found.low if found else None,
        "high": found.high if found else None,
        "p": found.p if found else None,
        "p_holm": metric.p_holm,
        "finding": metric.finding,
    }
