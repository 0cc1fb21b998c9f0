"""Incremental reuse: rows of unchanged samples are taken from an earlier table."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import duckdb
import polars as pl

from claimflow.flows.pipeline.wiring import Step
from claimflow.flows.store.arrow import read_table
from claimflow.flows.store.artifacts import Artifact, read_shards
from claimflow.flows.store.segments import by_shard, columns_of, stored_lists
from claimflow.flows.store.store import Store
from claimflow.stages.base import Stage
from claimflow.stages.rows import Row, Sample
from claimflow.stages.tables import conform, content_columns
from claimflow.stages.tools import Parser

SAMPLES: Final = "samples"

_TABLES: Final = 5
"""Earlier tables considered, the newest first: the last run may have had a few samples only."""

_FOUND: Final = pl.Schema({"sample_id": pl.String, "segment": pl.Int64})


def can_reuse_rows(stage: Stage) -> bool:
    """Whether copying the rows of unchanged samples from an earlier table saves time.

    It does for stages that go through the samples in Python. Replies to a stage that asks another
    tool than the parser are in the ledger, and all other stages are faster than the comparison of
    the samples.
    """
    alone = set(stage.inputs) == {SAMPLES} and "sample_id" in stage.makes.model_fields
    return stage.by_row and stage.per_sample and alone and parses_at_most(stage)


def parses_at_most(stage: Stage) -> bool:
    """Whether a stage asks no tool but the parser, whose trees are not in the ledger."""
    return set(stage.needed_tools.values()) <= {Parser}


def unchanged_samples(
    store: Store, stage: Stage, recipe: str, samples: Iterable[pl.DataFrame]
) -> pl.DataFrame:
    """The samples whose rows are in an earlier table of the same `recipe`, and where.

    `samples` come in parts. Returns the columns sample_id and segment, which is that of its
    rows, NULL where it has none. Samples are compared in the columns that the stage reads; tables
    with failed rows are not used.
    """
    columns = stage.columns_of(SAMPLES) or content_columns(Sample)
    with store.reading() as connection:
        _create_earlier_samples(connection, stage, recipe, columns)
        parts = samples if _has_rows(connection) else ()
        found = [_found(connection, part, columns) for part in parts]
    return pl.concat([pl.DataFrame(schema=_FOUND), *found])


def _create_earlier_samples(
    connection: duckdb.DuckDBPyConnection, stage: Stage, recipe: str, columns: Iterable[str]
) -> None:
    """Create a temporary table of the samples of earlier tables, the newest of each content."""
    connection.execute(
        f"""
        CREATE TEMP TABLE earlier AS
        WITH made AS (
            SELECT artifact_id, (inputs->>'{SAMPLES}')::UUID AS samples, made_at
            FROM audit.artifacts
            WHERE recipe = $recipe AND kind = $kind AND digest IS NOT NULL AND failures = 0
            QUALIFY row_number() OVER (PARTITION BY samples ORDER BY made_at DESC) = 1
            ORDER BY made_at DESC LIMIT {_TABLES}
        ),
        read AS (
            -- Segments that several tables have are read once: of the newest.
            SELECT segment, arg_max(made.artifact_id, made_at) AS artifact_id,
                   max(made_at) AS made_at
            FROM audit.artifact_segments AS named JOIN made ON named.artifact_id = made.samples
            GROUP BY segment
        ),
        contents AS (
            SELECT sample_id, {_content(columns, lists="::JSON")} AS content,
                   arg_max(artifact_id, made_at) AS artifact_id
            FROM stored.samples JOIN read USING (segment) GROUP BY sample_id, content
        ),
        rows AS (
            SELECT artifact_id, segment, sample_id
            FROM audit.artifact_segments SEMI JOIN made USING (artifact_id)
            JOIN (SELECT DISTINCT segment, sample_id FROM stored.{stage.makes.table})
            USING (segment)
        )
        SELECT sample_id, content, segment
        FROM contents LEFT JOIN rows USING (artifact_id, sample_id)
        """,
        {"recipe": recipe, "kind": stage.makes.table},
    )


def _has_rows(connection: duckdb.DuckDBPyConnection) -> bool:
    return bool(connection.execute("SELECT 1 FROM earlier LIMIT 1").fetchall())


def _found(
    connection: duckdb.DuckDBPyConnection, samples: pl.DataFrame, columns: Iterable[str]
) -> pl.DataFrame:
    query = (
        "SELECT sample_id, segment FROM earlier "
        f"JOIN (SELECT sample_id, {_content(columns)} AS content FROM incoming) "
        "USING (sample_id, content)"
    )
    return read_table(connection, query, samples)


def _content(columns: Iterable[str], *, lists: str = "") -> str:
    """SQL for a hash of `columns` that differs wherever the contents differ.

    `lists` follows the columns of lists, which are JSON text in the store.
    """
    values = [
        f'"{name}"{lists}' if name in stored_lists(Sample) else f'"{name}"::VARCHAR'
        for name in columns
    ]
    texts = ", ".join(f"to_json({value})" for value in values)
    return f"unhex(sha256(to_json([{texts}])::VARCHAR))"


# No field of a row begins with an underscore.

_PLACE: Final = "_place"
"""The position of a sample among those read with it; its rows keep that order."""

_PART: Final = "_part"
"""The part that a sample belongs to."""


class IncrementalTable:
    """Builds a table of which only the rows of new and changed samples are made.

    The rows of the samples in `unchanged` are copied from the tables that they are in. The rows,
    their order and the parts they lie in are the same as when all are made.
    """

    def __init__(
        self, store: Store, step: Step, inputs: Mapping[str, Artifact], unchanged: pl.DataFrame
    ) -> None:
        self._store = store
        self._stage = step.stage
        self._samples = inputs[SAMPLES]
        self._unchanged = unchanged
        self._waiting: deque[tuple[pl.DataFrame, pl.DataFrame]] = deque()

    def parts(
        self,
        groups: Iterable[Sequence[int]],
        make: Callable[[Iterator[dict[str, pl.DataFrame]]], Iterable[pl.DataFrame]],
    ) -> Iterator[pl.DataFrame]:
        """The parts in their order; those of each of `groups` are read together.

        `make` gives the rows of the samples that are not unchanged, part by part.
        """
        for made in make(self._changed_samples(groups)):
            places, kept = self._waiting.popleft()
            yield self._merge(made, places, kept)

    def _changed_samples(
        self, groups: Iterable[Sequence[int]]
    ) -> Iterator[dict[str, pl.DataFrame]]:
        """New and changed samples of each part; places and rows of the others are queued."""
        columns = self._stage.columns_of(SAMPLES)
        for shards in groups:
            with self._store.reading() as connection:
                samples = read_shards(connection, Sample, self._samples, shards, columns=columns)
                placed = samples.with_row_index(_PLACE)
                found = placed.select("sample_id", _PLACE, pl.col("shard").alias(_PART)).join(
                    self._unchanged, on="sample_id"
                )
                kept = _rows(connection, self._stage.makes, found)
            by_part = by_shard(kept.rename({_PART: "shard"}), shards)
            for part, rows in zip(by_shard(placed, shards), by_part, strict=True):
                self._waiting.append((part.select("sample_id", _PLACE), rows))
                new = part.join(found, on="sample_id", how="anti", maintain_order="left")
                yield {SAMPLES: new.drop(_PLACE)}

    def _merge(self, made: pl.DataFrame, places: pl.DataFrame, kept: pl.DataFrame) -> pl.DataFrame:
        placed = made.join(places, on="sample_id", how="left", maintain_order="left")
        row = self._stage.makes
        before = conform(row, kept.drop(_PLACE)).with_columns(kept[_PLACE])
        both = pl.concat([before, placed]).sort(_PLACE, maintain_order=True)
        return both.drop(_PLACE)


def _rows(
    connection: duckdb.DuckDBPyConnection, row: type[Row], found: pl.DataFrame
) -> pl.DataFrame:
    """The rows of the samples in `found`, with place and part, in the order of each sample."""
    return read_table(
        connection,
        f"SELECT {_PLACE}, {_PART}, {columns_of(row, row.model_fields)} "
        f"FROM stored.{row.table} AS rows JOIN incoming USING (segment) "
        f"ORDER BY {_PLACE}, rows.rowid",
        found,
    )
