"""The tables and views of a store, as SQL made from the row models."""

from typing import Any, Final

from claimflow.stages.row import JSON, Row
from claimflow.stages.tables import python_type

_SQL: Final[dict[Any, str]] = {
    "str": "VARCHAR",
    "int": "BIGINT",
    "float": "DOUBLE",
    "bool": "BOOLEAN",
    "UUID": "UUID",
    "list[str]": "VARCHAR[]",
}


def table_sql(row: type[Row]) -> str:
    """The statement that makes the table of a kind of row."""
    columns = [f'"{name}" {_sql_type(row, name)}' for name in row.model_fields]
    columns = ["artifact_id UUID", "shard INTEGER", *columns]
    return f"CREATE TABLE stored.{row.table} ({', '.join(columns)})"


def view_sql(row: type[Row]) -> str:
    """The statement that makes its view: rows with the runs and steps that used them."""
    # By name: a column that a newer schema version added is the last one in its table.
    columns = ", ".join(f'rows."{name}"' for name in row.model_fields)
    return (
        f"CREATE OR REPLACE VIEW {row.table} AS SELECT run_id, step, {columns} "
        f"FROM stored.{row.table} AS rows JOIN audit.run_steps USING (artifact_id)"
    )


def latest_sql(row: type[Row]) -> str:
    """The statement that makes its view of the newest run that is done."""
    newest = "SELECT arg_max(run_id, started_at) FROM audit.runs WHERE status = 'done'"
    return (
        f"CREATE OR REPLACE VIEW latest.{row.table} AS SELECT * EXCLUDE (run_id) "
        f"FROM main.{row.table} WHERE run_id = ({newest})"
    )


UNSTABLE_SQL: Final = """
CREATE OR REPLACE VIEW unstable AS
SELECT run_id, step, sample_id, claim, against, passage, verdict, agreement, ballot
FROM verdicts
JOIN (SELECT DISTINCT run_id, claim_id, sample_id, claim FROM claims) USING (run_id, claim_id)
WHERE agreement < 1
"""
"""The statement that makes the view of verdicts whose votes differ."""

CASCADES_SQL: Final = """
CREATE OR REPLACE VIEW cascades AS
SELECT run_id, step, sum(verdicts)::BIGINT AS verdicts, sum(settled)::BIGINT AS settled,
       sum(referred)::BIGINT AS referred, sum(audited)::BIGINT AS audited,
       sum(failed)::BIGINT AS failed, sum(disagreed)::BIGINT AS disagreed,
       sum(relabelled)::BIGINT AS relabelled,
       sum(votes * (ceil(verdicts / per_call) - ceil((verdicts - settled) / per_call)))::BIGINT
           AS calls_saved
FROM (
  SELECT run_id, step, sample_id, passage,
         (settings ->> '$.claims_per_call')::INTEGER AS per_call,
         (settings ->> '$.votes')::INTEGER AS votes, count(*) AS verdicts,
         count(*) FILTER (judged_by = 'embedded') AS settled,
         count(*) FILTER (judged_by = 'judge') AS referred,
         count(*) FILTER (judged_by = 'audit' AND verdict IS NOT NULL) AS audited,
         count(*) FILTER (verdict IS NULL) AS failed,
         count(*) FILTER (judged_by = 'audit'
             AND (verdict = 'entailed') <> (model_verdict = 'entailed')) AS disagreed,
         count(*) FILTER (judged_by = 'audit' AND verdict <> model_verdict) AS relabelled
  FROM verdicts
  JOIN (SELECT DISTINCT run_id, claim_id, sample_id FROM claims) USING (run_id, claim_id)
  JOIN audit.run_steps USING (run_id, step)
  JOIN (SELECT artifact_id, settings FROM audit.artifacts) USING (artifact_id)
  WHERE judged_by IS NOT NULL
  GROUP BY ALL
)
GROUP BY run_id, step
"""
"""The statement that makes the view of cascades: who gave the verdicts of each, and how often
the judge disagrees where the embedded model was sure."""

REPEATED_CLAIMS: Final = r"""
SELECT run_id, step, sample_id, "of", claim_id, claim, first_value(claim) OVER same AS repeats
FROM (
  SELECT *, trim(regexp_replace(regexp_replace(
             replace(lower(nfc_normalize(claim)), '’', chr(39)),
             '["“”„«»*_`]|[,.;:!?…。！？]+([\s\pZ]|$)', ' ', 'g'), '[\s\pZ]+', ' ', 'g'))
         AS folded
  FROM claims WHERE claim IS NOT NULL
)
WINDOW same AS (PARTITION BY run_id, step, sample_id, "of", folded
                ORDER BY start NULLS LAST, claim)
QUALIFY row_number() OVER same > 1
"""
"""The claims that a text has more than once, but for case, white space, quotation marks and what
ends a phrase: each but the first of them, which it `repeats`."""

REPEATED_CLAIMS_SQL: Final = f"CREATE VIEW IF NOT EXISTS repeated_claims AS {REPEATED_CLAIMS}"
"""The statement that makes the view of them."""


def _sql_type(row: type[Row], name: str) -> str:
    if JSON in row.model_fields[name].metadata:
        return "JSON"
    kind = python_type(row, name)
    return _SQL[getattr(kind, "__name__", str(kind)) if kind != list[str] else "list[str]"]
