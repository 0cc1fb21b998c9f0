"""A table made of an earlier one: only rows of new and changed samples are made."""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final

import duckdb
import polars as pl

from claimflow.flows.engine.config.wiring import Step
from claimflow.flows.engine.steps.parts import GROUP, Tables, grouped, make_parts
from claimflow.flows.engine.steps.unchanged import SAMPLES
from claimflow.flows.engine.storage.arrow import Arrow
from claimflow.flows.engine.storage.artifacts import Artifact, by_shard, read_shards
from claimflow.flows.engine.storage.store import Store, read_table
from claimflow.flows.engine.workers import Workers
from claimflow.stages.row import Row
from claimflow.stages.rows import Sample
from claimflow.stages.tables import conform

_PLACE: Final = "place"
"""Where a sample stands among those read with it: its rows go where they would have been made."""


class TakingOver:
    """Makes the parts of a table whose stage goes through the samples one by one.

    The rows of samples in `unchanged` are read back from the tables that they are in, all
    others are made. Rows, their order and the parts they lie in are the same as when all are made.
    """

    def __init__(
        self, store: Store, step: Step, inputs: Mapping[str, Artifact], unchanged: pl.DataFrame
    ) -> None:
        self._store = store
        self._stage = step.stage
        self._samples = inputs[SAMPLES]
        self._unchanged = unchanged
        self._waiting: deque[tuple[pl.DataFrame, pl.DataFrame]] = deque()

    def parts(self, workers: Workers, *, worth: int) -> Iterator[pl.DataFrame]:
        """The parts in their order; `worth` says how many parts the samples to go through fill."""
        for made in make_parts(self._stage, self._new(), {}, workers, of=worth):
            places, kept = self._waiting.popleft()
            yield self._merged(made, places, kept)

    def _new(self) -> Iterator[Tables]:
        """New and changed samples of each part; places and rows of the others wait."""
        columns = self._stage.columns.get(SAMPLES, ())
        for shards in grouped(range(self._samples.shards), GROUP):
            with self._store.reading() as connection:
                samples = read_shards(connection, Sample, self._samples, shards, columns=columns)
                placed = samples.with_row_index(_PLACE)
                found = placed.select("sample_id", _PLACE, part="shard").join(
                    self._unchanged, on="sample_id"
                )
                kept = _rows(connection, self._stage.makes, found)
            by_part = by_shard(kept.rename({"part": "shard"}), shards)
            for part, rows in zip(by_shard(placed, shards), by_part, strict=True):
                self._waiting.append((part.select("sample_id", _PLACE), rows))
                new = part.join(found, on="sample_id", how="anti", maintain_order="left")
                yield {SAMPLES: new.drop(_PLACE)}

    def _merged(self, made: pl.DataFrame, places: pl.DataFrame, kept: pl.DataFrame) -> pl.DataFrame:
        placed = made.join(places, on="sample_id", how="left", maintain_order="left")
        row = self._stage.makes
        before = conform(row, kept.drop(_PLACE)).with_columns(kept[_PLACE])
        both = pl.concat([before, placed]).sort(_PLACE, maintain_order=True)
        return both.drop(_PLACE)


def _rows(
    connection: duckdb.DuckDBPyConnection, row: type[Row], found: pl.DataFrame
) -> pl.DataFrame:
    """The rows of the samples in `found`, with place and part, each sample's in their order."""
    connection.register("found", Arrow(found))
    names = ", ".join(f'stored."{name}"' for name in row.model_fields)
    return read_table(
        connection,
        f"SELECT found.{_PLACE}, found.part, {names} FROM stored.{row.table} AS stored "
        "JOIN found ON stored.artifact_id = found.artifact_id::UUID "
        "AND stored.shard = found.shard AND stored.sample_id = found.sample_id "
        f"ORDER BY found.{_PLACE}, stored.rowid",
    )
