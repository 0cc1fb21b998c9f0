"""What judges said of canaries, on record."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import duckdb
import polars as pl

from claimflow.flows.engine.storage.store import Store, insert, read_table
from claimflow.flows.engine.storage.store_schema import has_table

_TABLE: Final = "audit.canaries"
_TYPES: Final = dict.fromkeys(("verdict", "reason", "call_id"), pl.String)

_LAST: Final = """
SELECT canary::VARCHAR, max(asked_at) FROM audit.canaries
WHERE pipeline = $pipeline AND judge = $judge::UUID AND status = 'judged' GROUP BY canary
"""

_LEFT_OFF: Final = """
SELECT started_at FROM audit.runs
WHERE pipeline = $pipeline AND started_at > $after AND status <> 'done'
ORDER BY started_at LIMIT 1
"""


def record(
    store: Store,
    rows: Sequence[Mapping[str, Any]],
    steps: Sequence[str],
    where: Mapping[str, Any],
) -> None:
    """Put what a judge said on record for each of the steps that have it."""
    frame = pl.DataFrame(rows, schema_overrides=_TYPES, infer_schema_length=None)
    with store.writing() as connection:
        for step in steps:
            insert(connection, _TABLE, frame, **where, step=step)


def last_asked(store: Store, pipeline: str, judge: str) -> dict[str, datetime]:
    """When that judge was last asked for each canary that it gave a verdict on."""
    if not store.path.is_file():
        return {}
    with store.reading() as connection:
        if not has_canaries(connection):
            return {}
        found = connection.execute(_LAST, {"pipeline": pipeline, "judge": judge}).fetchall()
    return dict(found)


def left_off(store: Store, pipeline: str, *, after: datetime) -> datetime | None:
    """When the first run of a pipeline after that moment began that is not done.

    What it was told is in the ledger, and on no record of canaries. None where there is none.
    """
    with store.reading() as connection:
        found = connection.execute(_LEFT_OFF, {"pipeline": pipeline, "after": after}).fetchall()
    return found[0][0] if found else None


def canary_scores(connection: duckdb.DuckDBPyConnection, run_id: str, step: str) -> pl.DataFrame:
    """Whether each verdict is its label, as scores: step, sample_id, status, score.

    Of all steps where `step` is blank.
    """
    if not has_canaries(connection):
        return pl.DataFrame(schema=_SCORES)
    return read_table(
        connection,
        """
        SELECT step, canary::VARCHAR AS sample_id,
               CASE status WHEN 'judged' THEN 'scored' ELSE 'failed' END AS status,
               CASE WHEN status = 'judged' THEN (verdict = label)::DOUBLE END AS score
        FROM audit.canaries WHERE run_id = $run AND $step IN ('', step)
        """,
        run=run_id,
        step=step,
    )


_SCORES: Final = {
    "step": pl.String,
    "sample_id": pl.String,
    "status": pl.String,
    "score": pl.Float64,
}


def has_canaries(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether there is a table for them: a store of an older claimflow has none."""
    return has_table(connection, "audit", "canaries")
