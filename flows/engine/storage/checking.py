"""A whole store looked through: what is damaged in it, if anything is."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import duckdb
import polars as pl

from claimflow.flows.engine.storage.artifacts import Artifact, read_shards
from claimflow.flows.engine.storage.fingerprint import Digest
from claimflow.flows.engine.storage.migrations import SCHEMA_VERSION, content_columns_at
from claimflow.flows.engine.storage.references import Damage, reference_faults, rows
from claimflow.flows.engine.storage.store import Store, read_table
from claimflow.stages.row import Row
from claimflow.stages.rows import row_kinds
from claimflow.stages.tables import schema

_AT_ONCE: Final = 5
"""Parts of a table that are in memory at the same time."""


class Checked(NamedTuple):
    """How much was looked through, and what was found damaged."""

    tables: int
    rows: int
    faults: list[Damage]


def check_store(store: Store) -> Checked:
    """Look through every complete table and what names others, part by part.

    Digests are computed anew from the rows; a table made under an older schema version has
    that of the columns there were. Fields marked AUDIT are in no digest: of them only their
    numbers and what they name can be checked. The store is opened for one table at a time.
    """
    found: list[Damage] = []
    with store.reading() as connection:
        artifacts = _artifacts(connection)
    for artifact, row in artifacts:
        with store.reading() as connection:
            found += _table_faults(connection, artifact, row)
    with store.reading() as connection:
        found += _strange_numbers(connection)
    found += reference_faults(store)
    return Checked(len(artifacts), sum(artifact.row_count for artifact, _ in artifacts), found)


def _artifacts(connection: duckdb.DuckDBPyConnection) -> list[tuple[Artifact, type[Row]]]:
    kinds = {row.table: row for row in row_kinds()}
    found = connection.execute(
        "SELECT artifact_id::VARCHAR, digest::VARCHAR, kind, shards, row_count, failures "
        "FROM audit.artifacts WHERE digest IS NOT NULL ORDER BY made_at, artifact_id"
    ).fetchall()
    return [(Artifact(*one), kinds[one[2]]) for one in found if one[2] in kinds]


def _table_faults(
    connection: duckdb.DuckDBPyConnection, artifact: Artifact, row: type[Row]
) -> Iterator[Damage]:
    def damage(what: str) -> Damage:
        return Damage(artifact.kind, f"artifact {artifact.artifact_id}", what)

    digests = {content_columns_at(row, v): None for v in range(1, SCHEMA_VERSION + 1)}
    sums = [Digest(row, columns) for columns in digests]
    count = failed = 0
    for part in _parts(connection, artifact, row):
        for digest in sums:
            digest.add(part)
        count += part.height
        failed += part.filter(pl.col("status") == "failed").height if "status" in part else 0
    if count != artifact.row_count:
        yield damage(f"has {rows(count)}, and {artifact.row_count:,} are on record")
    elif artifact.digest not in {digest.value() for digest in sums}:
        yield damage(f"its rows are not those that were written (digest {artifact.digest})")
    if failed != artifact.failures:
        yield damage(f"has {failed:,} failed rows, and {artifact.failures:,} are on record")
    repeated = _repeated_keys(connection, artifact, row)
    if repeated:
        yield damage(f"{rows(repeated)} too many with the same key ({', '.join(row.key)})")


def _parts(
    connection: duckdb.DuckDBPyConnection, artifact: Artifact, row: type[Row]
) -> Iterator[pl.DataFrame]:
    for first in range(0, artifact.shards, _AT_ONCE):
        last = min(first + _AT_ONCE, artifact.shards) - 1
        yield read_shards(connection, row, artifact, [first, last])


def _repeated_keys(
    connection: duckdb.DuckDBPyConnection, artifact: Artifact, row: type[Row]
) -> int:
    key = ", ".join(f'"{name}"' for name in row.key)
    ((repeated,),) = connection.execute(
        f"SELECT count(*) - count(DISTINCT row({key})) FROM stored.{row.table} "
        "WHERE artifact_id = $id",
        {"id": artifact.artifact_id},
    ).fetchall()
    return int(repeated)


def _strange_numbers(connection: duckdb.DuckDBPyConnection) -> Iterator[Damage]:
    """Numbers that are none, or infinite."""
    for row in row_kinds():
        for name, dtype in schema(row).items():
            if dtype.is_float():
                strange = read_table(
                    connection,
                    f"SELECT artifact_id::VARCHAR AS artifact, count(*) AS n "
                    f'FROM stored.{row.table} WHERE NOT isfinite("{name}") '
                    "GROUP BY ALL ORDER BY ALL",
                )
                for artifact, n in strange.iter_rows():
                    what = f"NaN or infinity in {name!r} of {rows(n)}"
                    yield Damage(row.table, f"artifact {artifact}", what)
