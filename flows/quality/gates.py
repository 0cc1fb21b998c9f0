"""Gates on a run: every rule passes, fails or is inconclusive by a 95 % interval, or is skipped."""

from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple

import duckdb
import polars as pl

from claimflow.flows.errors import nearest
from claimflow.flows.pipeline.gates import CANARY_AGREEMENT, Gate
from claimflow.flows.quality.canaries import canary_results
from claimflow.flows.quality.metric_differences import (
    cluster_names,
    conversation_units,
    metric_differences,
)
from claimflow.flows.quality.paired_statistics import ROUNDING
from claimflow.flows.runner.canaries import canary_scores
from claimflow.flows.store.arrow import insert, read_table
from claimflow.flows.store.results import metric_kinds
from claimflow.flows.store.runs import CURRENT_TAGS, PARTIAL, PREVIOUS, run_meant
from claimflow.flows.store.store import Store
from claimflow.stages.scores.formulas import clustered_mean_interval, mean_interval

Verdict = Literal["pass", "fail", "inconclusive", "skipped"]


class Outcome(NamedTuple):
    """The outcome of one rule of a gate; a row of `audit.gates`.

    `value`, `low` and `high` are the mean and its 95 % interval, or those of the difference to the
    run `baseline` (this run less the baseline); `line` is the threshold.
    """

    metric: str
    rule: str
    baseline: str | None
    value: float | None
    low: float | None
    high: float | None
    line: float
    outcome: Verdict
    reason: str


_COLUMNS: Final = {
    name: pl.Float64 if name in ("value", "low", "high", "line") else pl.String
    for name in Outcome._fields
}


class _Estimate(NamedTuple):
    """A number with its interval, and how many samples it is of; or why it is undefined."""

    reason: str
    value: float | None = None
    low: float | None = None
    high: float | None = None


def evaluate_gates(
    store: Store, run_id: str, gates: Mapping[str, Gate], *, partial: bool = False
) -> list[Outcome]:
    """Evaluate gates on a run and record the outcomes, replacing earlier ones.

    In a run of some samples every gate is skipped, in a run of some steps those of metrics that it
    lacks, unless `partial` asks for them.

    An interval entirely on the right side of the threshold passes, one entirely on the wrong
    side fails; one that contains the threshold is inconclusive, as is what cannot be computed.
    The intervals are two-sided ones of 95 %: a run whose true mean is at the threshold fails,
    or passes, about once in 40 times each.
    """
    if not gates:
        return []
    outcomes = gate_outcomes(store, run_id, gates)
    with store.writing() as connection:
        if not partial:
            outcomes = _skip_unrepresentative(connection, run_id, outcomes)
        connection.execute("DELETE FROM audit.gates WHERE run_id = $run", {"run": run_id})
        insert(connection, "audit.gates", pl.DataFrame(outcomes, _COLUMNS), run_id=run_id)
    return outcomes


def gate_outcomes(store: Store, run_id: str, gates: Mapping[str, Gate]) -> list[Outcome]:
    """The outcomes of gates on a run; records nothing."""
    with store.reading() as connection:
        return [
            outcome
            for name, gate in gates.items()
            for outcome in _outcomes(connection, run_id, name, gate)
        ]


def _skip_unrepresentative(
    connection: duckdb.DuckDBPyConnection, run_id: str, outcomes: list[Outcome]
) -> list[Outcome]:
    """The outcomes, with those skipped that a partial run cannot decide."""
    query = (
        f"SELECT {PARTIAL}, sample_count < samples_available FROM audit.runs WHERE run_id = $run"
    )
    [(missing, some_samples)] = connection.execute(query, {"run": run_id}).fetchall()
    if missing is None:
        return outcomes
    skipped: Verdict = "skipped"
    return [
        one._replace(outcome=skipped, reason=f"not checked: {missing}")
        if some_samples or one.value is None
        else one
        for one in outcomes
    ]


