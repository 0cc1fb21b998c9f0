"""A run as a whole: what it found, what it took, and how it stands among those before it."""

from datetime import datetime
from typing import Any, Final, NamedTuple

import polars as pl

from flows.engine import accounts, results
from flows.engine.audit_claims.run import ClaimAudit, audit_claims
from flows.engine.gates import Outcome, outcomes_of
from flows.engine.store import Store, read_table
from flows.engine.tags import CURRENT

_PAST: Final = 20

_AUDITED: Final = 500
"""Samples whose claims are looked at: two seconds of work."""


class RunHead(NamedTuple):
    """A run on record; times are UTC, `ended_at` is None where nobody noted its end."""

    run_id: str
    pipeline: str
    status: str
    reason: str | None
    started_at: datetime
    ended_at: datetime | None
    tags: list[str]


class PastMean(NamedTuple):
    """The mean of a metric in a run, with its 95 % interval, where there is one."""

    run_id: str
    started_at: datetime
    mean: float | None
    low: float | None
    high: float | None


class Overview(NamedTuple):
    """All that is said of a run as a whole.

    `steps`, `summaries`, `failures` and `calls` are tables as `results.run_steps`,
    `results.summaries`, `accounts.failures` and `accounts.calls_made` give them. `past` has the
    means over all samples by step of the scores and metric, of the newest runs of the pipeline
    that are done, up to this one, the oldest first.
    """

    head: RunHead
    samples: int
    steps: pl.DataFrame
    summaries: pl.DataFrame
    gates: list[Outcome]
    failures: pl.DataFrame
    calls: pl.DataFrame
    past: dict[tuple[str, str], list[PastMean]]
    claims: ClaimAudit


def overview(store: Store, run_id: str) -> Overview:
    """What a report says of a run as a whole; the run is one on record."""
    steps = results.run_steps(store, run_id)
    return Overview(
        _head(store, run_id),
        int(steps.filter(pl.col("step") == "samples")["row_count"].sum()),
        steps,
        results.summaries(store, run_id),
        outcomes_of(store, run_id),
        accounts.failures(store, run_id),
        accounts.calls_made(store, run_id),
        _past(store, run_id),
        audit_claims(store, run_id, examples=3, samples=_AUDITED),
    )


def scored_values(store: Store, run_id: str, step: str, metric: str) -> list[float]:
    """The scores of a metric in a run, in no order."""
    with store.reading() as connection:
        table = read_table(
            connection,
            "SELECT score FROM scores WHERE run_id = $run AND step = $step AND metric = $metric "
            "AND status = 'scored'",
            run=run_id,
            step=step,
            metric=metric,
        )
    return table["score"].to_list()


def _head(store: Store, run_id: str) -> RunHead:
    with store.reading() as connection:
        found: tuple[Any, ...] = connection.execute(
            f"""
            SELECT run_id, pipeline, status, reason, started_at, ended_at,
                   (SELECT coalesce(list(tag ORDER BY tag), []) FROM ({CURRENT})
                    WHERE run_id = $run)
            FROM audit.runs WHERE run_id = $run
            """,
            {"run": run_id},
        ).fetchall()[0]
    return RunHead(*found)


def _past(store: Store, run_id: str) -> dict[tuple[str, str], list[PastMean]]:
    with store.reading() as connection:
        rows = connection.execute(
            """
            WITH this AS (FROM audit.runs WHERE run_id = $run),
                 past AS (SELECT run_id, started_at FROM audit.runs
                          WHERE pipeline = (SELECT pipeline FROM this)
                            AND started_at <= (SELECT started_at FROM this)
                            AND (status = 'done' OR run_id = $run)
                          ORDER BY started_at DESC LIMIT $count)
            SELECT scores, metric, run_id, started_at, mean, low, high
            FROM summaries JOIN past USING (run_id) WHERE slice_field IS NULL
            ORDER BY started_at
            """,
            {"run": run_id, "count": _PAST},
        ).fetchall()
    found: dict[tuple[str, str], list[PastMean]] = {}
    for scores, metric, *mean in rows:
        found.setdefault((scores, metric), []).append(PastMean(*mean))
    return found
