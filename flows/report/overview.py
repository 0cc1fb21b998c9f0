"""The overview of a run: head, metrics, history."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, NamedTuple

import polars as pl

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.pipeline.gates import gate_name_faults
from claimflow.flows.quality.cascades import CascadeResult, cascade_results
from claimflow.flows.quality.claim_audit import ClaimAudit, audit_claims
from claimflow.flows.quality.gates import Outcome, recorded_outcomes
from claimflow.flows.store import results
from claimflow.flows.store import results as accounts
from claimflow.flows.store.runs import CURRENT_TAGS
from claimflow.flows.store.store import Store, read_table

# What a run on record is, before anything that it found.


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
       (SELECT coalesce(list(tag ORDER BY tag), []) FROM ({CURRENT_TAGS}) WHERE run_id = $run),
       (SELECT coalesce(sum(failures), 0)::BIGINT FROM audit.run_steps
        JOIN (SELECT artifact_id, failures FROM audit.artifacts) USING (artifact_id)
        WHERE run_id = $run)
FROM audit.runs WHERE run_id = $run
"""


# The metrics of a run: by the names that people give them, and their scores.


class StepMetric(NamedTuple):
    """A metric and the step whose scores are meant."""

    step: str
    metric: str


def named_metrics(
    store: Store, run_id: str, names: Iterable[str], *, place: str
) -> list[StepMetric]:
    """The metrics that `names` mean, each `metric`, or `step.metric` where several steps make it.

    Raises `InputError`, whose faults are at `place`, for names of which the run has no scores.
    """
    makers: dict[str, list[str]] = {}
    with store.reading() as connection:
        query = "SELECT DISTINCT metric, step FROM scores WHERE run_id = $run ORDER BY ALL"
        for metric, step in read_table(connection, query, run=run_id).iter_rows():
            makers.setdefault(metric, []).append(step)
    wanted = list(names)
    faults = [Fault(place, what, hint) for _, what, hint in gate_name_faults(wanted, makers)]
    if faults:
        raise InputError(faults)
    led = (name.rpartition(".") for name in wanted)
    return [StepMetric(step or makers[metric][0], metric) for step, _, metric in led]


def scored_values(store: Store, run_id: str, of: StepMetric) -> list[float]:
    """The scores of a metric in a run, the lowest first."""
    with store.reading() as connection:
        table = read_table(
            connection,
            "SELECT score FROM scores WHERE run_id = $run AND step = $step AND metric = $metric "
            "AND status = 'scored' ORDER BY score",
            run=run_id,
            step=of.step,
            metric=of.metric,
        )
    return table["score"].to_list()


# How the means of a run stand among those of the runs before it.


_RUNS: Final = 20


class PastMean(NamedTuple):
    """The mean of a metric in a run, with its 95 % interval, where there is one."""

    run_id: str
    started_at: datetime
    mean: float | None
    low: float | None
    high: float | None


def past_means(store: Store, run_id: str) -> dict[StepMetric, list[PastMean]]:
    """The means over all samples in the newest 20 runs of the pipeline, up to this one.

    The oldest comes first. Of the runs before it those count that are done.
    """
    with store.reading() as connection:
        rows = connection.execute(_PAST, {"run": run_id, "count": _RUNS}).fetchall()
    found: dict[StepMetric, list[PastMean]] = {}
    for step, metric, *mean in rows:
        found.setdefault(StepMetric(step, metric), []).append(PastMean(*mean))
    return found


_PAST: Final = """
WITH this AS (FROM audit.runs WHERE run_id = $run),
     past AS (SELECT run_id, started_at FROM audit.runs
              WHERE pipeline = (SELECT pipeline FROM this)
                AND started_at <= (SELECT started_at FROM this)
                AND (status = 'done' OR run_id = $run)
              ORDER BY started_at DESC, run_id DESC LIMIT $count)
SELECT scores, metric, run_id, started_at, mean, low, high
FROM summaries JOIN past USING (run_id) WHERE slice_field IS NULL
ORDER BY started_at, run_id, scores, metric
"""


# A run as a whole: what it found, what it took, and how it stands among those before it.


SAMPLES: Final = 1_000
"""How many samples a report has where nobody says otherwise."""

_AUDITED: Final = 500
"""Samples whose claims are looked at: two seconds of work."""


class Overview(NamedTuple):
    """All that is said of a run as a whole, and what `past_means` has of those before it.

    `steps`, `summaries`, `failures` and `calls` are tables as `results.run_steps`,
    `results.summaries`, `accounts.failures` and `accounts.calls_made` give them, `votes` two
    numbers as `accounts.votes` does.
    """

    head: RunHead
    steps: pl.DataFrame
    summaries: pl.DataFrame
    gates: list[Outcome]
    failures: pl.DataFrame
    votes: tuple[int, int]
    cascades: list[CascadeResult]
    calls: pl.DataFrame
    past: dict[StepMetric, list[PastMean]]
    claims: ClaimAudit


def overview(store: Store, run_id: str) -> Overview:
    """What a report says of a run as a whole; the run is one on record."""
    return Overview(
        run_head(store, run_id),
        results.run_steps(store, run_id),
        results.summaries(store, run_id),
        recorded_outcomes(store, run_id),
        accounts.failures(store, run_id),
        accounts.votes(store, run_id),
        cascade_results(store, run_id),
        accounts.calls_made(store, run_id),
        past_means(store, run_id),
        audited_claims(store, run_id),
    )


def audited_claims(store: Store, run_id: str) -> ClaimAudit:
    """What is wrong with the claims of up to 500 samples, with three examples of each."""
    return audit_claims(store, run_id, examples=3, samples=_AUDITED)
