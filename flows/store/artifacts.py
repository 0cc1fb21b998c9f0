"""Artifacts: stored tables, found by their fingerprint."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, NamedTuple
from uuid import uuid4

import duckdb
import polars as pl

from claimflow.flows.store.arrow import insert, read_table
from claimflow.flows.store.fingerprint import Digest
from claimflow.flows.store.segments import (
    IN_ORDER,
    columns_of,
    in_digest_order,
    rows_of,
    write_parts,
)
from claimflow.flows.store.store import Store, now
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


_DIGESTS: Final = ThreadPoolExecutor(1, thread_name_prefix="digest")
"""For all tables of this process: DuckDB and Polars keep the other cores busy."""


class ArtifactWriter:
    """Writes an artifact, one transaction for each `add`; it can be found after its last part.

    `failures` are counted beside the failed rows: of a table whose rows have no status. The digest
    of a part is computed while the next one is written. An `early` one, whose inputs have no digest
    yet, can only be found after `name`. `written` counts the parts.
    """

    def __init__(
        self,
        store: Store,
        row: type[Row],
        provenance: Provenance,
        *,
        shards: int,
        failures: int = 0,
        early: bool = False,
    ) -> None:
        self._store = store
        self._row = row
        self._provenance = provenance
        self._digest = Digest(row)
        self._digested: Future[None] | None = None
        self._id = str(uuid4())
        self._early = early
        self.shards = shards
        self.written = 0
        self._row_count, self._failures = 0, failures

    def add(self, shard: int, *frames: pl.DataFrame) -> None:
        """Write `frames` as parts `shard`, `shard` + 1 and so on; parts come in order from 0.

        The rows of each sample are written together, and rows that are stored already only named.
        """
        with self._store.writing() as connection:
            if shard == 0:
                self._delete_unfinished(connection)
                insert(connection, "audit.artifacts", self._record())
            parts = write_parts(connection, self._row, self._id, shard, frames)
            for part in parts:
                self._row_count += part.height
                if "status" in part.columns:
                    self._failures += part.filter(pl.col("status") == "failed").height
            self._wait_for_digest()
            # From here on no other thread uses these frames.
            self._digested = _DIGESTS.submit(self._add_to_digest, parts)
            if shard + len(frames) == self.shards and not self._early:
                self._finish(connection)
        self.written = shard + len(frames)

    def name(self, provenance: Provenance) -> None:
        """Give an early table, all of whose parts are written, the fingerprint of `provenance`."""
        self._provenance = provenance
        with self._store.writing() as connection:
            self._finish(connection)

    def discard(self) -> None:
        """Delete an early table that is not used."""
        with self._store.writing() as connection:
            delete_unfinished(connection, "artifact_id = $id", id=self._id)

    def artifact(self) -> Artifact:
        """The finished table; before it is finished the digest is that of the parts so far."""
        self._wait_for_digest()
        counts = (self.shards, self._row_count, self._failures)
        return Artifact(self._id, self._digest.value(), self._row.table, *counts)

    def _finish(self, connection: duckdb.DuckDBPyConnection) -> None:
        artifact = self.artifact()
        connection.execute(
            "UPDATE audit.artifacts SET fingerprint = $fingerprint, digest = $digest, "
            "row_count = $rows, failures = $failures WHERE artifact_id = $id",
            {
                "fingerprint": self._provenance.fingerprint,
                "digest": artifact.digest,
                "rows": artifact.row_count,
                "failures": artifact.failures,
                "id": artifact.artifact_id,
            },
        )

    def _add_to_digest(self, parts: Sequence[pl.DataFrame]) -> None:
        for part in parts:
            self._digest.add(in_digest_order(self._row, part))

    def _wait_for_digest(self) -> None:
        """Parts count in their order."""
        if self._digested is not None:
            self._digested.result()

    def _delete_unfinished(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Delete the parts that this run wrote of the same table before an error of the store."""
        delete_unfinished(
            connection,
            "run_id = $run AND fingerprint = $fingerprint",
            run=self._provenance.run_id,
            fingerprint=self._provenance.fingerprint,
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


def delete_unfinished(connection: duckdb.DuckDBPyConnection, condition: str, **values: Any) -> None:
    """Delete the unfinished artifacts for which `condition` is true.

    Their segments stay, for the run that makes the same table next; `prune` deletes those that are
    not used.
    """
    connection.execute(
        "DELETE FROM audit.artifact_parts WHERE artifact_id IN "
        f"(SELECT artifact_id FROM audit.artifacts WHERE digest IS NULL AND {condition})",
        values,
    )
    connection.execute(f"DELETE FROM audit.artifacts WHERE digest IS NULL AND {condition}", values)


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
    names = columns_of(row, columns or content_columns(row))
    query = f"SELECT {names} FROM {rows_of(row)} WHERE artifact_id = $id {IN_ORDER}"
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
        f"SELECT shard, {columns_of(row, columns or content_columns(row))} FROM {rows_of(row)} "
        f"WHERE artifact_id = $id AND shard BETWEEN $first AND $last {IN_ORDER}",
        id=artifact.artifact_id,
        first=shards[0],
        last=shards[-1],
    )
