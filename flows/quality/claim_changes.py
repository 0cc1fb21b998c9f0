"""Claims, verdicts and checks of rubrics that changed between two runs, and why."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import duckdb
import polars as pl

from claimflow.flows.store.arrow import read_table

Cause = Literal["judge", "prompt", "settings", "version", "source", "stage"]
"""What differs in how two runs made the table of a step: the model or its parameters, the prompt
text, other settings, the version of the stage, the source of a stage of another package, or the
stage itself."""

EDITS: Final = "edits"
"""The stage of a table with corrections by hand applied to another table."""


class Provenance(NamedTuple):
    """How the table of a step was made; `edits` are the corrections applied to it."""

    artifact_id: str
    kind: str
    stage: str
    version: int
    settings: Mapping[str, Any]
    tools: Mapping[str, Any]
    edits: frozenset[str]
    inputs: Mapping[str, Any]
    source: str | None = None


class StepChange(NamedTuple):
    """A step of both runs.

    `same` says that both used one table. `causes` are what differs in how it was made, and
    `settings` names the settings that differ; both are empty where the same requests were made
    again. `edits` are the imports of corrections that apply in one of the runs only.
    """

    step: str
    kind: str
    same: bool
    causes: tuple[Cause, ...]
    settings: tuple[str, ...]
    edits: frozenset[str]


def step_changes(a: Mapping[str, Provenance], b: Mapping[str, Provenance]) -> list[StepChange]:
    """Every step that two runs have with the same kind of table, in the order of the second."""
    return [
        _change(step, a[step], provenance)
        for step, provenance in b.items()
        if step in a and a[step].kind == provenance.kind
    ]


def _change(step: str, a: Provenance, b: Provenance) -> StepChange:
    settings = _settings(a, b)
    causes = tuple(causes_between(a, b))
    same = a.artifact_id == b.artifact_id
    return StepChange(step, b.kind, same, causes, settings, a.edits ^ b.edits)


def _settings(a: Provenance, b: Provenance) -> tuple[str, ...]:
    names = sorted({*a.settings, *b.settings})
    return tuple(name for name in names if a.settings.get(name) != b.settings.get(name))


def causes_between(a: Provenance, b: Provenance) -> list[Cause]:
    """What differs between two tables of a step; empty where the same was asked again."""
    settings = _settings(a, b)
    if a.stage != b.stage:
        return ["stage"]
    found: list[Cause] = []
    if a.tools != b.tools:
        found.append("judge")
    # A prompt that came or went with the language model is no cause of its own.
    if "prompt" in settings and a.tools.keys() == b.tools.keys():
        found.append("prompt")
    if set(settings) - {"prompt"}:
        found.append("settings")
    if a.version != b.version:
        found.append("version")
    if a.source != b.source:
        found.append("source")
    return found


def step_provenance(connection: duckdb.DuckDBPyConnection, run: str) -> dict[str, Provenance]:
    """How the table of each step of a run was made, in their order."""
    rows = connection.execute(
        "SELECT step, artifact_id::VARCHAR FROM audit.run_steps WHERE run_id = $run "
        "ORDER BY position",
        {"run": run},
    ).fetchall()
    return {step: _provenance(connection, artifact) for step, artifact in rows}


def _provenance(connection: duckdb.DuckDBPyConnection, artifact: str) -> Provenance:
    """The provenance of a table; of a corrected table, that of the table below."""
    kind, stage, version, source, *texts = connection.execute(
        "SELECT kind, stage, version, plugin->>'source', settings, tools, inputs "
        "FROM audit.artifacts WHERE artifact_id = $id",
        {"id": artifact},
    ).fetchall()[0]
    settings, tools, inputs = map(json.loads, texts)
    if stage != EDITS:
        how = stage, version, settings, tools
        return Provenance(artifact, kind, *how, frozenset(), inputs, source)
    below = _provenance(connection, inputs["base"])
    return below._replace(artifact_id=artifact, edits=frozenset(settings["edits"]))


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
"""The kinds of change, in the order of the report."""

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

_CHECKS: Final = """
SELECT CASE WHEN b.status = 'failed' THEN 'newly failed'
            WHEN a.status = 'failed' THEN 'no longer failed' ELSE 'verdict flipped' END AS change,
       a.claim_id::VARCHAR AS claim_id, a.sample_id,
       concat_ws(': ', a.check_name, coalesce(claim, b.criterion)) AS claim,
       NULL AS against, NULL AS passage,
       coalesce(a.verdict, a.status) AS a, coalesce(b.verdict, b.status) AS b,
       a.reason AS reason_a, b.reason AS reason_b,
       CASE WHEN 'failed' IN (a.status, b.status)
            THEN coalesce(b.failure, a.failure, 'failed') END AS failure,
       (SELECT artifacts.settings->>'$.reads[*]'
        FROM audit.run_steps JOIN audit.artifacts USING (artifact_id)
        WHERE run_steps.run_id = $b AND run_steps.step = $step) AS reads,
       a.criterion IS DISTINCT FROM b.criterion AS reworded, a.check_name
