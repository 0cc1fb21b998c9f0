"""Gates evaluated: pass, fail or inconclusive."""

from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple

import duckdb
import polars as pl

from claimflow.flows.pipeline.gates import CANARY_AGREEMENT, Gate
from claimflow.flows.quality.canaries import steadiness
from claimflow.flows.quality.metric_differences import metric_differences
from claimflow.flows.quality.paired_statistics import ROUNDING
from claimflow.flows.runner.canaries import canary_scores
from claimflow.flows.store.runs import run_meant
from claimflow.flows.store.store import Store, insert, read_table
from claimflow.stages.registry import LOWER_IS_BETTER
from claimflow.stages.scores.formulas import mean_interval

Verdict = Literal["pass", "fail", "inconclusive"]


class Outcome(NamedTuple):
    """What became of one rule of a gate; a row of `audit.gates`.

    `value`, `low` and `high` are the mean and its 95 % interval, or those of the difference to
    `baseline`, the run less the baseline; `line` is what the interval was held against.
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


class _Found(NamedTuple):
    """A number with its interval, where there is one, and of how many samples it is."""

    value: float | None
    low: float | None
    high: float | None
    reason: str


_NOTHING: Final = _Found(None, None, None, "")


def judge_run(store: Store, run_id: str, gates: Mapping[str, Gate]) -> list[Outcome]:
    """Hold a run against gates and put the outcomes on record, in place of earlier ones.

    An interval wholly on the right side of the line passes, one wholly on the wrong side
    fails, one that the line cuts is inconclusive; so is whatever cannot be computed. The
    intervals are two-sided ones of 95 %: a run whose true mean is on the line fails, or
    passes, about once in 40 times each.
    """
    if not gates:
        return []
    outcomes = held(store, run_id, gates)
    with store.writing() as connection:
        connection.execute("DELETE FROM audit.gates WHERE run_id = $run", {"run": run_id})
        insert(connection, "audit.gates", pl.DataFrame(outcomes, _COLUMNS), run_id=run_id)
    return outcomes


def held(store: Store, run_id: str, gates: Mapping[str, Gate]) -> list[Outcome]:
    """What becomes of a run when it is held against gates; nothing is put on record."""
    with store.reading() as connection:
        return [
            outcome
            for name, gate in gates.items()
            for outcome in _outcomes(connection, run_id, name, gate)
        ]


def outcomes_of(store: Store, run_id: str) -> list[Outcome]:
    """The outcomes on record for a run, in the order of its gates."""
    names = ", ".join(_COLUMNS)
    with store.reading() as connection:
        query = f"SELECT {names} FROM audit.gates WHERE run_id = $run ORDER BY rowid"
        return [Outcome(*row) for row in read_table(connection, query, run=run_id).rows()]


_COLUMNS: Final = {
    name: pl.Float64 if name in ("value", "low", "high", "line") else pl.String
    for name in Outcome._fields
}


def _outcomes(
    connection: duckdb.DuckDBPyConnection, run_id: str, name: str, gate: Gate
) -> Iterator[Outcome]:
    step, _, metric = name.rpartition(".")
    scores = _scores(connection, run_id, metric, step)
    if gate.steady:
        yield Outcome(name, "steady", *steadiness(connection, run_id, step))
    for side, line in (("min", gate.min), ("max", gate.max)):
        if line is not None:
            found = _mean(scores)
            right = _side(found, line, above=side == "min")
            yield Outcome(
                name, f"{side} {line:g}", None, *found[:3], line, right, _why(found, right)
            )
    if gate.no_worse_than is not None and gate.by is not None:
        baseline = run_meant(connection, gate.no_worse_than, before=run_id)
        found = _difference(connection, scores, metric, baseline, gate.no_worse_than)
        lower = metric in LOWER_IS_BETTER
        line = gate.by if lower else 0.0 - gate.by
        right = _side(found, line, above=not lower)
        rule = f"no worse than {gate.no_worse_than} by {gate.by:g}"
        yield Outcome(name, rule, baseline, *found[:3], line, right, _why(found, right))


def _side(found: _Found, line: float, *, above: bool) -> Verdict:
    """On which side of the line an interval lies; on the line itself is the right side."""
    if found.low is None or found.high is None:
        return "inconclusive"
    low, high = (
        (found.low - line, found.high - line) if above else (line - found.high, line - found.low)
    )
    if low >= -ROUNDING:
        return "pass"
    return "fail" if high < -ROUNDING else "inconclusive"


def _why(found: _Found, outcome: Verdict) -> str:
    straddles = outcome == "inconclusive" and found.low is not None
    return f"the line lies within the interval; {found.reason}" if straddles else found.reason


def _mean(scores: pl.DataFrame) -> _Found:
    """The mean of the scored samples with the interval that the summaries have."""
    values = scores.filter(pl.col("status") == "scored")["score"].sort()
    reason = f"{len(values):,} of {scores.height:,} samples scored"
    if values.is_empty():
        return _NOTHING._replace(reason=reason if scores.height else "the run has no such scores")
    mean, (low, high) = float(values.to_numpy().mean()), mean_interval(values.to_numpy())
    return _Found(mean, low, high, reason)


def _difference(
    connection: duckdb.DuckDBPyConnection,
    scores: pl.DataFrame,
    metric: str,
    baseline: str | None,
    word: str,
) -> _Found:
    """The paired difference to the baseline, as `claimflow diff` gives it."""
    if baseline is None:
        hint = "" if word == "previous" else f": name one by claimflow tag RUN {word}"
        return _NOTHING._replace(reason=f"there is no run {word!r}{hint}")
    if scores.is_empty():
        return _NOTHING._replace(reason="the run has no such scores")
    theirs = _scores(connection, baseline, metric, "")
    if theirs["step"].n_unique() > 1:
        theirs = theirs.filter(pl.col("step").is_in(scores["step"].implode()))
    if theirs.is_empty():
        return _NOTHING._replace(reason=f"run {baseline} has no such scores")
    pairs = theirs.drop("step").join(
        scores.drop("step"), on="sample_id", how="full", coalesce=True, suffix="_b"
    )
    pairs = pairs.rename({"status": "status_a", "score": "score_a"}).with_columns(
        name=pl.lit(metric), metric=pl.lit(metric)
    )
    [found] = metric_differences(pairs)
    if found.difference is None:
        return _NOTHING._replace(reason=f"no sample is scored here and in run {baseline}")
    paired = found.difference
    reason = f"{paired.samples:,} of {scores.height:,} samples scored in both"
    return _Found(paired.mean, paired.low, paired.high, reason)


def _scores(
    connection: duckdb.DuckDBPyConnection, run_id: str, metric: str, step: str
) -> pl.DataFrame:
    """The scores of a metric in a run: step, sample_id, status, score; of one step if named."""
    if metric == CANARY_AGREEMENT:
        return canary_scores(connection, run_id, step)
    return read_table(
        connection,
        """
        SELECT step, sample_id, status, score FROM scores
        WHERE run_id = $run AND metric = $metric AND $step IN ('', step)
        """,
        run=run_id,
        metric=metric,
        step=step,
    )