def recorded_outcomes(store: Store, run_id: str) -> list[Outcome]:
    """The recorded outcomes of a run, in the order of its gates."""
    names = ", ".join(_COLUMNS)
    with store.reading() as connection:
        query = f"SELECT {names} FROM audit.gates WHERE run_id = $run ORDER BY rowid"
        return [Outcome(*row) for row in read_table(connection, query, run=run_id).rows()]


def _outcomes(
    connection: duckdb.DuckDBPyConnection, run_id: str, name: str, gate: Gate
) -> Iterator[Outcome]:
    step, _, metric = name.rpartition(".")
    scores = _scores(connection, run_id, metric, step)
    # Canaries are no samples.
    units = None if metric == CANARY_AGREEMENT else conversation_units(connection, run_id)
    if gate.steady:
        yield _steady_outcome(connection, run_id, name, step)
    for side, threshold in (("min", gate.min), ("max", gate.max)):
        if threshold is not None:
            found = _mean(scores, units)
            rule = f"{side} {threshold:g}"
            yield _outcome(name, rule, None, found, threshold, above=side == "min")
    if gate.no_worse_than is not None and gate.by is not None:
        baseline = named = run_meant(connection, gate.no_worse_than, before=run_id)
        # Canaries are judged anew where all tables are the same.
        if gate.no_worse_than == PREVIOUS and metric != CANARY_AGREEMENT:
            steps = scores["step"].unique().to_list()
            rows = connection.execute(_OTHER_SCORES, {"run": run_id, "steps": steps}).fetchall()
            baseline = rows[0][0] if rows else baseline
        found = _difference(connection, scores, units, metric, baseline, gate.no_worse_than)
        if baseline != named:
            found = found._replace(reason=f"{found.reason}; run {named} has the same scores")
        lower = metric in metric_kinds(connection, run_id).lower
        # 0.0 - by is never -0.0.
        threshold = gate.by if lower else 0.0 - gate.by
        rule = f"no worse than {gate.no_worse_than} by {gate.by:g}"
        yield _outcome(name, rule, baseline, found, threshold, above=not lower)


# A run that is repeated would pass beside itself, however bad it is.
_OTHER_SCORES: Final = """
WITH this AS (SELECT pipeline, started_at FROM audit.runs WHERE run_id = $run),
     made AS (SELECT run_id, list(artifact_id ORDER BY step) AS tables FROM audit.run_steps
              WHERE list_contains($steps, step) GROUP BY run_id)
SELECT run_id FROM audit.whole_runs LEFT JOIN made USING (run_id)
WHERE pipeline = (SELECT pipeline FROM this) AND started_at < (SELECT started_at FROM this)
      AND tables IS DISTINCT FROM (SELECT tables FROM made WHERE run_id = $run)
ORDER BY started_at DESC LIMIT 1
"""
"""The newest whole run before a run in which some steps have other tables."""


def _outcome(
    name: str, rule: str, baseline: str | None, found: _Estimate, threshold: float, *, above: bool
) -> Outcome:
    """Compare an interval with a threshold, which itself counts as the right side."""
    reason, value, low, high = found
    outcome: Verdict = "inconclusive"
    if low is not None and high is not None:
        near, far = (
            (low - threshold, high - threshold) if above else (threshold - high, threshold - low)
        )
        if near >= -ROUNDING:
            outcome = "pass"
        elif far < -ROUNDING:
            outcome = "fail"
        else:
            reason = f"the limit is within the interval; {reason}"
    return Outcome(name, rule, baseline, value, low, high, threshold, outcome, reason)