FROM (FROM rubric_verdicts WHERE run_id = $a AND step = $step) a
JOIN (FROM rubric_verdicts WHERE run_id = $b AND step = $step) b
     ON a.sample_id = b.sample_id AND a.check_name = b.check_name
     AND a.claim_id IS NOT DISTINCT FROM b.claim_id
LEFT JOIN (SELECT claim_id, any_value(claim) AS claim FROM claims WHERE run_id = $b
           GROUP BY claim_id) c ON c.claim_id = a.claim_id
WHERE a.verdict IS DISTINCT FROM b.verdict ORDER BY ALL
"""

_QUERIES: Final = {"claims": _CLAIMS, "verdicts": _VERDICTS, "rubric_verdicts": _CHECKS}


def claim_changes(
    connection: duckdb.DuckDBPyConnection,
    a: str,
    b: str,
    steps: Iterable[StepChange],
    samples: pl.DataFrame,
) -> pl.DataFrame:
    """Every claim or check whose text, verdict or failure changed, with the cause: `COLUMNS`.

    `samples` are those that differ between the runs. Samples of one run only are left out, since
    all their claims are new or gone. `a` and `b` are the verdicts, the claims where their text
    changed, or whether claims were made. The cause of a failure is its kind. The `claim` of a
    check of a rubric is its name with its criterion, or with the claim that it is about.
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
        if not change.same and (table := _rows(connection, a, b, change)) is not None
    ]
    order = pl.Enum(CHANGES)
    return pl.concat([pl.DataFrame(schema=COLUMNS), *tables]).sort(
        pl.col("change").cast(order), "step", "sample_id", "claim", "passage", maintain_order=True
    )


def _rows(
    connection: duckdb.DuckDBPyConnection, a: str, b: str, change: StepChange
) -> pl.DataFrame | None:
    if change.kind not in _QUERIES:
        return None
    table = read_table(connection, _QUERIES[change.kind], a=a, b=b, step=change.step)
    if change.kind == "claims":
        none = {"against": pl.lit(None, pl.String), "passage": pl.lit(None, pl.Int64)}
        return table.with_columns(**none)
    return table


def _causes(
    connection: duckdb.DuckDBPyConnection,
    change: StepChange,
    table: pl.DataFrame,
    fields: dict[str, list[str]],
) -> Iterator[str]:
    """The cause of each row: its failure, its sample, an edit, the step's causes, or chance."""
    edited = _edited(connection, change)
    step_causes = " and ".join(change.causes) or "chance"
    for row in table.iter_rows(named=True):
        if row["failure"]:
            yield row["failure"]
        elif _source_fields(row) & set(fields.get(row["sample_id"], ())):
            yield "sample changed"
        elif row.get("reworded") and "settings" not in change.causes:
            # The sample has another list of checks.
            yield "sample changed"
        elif edited & {
            (row["sample_id"],),
            (row["claim_id"],),
            (row["sample_id"], row.get("check_name"), row["claim_id"]),
        }:
            yield "edited by hand"
        else:
            yield step_causes


def steps_behind(
    connection: duckdb.DuckDBPyConnection, runs: Sequence[str], metrics: Sequence[str]
) -> list[str]:
    """The steps whose rows the scores of `metrics` were made of in these runs, and their own."""
    return [
        step
        for (step,) in connection.execute(
            _STEPS_BEHIND, {"runs": list(runs), "metrics": list(metrics)}
        ).fetchall()
    ]


# A table that is reused names the inputs that it was made of, which an earlier run may have made.
_STEPS_BEHIND: Final = """
WITH RECURSIVE behind AS (
    SELECT artifact_id FROM audit.run_steps
    SEMI JOIN (FROM scores WHERE list_contains($runs, run_id) AND list_contains($metrics, metric))
              USING (run_id, step)
    UNION
    SELECT unnest(regexp_extract_all(inputs::VARCHAR, '[0-9a-f]{8}-[0-9a-f-]{27}'))::UUID
    FROM behind JOIN audit.artifacts USING (artifact_id)
)
SELECT DISTINCT step FROM audit.run_steps SEMI JOIN behind USING (artifact_id)
"""


def _source_fields(row: dict[str, Any]) -> set[str]:
    """The fields of the sample that the row depends on."""
    if "reads" in row:
        return set(row["reads"])
    if row["against"]:
        return {row["against"], "user_input"}
    return {row["of"], f"{row['of']}_claims", "user_input"}


def _edited(
    connection: duckdb.DuckDBPyConnection, change: StepChange
) -> set[tuple[str | None, ...]]:
    """What was corrected in one run only.

    (sample,) where claims were, (claim id,) of a verdict, (sample, check, claim id) of a check.
    """
    rows = connection.execute(
        "SELECT kind, sample_id, rows FROM audit.edits "
        "WHERE step = $step AND list_contains($edits, edit_id::VARCHAR)",
        {"step": change.step, "edits": sorted(change.edits)},
    ).fetchall()
    found: set[tuple[str | None, ...]] = set()
    for kind, sample_id, edited in rows:
        match kind:
            case "claims":
                found.add((sample_id,))
            case "checks":
                found |= {
                    (sample_id, row["check_name"], row["claim_id"]) for row in json.loads(edited)
                }
            case _:
                found |= {(row["claim_id"],) for row in json.loads(edited)}
    return found
