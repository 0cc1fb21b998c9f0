"""Artifacts: tables on file, found by how they were made."""

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import uuid4

import duckdb
import polars as pl

from flows.engine.fingerprint import Digest
from flows.engine.store import Store, insert, now, read_table
from stages.keys import canonical
from stages.rows import Row
from stages.tables import content_columns


class Artifact(NamedTuple):
    """A complete table in the store. `shards` counts the parts that it was made in."""

    artifact_id: str
    digest: str
    kind: str
    shards: int
    row_count: int
    failures: int


class Making(NamedTuple):
    """How a table is made, as it goes on record."""

    run_id: str
    fingerprint: str
    stage: str
    version: int
    settings: dict[str, Any]
    tools: dict[str, Any]


class Draft:
    """A table being written, one transaction a part; nobody sees it before its last part."""

    def __init__(self, store: Store, row: type[Row], making: Making, *, shards: int) -> None:
        self._store = store
        self._row = row
        self._making = making
        self._digest = Digest(row)
        self._id = str(uuid4())
        self._shards = shards
        self._row_count = self._failures = 0

    def add(self, shard: int, frame: pl.DataFrame) -> None:
        """Write part number `shard`; parts come in order from 0."""
        self._digest.add(frame)
        self._row_count += frame.height
        if "status" in frame.columns:
            self._failures += frame.filter(pl.col("status") == "failed").height
        with self._store.writing() as connection:
            if shard == 0:
                insert(connection, "audit.artifacts", self._record())
            table = f"stored.{self._row.table}"
            insert(connection, table, frame, artifact_id=self._id, shard=shard)
            if shard == self._shards - 1:
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
        counts = (self._shards, self._row_count, self._failures)
        return Artifact(self._id, self._digest.value(), self._row.table, *counts)

    def _record(self) -> pl.DataFrame:
        making = self._making
        return pl.DataFrame(
            {
                "artifact_id": self._id,
                "run_id": making.run_id,
                "fingerprint": making.fingerprint,
                "kind": self._row.table,
                "stage": making.stage,
                "version": making.version,
                "settings": canonical(making.settings).decode(),
                "tools": canonical(making.tools).decode(),
                "shards": self._shards,
                "row_count": 0,
                "failures": 0,
                "made_at": now(),
            }
        )


def find(connection: duckdb.DuckDBPyConnection, fingerprint: str) -> Artifact | None:
    """The newest complete table of that fingerprint without failures, if there is one."""
    found = connection.execute(
        "SELECT artifact_id::VARCHAR, digest::VARCHAR, kind, shards, row_count, failures "
        "FROM audit.artifacts "
        "WHERE fingerprint = $fingerprint AND digest IS NOT NULL AND failures = 0 "
        "ORDER BY made_at DESC LIMIT 1",
        {"fingerprint": fingerprint},
    ).fetchall()
    return Artifact(*found[0]) if found else None


def read(
    connection: duckdb.DuckDBPyConnection,
    row: type[Row],
    artifact: Artifact,
    *,
    shard: int | None = None,
    columns: Sequence[str] = (),
) -> pl.DataFrame:
    """The content columns (or just `columns`) of a table, whole or one part of it."""
    names = ", ".join(f'"{name}"' for name in columns or content_columns(row))
    condition = "" if shard is None else " AND shard = $shard"
    values = {"id": artifact.artifact_id} | ({} if shard is None else {"shard": shard})
    return read_table(
        connection,
        f"SELECT {names} FROM stored.{row.table} WHERE artifact_id = $id{condition}",
        **values,
    )
