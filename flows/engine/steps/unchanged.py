"""Samples that are as they were when an earlier table was made in the same way."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import duckdb
import polars as pl

from claimflow.flows.engine.storage.arrow import Arrow
from claimflow.flows.engine.storage.store import Store, read_table
from claimflow.stages.base import Stage
from claimflow.stages.rows import Sample
from claimflow.stages.tables import content_columns, python_type

SAMPLES: Final = "samples"

_TABLES: Final = 5
"""Earlier tables looked at, the newest first: a run on a few samples is not the only base."""

_FOUND: Final = pl.Schema({"sample_id": pl.String, "artifact_id": pl.String, "shard": pl.Int32})


def can_take_over(stage: Stage, tools: Mapping[str, Any]) -> bool:
    """Whether rows of unchanged samples are worth taking over from an earlier table.

    A stage that asks a tool has what it was told in the ledger; the others, but for those
    that go through the samples in Python, are done before the samples are compared.
    """
    alone = set(stage.inputs) == {SAMPLES} and "sample_id" in stage.makes.model_fields
    return stage.by_row and stage.per_sample and alone and not tools


def unchanged(
    store: Store, stage: Stage, recipe: str, samples: Iterable[pl.DataFrame]
) -> pl.DataFrame:
    """Those of `samples` of which a table on file was made by that recipe, and where it is.

    Columns sample_id, artifact_id (String) and shard (Int32). Samples are compared in the
    columns that the stage reads; tables with failed rows do not count. `samples` come in
    parts.
    """
    columns = stage.columns.get(SAMPLES) or content_columns(Sample)
    with store.reading() as connection:
        _remember_earlier(connection, stage, recipe, columns)
        parts = samples if _has_rows(connection) else ()
        found = [_found(connection, part, columns) for part in parts]
    return pl.concat([pl.DataFrame(schema=_FOUND), *found])


def _remember_earlier(
    connection: duckdb.DuckDBPyConnection, stage: Stage, recipe: str, columns: Iterable[str]
) -> None:
    """Make a temporary table of the samples of earlier tables, the newest of each content."""
    connection.execute(
        f"""
        CREATE TEMP TABLE earlier AS
        WITH made AS (
            SELECT artifact_id, (inputs->>'{SAMPLES}')::UUID AS samples, made_at
            FROM audit.artifacts
            WHERE recipe = $recipe AND kind = $kind AND digest IS NOT NULL AND failures = 0
            QUALIFY row_number() OVER (PARTITION BY samples ORDER BY made_at DESC) = 1
            ORDER BY made_at DESC LIMIT {_TABLES}
        )
        SELECT sample_id, content, unnest(newest) FROM (
            SELECT sample_id, {_content(columns)} AS content,
                   arg_max({{'artifact_id': made.artifact_id, 'shard': shard}}, made_at) AS newest
            FROM stored.samples AS stored JOIN made ON stored.artifact_id = made.samples
            GROUP BY sample_id, content
        )
        """,
        {"recipe": recipe, "kind": stage.makes.table},
    )


def _has_rows(connection: duckdb.DuckDBPyConnection) -> bool:
    return bool(connection.execute("SELECT 1 FROM earlier LIMIT 1").fetchall())


def _found(
    connection: duckdb.DuckDBPyConnection, samples: pl.DataFrame, columns: Iterable[str]
) -> pl.DataFrame:
    connection.register("incoming", Arrow(samples))
    query = (
        "SELECT sample_id, artifact_id::VARCHAR AS artifact_id, shard FROM earlier "
        f"JOIN (SELECT sample_id, {_content(columns)} AS content FROM incoming) "
        "USING (sample_id, content)"
    )
    found = read_table(connection, query)
    connection.unregister("incoming")
    return found


def _content(columns: Iterable[str]) -> str:
    """SQL that hashes `columns` such that no two contents are taken for one another."""
    values = [
        f'"{name}"' if python_type(Sample, name) == list[str] else f'"{name}"::VARCHAR'
        for name in columns
    ]
    texts = ", ".join(f"to_json({value})" for value in values)
    return f"unhex(sha256(to_json([{texts}])::VARCHAR))"