def _steady_outcome(
    connection: duckdb.DuckDBPyConnection, run_id: str, name: str, step: str
) -> Outcome:
    """Fails where the judge of a step, or the only judge, has drifted on the canaries.

    `value` is the agreement with the labels now, `line` that in the baseline, on the canaries
    judged in both.
    """
    results = canary_results(connection, run_id)
    found = [one for one in results if step in ("", *one.steps)]
    if not found or found[0].moved is None:
        reason = "the canaries have no earlier verdicts"
        return Outcome(name, "steady", None, None, None, None, 0.0, "inconclusive", reason)
    result, moved = found[0], found[0].moved
    reason = f"{moved.both:,} of {result.canaries:,} canaries judged in both"
    outcome: Verdict = "pass"
    if result.drifts:
        outcome, reason = "fail", f"more than chance; {reason}"
    now, before = moved.are_right / moved.both, moved.were_right / moved.both
    return Outcome(name, "steady", result.since, now, None, None, before, outcome, reason)


def _mean(scores: pl.DataFrame, units: Mapping[str, str | None] | None) -> _Estimate:
    """The mean of the scored samples with the interval that summaries have."""
    scored = scores.filter(pl.col("status") == "scored").sort("score")
    values, clusters = scored["score"], cluster_names(scored["sample_id"], units)
    reason = f"{len(values):,} of {scores.height:,} samples scored"
    if values.is_empty():
        return _Estimate(reason if scores.height else "the run has no such scores")
    found = values.to_numpy()
    mean = float(found.mean())
    low, high = clustered_mean_interval(found, clusters) if clusters else mean_interval(found)
    return _Estimate(reason, mean, low, high)


def _difference(
    connection: duckdb.DuckDBPyConnection,
    scores: pl.DataFrame,
    units: Mapping[str, str | None] | None,
    metric: str,
    baseline: str | None,
    name: str,
) -> _Estimate:
    """The paired difference to the baseline of that name, as `claimflow diff` gives it."""
    if baseline is None:
        if name == PREVIOUS:
            return _Estimate("no whole run of the same pipeline is older")
        near = nearest(name, read_table(connection, CURRENT_TAGS)["tag"])
        hint = f"did you mean {near!r}?" if near else f"name one by claimflow tag RUN {name}"
        return _Estimate(f"there is no run {name!r}: {hint}")
    if scores.is_empty():
        return _Estimate("the run has no such scores")
    old = _scores(connection, baseline, metric, "")
    if old["step"].n_unique() > 1:
        old = old.filter(pl.col("step").is_in(scores["step"].implode()))
    if old.is_empty():
        return _Estimate(f"run {baseline} has no such scores")
    of_a, of_b = (
        table.select("sample_id", pl.col("status", "score").name.suffix(side))
        for table, side in ((old, "_a"), (scores, "_b"))
    )
    pairs = of_a.join(of_b, on="sample_id", how="full", coalesce=True)
    pairs = pairs.with_columns(name=pl.lit(metric), metric=pl.lit(metric))
    [found] = metric_differences(pairs, units)
    if found.difference is None:
        return _Estimate(f"no sample is scored here and in run {baseline}")
    paired = found.difference
    reason = f"{paired.samples:,} of {scores.height:,} samples scored in both"
    query = f"SELECT {PARTIAL} FROM audit.runs WHERE run_id = $run"
    [(missing,)] = connection.execute(query, {"run": baseline}).fetchall()
    if missing is not None:
        reason += f"; run {baseline} has {missing}"
    return _Estimate(reason, paired.mean, paired.low, paired.high)


def _scores(
    connection: duckdb.DuckDBPyConnection, run_id: str, metric: str, step: str
) -> pl.DataFrame:
    """The scores of a metric in a run: step, sample_id, status, score; of one step if named.

    Without a step they are those of the step with the name of the metric, if there is one.
    """
    if metric == CANARY_AGREEMENT:
        return canary_scores(connection, run_id, step)
    found = read_table(
        connection,
        """
        SELECT step, sample_id, status, score FROM scores
        WHERE run_id = $run AND metric = $metric AND $step IN ('', step)
        """,
        run=run_id,
        metric=metric,
        step=step,
    )
    own = found.filter(step=metric)
    return found if step or own.is_empty() else own
