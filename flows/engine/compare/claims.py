"""Claim by claim: what became of it in the second run, and why."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

import duckdb
import polars as pl

from claimflow.flows.engine.compare.causes import StepChange
from claimflow.flows.engine.compare.pairs import Runs
from claimflow.flows.engine.storage.store import read_table

COLUMNS: Final = {
    "change": pl.String,
    "cause": pl.String,
    "step": pl.String,
    "sample_id": pl.String,
    "claim": pl.String,
    "against": pl.String,
    "passage": pl.Int64,
    "a": pl.String,
    "b": pl.String,
    "reason_a": pl.String,
    "reason_b": pl.String,
}

CHANGES: Final = (
    "verdict flipped",
    "newly failed",
    "no longer failed",
    "claim text changed",
)
"""The kinds of change, in the order in which they are told."""

_CLAIMS: Final = """
WITH a AS (FROM claims WHERE run_id = $a AND step = $step),
     b AS (FROM claims WHERE run_id = $b AND step = $step),
     failed AS (
         SELECT sample_id, any_value(reason) FILTER (side = 'a') AS reason_a,
                any_value(reason) FILTER (side = 'b') AS reason_b,
                any_value(coalesce(failure, 'failed')) AS failure,
                count_if(side = 'a') > 0 AS in_a, count_if(side = 'b') > 0 AS in_b
         FROM (SELECT *, 'a' AS side FROM a UNION ALL SELECT *, 'b' FROM b)
         WHERE status = 'failed' GROUP BY sample_id)
SELECT CASE WHEN in_b THEN 'newly failed' ELSE 'no longer failed' END AS change,
       NULL AS claim_id, sample_id, NULL AS claim, NULL AS of,
       CASE WHEN in_a THEN 'failed' ELSE 'made' END AS a,
       CASE WHEN in_b THEN 'failed' ELSE 'made' END AS b,
       reason_a, reason_b, failure
FROM failed WHERE in_a <> in_b
UNION ALL
SELECT 'claim text changed', claim_id::VARCHAR, sample_id, claim, of, claim, NULL, NULL, NULL, NULL
FROM a ANTI JOIN b USING (claim_id) ANTI JOIN failed USING (sample_id) WHERE status = 'made'
UNION ALL
SELECT 'claim text changed', claim_id::VARCHAR, sample_id, claim, of, NULL, claim, NULL, NULL, NULL
FROM b ANTI JOIN a USING (claim_id) ANTI JOIN failed USING (sample_id) WHERE status = 'made'
ORDER BY ALL
"""

_VERDICTS: Final = """
SELECT CASE WHEN b.status = 'failed' THEN 'newly failed'
            WHEN a.status = 'failed' THEN 'no longer failed' ELSE 'verdict flipped' END AS change,
       a.claim_id::VARCHAR AS claim_id, sample_id, claim, a.against, a.passage,
       coalesce(a.verdict, a.status) AS a, coalesce(b.verdict, b.status) AS b,
       a.reason AS reason_a, b.reason AS reason_b,
       CASE WHEN 'failed' IN (a.status, b.status)
            THEN coalesce(b.failure, a.failure, 'failed') END AS failure
FROM (FROM verdicts WHERE run_id = $a AND step = $step) a
JOIN (FROM verdicts WHERE run_id = $b AND step = $step) b
     ON a.claim_id = b.claim_id AND a.against = b.against
     AND a.passage IS NOT DISTINCT FROM b.passage
JOIN (SELECT claim_id, any_value(sample_id) AS sample_id, any_value(claim) AS claim
      FROM claims WHERE run_id = $b GROUP BY claim_id) c ON c.claim_id = a.claim_id
WHERE a.verdict IS DISTINCT FROM b.verdict ORDER BY ALL
"""


def claim_changes(
    connection: duckdb.DuckDBPyConnection,
    runs: Runs,
    steps: Iterable[StepChange],
    samples: pl.DataFrame,
) -> pl.DataFrame:
    """Every claim that was made, judged or lost otherwise, with the cause: `COLUMNS`.

    `samples` are those that are not the same in both runs. Those that only one run has are
    left out: all their claims are new, or gone. `a` and `b` are the verdicts, the claims
    where their text changed, or whether there are any. Failures are caused by their kind.
    """
    fields = dict(samples.select("sample_id", "fields").iter_rows())
    others = samples.filter(pl.col("state") != "changed")["sample_id"]
    tables = [
        table.with_columns(
            step=pl.lit(change.step),
            cause=pl.Series(list(_causes(connection, change, table, fields)), dtype=pl.String),
        )
        .filter(~pl.col("sample_id").is_in(others.implode()))
        .select(pl.col(name).cast(dtype) for name, dtype in COLUMNS.items())
        for change in steps
        if not change.same and (table := _rows(connection, runs, change)) is not None
    ]
    order = pl.Enum(CHANGES)
    return pl.concat([pl.DataFrame(schema=COLUMNS), *tables]).sort(
        pl.col("change").cast(order), "step", "sample_id", "claim", "passage", maintain_order=True
    )


def _rows(
    connection: duckdb.DuckDBPyConnection, runs: Runs, change: StepChange
) -> pl.DataFrame | None:
    values = {"a": runs.a, "b": runs.b, "step": change.step}
    if change.kind == "claims":
        none = {"against": pl.lit(None, pl.String), "passage": pl.lit(None, pl.Int64)}
        return read_table(connection, _CLAIMS, **values).with_columns(**none)
    return read_table(connection, _VERDICTS, **values) if change.kind == "verdicts" else None


def _causes(
    connection: duckdb.DuckDBPyConnection,
    change: StepChange,
    table: pl.DataFrame,
    fields: dict[str, list[str]],
) -> Iterator[str]:
    """The cause of each row: its failure, its sample, a person, what was asked, or chance."""
    edited = _edited(connection, change)
    asked = " and ".join(change.causes) or "chance"
    for row in table.iter_rows(named=True):
        if row["failure"]:
            yield row["failure"]
        elif _read_by(row) & set(fields.get(row["sample_id"], ())):
            yield "sample changed"
        elif edited & {row["sample_id"], row["claim_id"]}:
            yield "edited by hand"
        else:
            yield asked


def _read_by(row: dict[str, Any]) -> set[str]:
    """The fields of the sample that the row was made of."""
    if row["against"]:
        return {row["against"]}
    return {row["of"], f"{row['of']}_claims"}


def _edited(connection: duckdb.DuckDBPyConnection, change: StepChange) -> set[str]:
    """What was corrected by hand for one of the runs: samples, or claims whose verdict was."""
    rows = connection.execute(
        "SELECT kind, sample_id, rows FROM audit.edits "
        "WHERE step = $step AND list_contains($edits, edit_id::VARCHAR)",
        {"step": change.step, "edits": sorted(change.edits)},
    ).fetchall()
    return {
        name
        for kind, sample_id, verdicts in rows
        for name in (
            [sample_id] if kind == "claims" else [one["claim_id"] for one in json.loads(verdicts)]
        )
    }
