"""Artifacts: stored tables, found by their fingerprint."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

import duckdb
import polars as pl

from claimflow.flows.store.fingerprint import Digest
from claimflow.flows.store.store import Store, insert, now, read_table
from claimflow.stages.base import Stage
from claimflow.stages.rows import Row, Verdict, canonical
from claimflow.stages.tables import content_columns


class Artifact(NamedTuple):
    """A complete table in the store, which was written in `shards` parts."""

    artifact_id: str
    digest: str
    kind: str
    shards: int
    row_count: int
    failures: int


class Provenance(NamedTuple):
    """How an artifact is made: a row of `audit.artifacts`."""

    run_id: str
    fingerprint: str
    recipe: str
    inputs: Mapping[str, Any]
    stage: str
    version: int
    settings: dict[str, Any]
    tools: dict[str, Any]
    plugin: dict[str, Any] | None = None
    """Of a stage of another package its source and metrics, for reports without that package."""


def plugin_facts(stage: Stage) -> dict[str, Any] | None:
    """What the record of a table keeps of a stage of another package; None for a built-in one."""
    if stage.source is None:
        return None
    return {
        "source": stage.source.digest,
        "metrics": list(stage.metrics),
        "of_verdicts": any(one.row is Verdict for one in stage.inputs.values()),
        "lower_is_better": sorted(stage.lower_is_better),
    }


class ArtifactWriter:
    """Writes an artifact, one transaction for each `add`; it can be found after its last part.

    `failures` are counted beside the failed rows: of a table whose rows have no status.
    """

    def __init__(
        self,
        store: Store,
        row: type[Row],
        provenance: Provenance,
        *,
        shards: int,
        failures: int = 0,
    ) -> None:
        self._store = store
        self._row = row
        self._provenance = provenance
        self._digest = Digest(row)
        self._id = str(uuid4())
        self.shards = shards
        self._row_count, self._failures = 0, failures

    def add(self, shard: int, *frames: pl.DataFrame) -> None:
        """Write `frames` as parts `shard`, `shard` + 1 and so on; parts come in order from 0."""
        for frame in frames:
            self._digest.add(frame)
            self._row_count += frame.height
            if "status" in frame.columns:
                self._failures += frame.filter(pl.col("status") == "failed").height
        numbered = pl.concat(
            frame.with_columns(shard=pl.lit(number, pl.Int32))
            for number, frame in enumerate(frames, start=shard)
        )
        with self._store.writing() as connection:
            if shard == 0:
                self._delete_unfinished(connection)
                insert(connection, "audit.artifacts", self._record())
            insert(connection, f"stored.{self._row.table}", numbered, artifact_id=self._id)
            if shard + len(frames) == self.shards:
                connection.execute(
                    "UPDATE audit.artifacts SET digest = $digest, row_count = $rows, "
                    "failures = $failures WHERE artifact_id = $id",
                    {
                        "digest": self._digest.value(),
                        "rows": self._row_count,
                        "failures": self._failures,
                        "id": self._id,
                    },
                )

    def artifact(self) -> Artifact:
        """The finished table."""
        counts = (self.shards, self._row_count, self._failures)
        return Artifact(self._id, self._digest.value(), self._row.table, *counts)

    def _delete_unfinished(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Delete the parts that this run wrote of the same table before an error of the store."""
        unfinished = connection.execute(
            "DELETE FROM audit.artifacts WHERE run_id = $run AND fingerprint = $fingerprint "
            "AND digest IS NULL RETURNING artifact_id::VARCHAR",
            {"run": self._provenance.run_id, "fingerprint": self._provenance.fingerprint},
        ).fetchall()
        for (artifact_id,) in unfinished:
            connection.execute(
                f"DELETE FROM stored.{self._row.table} WHERE artifact_id = $id", {"id": artifact_id}
            )

    def _record(self) -> pl.DataFrame:
        provenance = self._provenance
        return pl.DataFrame(
            {
                **provenance._asdict(),
                "artifact_id": self._id,
                "inputs": canonical(dict(provenance.inputs)).decode(),
                "kind": self._row.table,
                "settings": canonical(provenance.settings).decode(),
                "tools": canonical(provenance.tools).decode(),
                "plugin": provenance.plugin and canonical(provenance.plugin).decode(),
                "shards": self.shards,
                "row_count": 0,
                "failures": 0,
                "made_at": now(),
            },
            schema_overrides={"plugin": pl.String},
        )


def find_artifact(connection: duckdb.DuckDBPyConnection, fingerprint: str) -> Artifact | None:
    """The newest complete table with that fingerprint and without failures, if there is one."""
    found = connection.execute(
        "SELECT artifact_id::VARCHAR, digest::VARCHAR, kind, shards, row_count, failures "
        "FROM audit.artifacts "
        "WHERE fingerprint = $fingerprint AND digest IS NOT NULL AND failures = 0 "
        "ORDER BY made_at DESC LIMIT 1",
        {"fingerprint": fingerprint},
    ).fetchall()
    return Artifact(*found[0]) if found else None


def read_artifact(
    connection: duckdb.DuckDBPyConnection,
    row: type[Row],
    artifact: Artifact,
    *,
    shard: int | None = None,
    columns: Sequence[str] = (),
) -> pl.DataFrame:
    """The content columns (or `columns`) of a table, or of one part of it."""
    if shard is not None:
        return read_shards(connection, row, artifact, [shard], columns=columns).drop("shard")
    names = _names(columns or content_columns(row))
    query = f"SELECT {names} FROM stored.{row.table} WHERE artifact_id = $id"
    return read_table(connection, query, id=artifact.artifact_id)


def read_shards(
    connection: duckdb.DuckDBPyConnection,
    row: type[Row],
    artifact: Artifact,
    shards: Sequence[int],
    *,
    columns: Sequence[str] = (),
) -> pl.DataFrame:
    """The content columns (or `columns`) of consecutive parts, after the column `shard`."""
    return read_table(
        connection,
        f"SELECT shard, {_names(columns or content_columns(row))} FROM stored.{row.table} "
        "WHERE artifact_id = $id AND shard BETWEEN $first AND $last",
        id=artifact.artifact_id,
        first=shards[0],
        last=shards[-1],
    )


def by_shard(table: pl.DataFrame, shards: Sequence[int]) -> list[pl.DataFrame]:
    """The rows of each of `shards`, without the column `shard`."""
    found = table.partition_by("shard", as_dict=True, include_key=False, maintain_order=True)
    return [found.get((shard,), table.clear().drop("shard")) for shard in shards]


def _names(columns: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in columns)
