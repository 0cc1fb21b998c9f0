"""Integrity checks of a whole store."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import duckdb
import polars as pl

from claimflow.flows.store.artifacts import Artifact, read_shards
from claimflow.flows.store.fingerprint import Digest
from claimflow.flows.store.schema import SCHEMA_VERSION, content_columns_at
from claimflow.flows.store.store import Store, read_table
from claimflow.stages.rows import Row, row_kinds
from claimflow.stages.tables import schema

# What names something else in a store that is not there.


CALLS_OF_VOTES: Final = "unnest((ballot ->> '$[*].call_id')::UUID[])"
"""The calls that gave the votes on a verdict, as SQL."""

_SHOWN: Final = 3


class Damage(NamedTuple):
    """One thing that is wrong in a store: in which table, where, and what."""

    table: str
    place: str
    what: str

    def __str__(self) -> str:
        return f"{self.table}: {self.place}: {self.what}"


def rows(count: int) -> str:
    """`1 row`, `2,000 rows`."""
    return "1 row" if count == 1 else f"{count:,} rows"


class _Reference(NamedTuple):
    """Rows of `table` that name a `target` which is not there.

    `query` gives the place and the name of each; it is asked once for each run where it has a
    parameter `run`.
    """

    table: str
    target: str
    query: str


_STEP: Final = "'run ' || run_id || ' step ' || step AS place"


def _of_sample(table: str) -> _Reference:
    query = (
        f"SELECT {_STEP}, sample_id AS name FROM {table} WHERE run_id = $run AND sample_id "
        "NOT IN (SELECT sample_id FROM samples WHERE run_id = $run)"
    )
    return _Reference(table, "a sample", query)


def _of_call(table: str, call: str = "call_id") -> _Reference:
    query = (
        "SELECT place, call_id AS name FROM (SELECT 'artifact ' || artifact_id AS place, "
        f"{call} AS call_id FROM stored.{table}) "
        "ANTI JOIN audit.calls USING (call_id) WHERE call_id IS NOT NULL"
    )
    return _Reference(table, "a call", query)


def _of_run(table: str, label: str) -> _Reference:
    query = (
        f"SELECT {label} AS place, run_id AS name FROM {table} ANTI JOIN audit.runs USING (run_id)"
    )
    return _Reference(table, "a run", query)


_REFERENCES: Final = (
    _Reference(
        "verdicts",
        "a claim",
        f"SELECT {_STEP}, claim_id AS name FROM (SELECT * FROM verdicts WHERE run_id = $run) "
        "ANTI JOIN (SELECT claim_id FROM claims WHERE run_id = $run) USING (claim_id)",
    ),
    *(_of_sample(row.table) for row in row_kinds() if "sample_id" in row.model_fields),
    _of_call("claims"),
    _of_call("verdicts"),
    _of_call("verdicts", CALLS_OF_VOTES),
    _Reference(
        "audit.run_steps",
        "a table",
        f"SELECT {_STEP}, artifact_id AS name FROM audit.run_steps ANTI JOIN "
        "(SELECT artifact_id FROM audit.artifacts WHERE digest IS NOT NULL) USING (artifact_id)",
    ),
    _of_run("audit.run_steps", "'step ' || step"),
    _of_run("audit.tags", "'tag ' || tag"),
    _of_run("audit.gates", "'gate ' || metric"),
    *(
        _Reference(
            row.table,
            "a table",
            f"SELECT 'stored rows' AS place, artifact_id AS name FROM stored.{row.table} "
            "ANTI JOIN audit.artifacts USING (artifact_id)",
        )
        for row in row_kinds()
    ),
)


def reference_faults(store: Store) -> Iterator[Damage]:
    """One fault for each place, with how many rows it is and the first names of them."""
    with store.reading() as connection:
        found = connection.execute("SELECT run_id FROM audit.runs ORDER BY started_at").fetchall()
    runs = [{"run": run_id} for (run_id,) in found]
    for reference in _REFERENCES:
        for values in runs if "$run" in reference.query else [None]:
            with store.reading() as connection:
                yield from list(_faults(connection, reference, values))


def _faults(
    connection: duckdb.DuckDBPyConnection, reference: _Reference, values: dict[str, str] | None
) -> Iterator[Damage]:
    found = connection.execute(
        "SELECT place, count(*), count(DISTINCT name), "
        f"list(DISTINCT name::VARCHAR ORDER BY name::VARCHAR)[:{_SHOWN}] "
        f"FROM ({reference.query}) GROUP BY place ORDER BY place",
        values,
    ).fetchall()
    for place, count, different, names in found:
        names_it = f"{rows(count)} name{'s' if count == 1 else ''}"
        more = ", ..." if different > len(names) else ""
        what = f"{names_it} {reference.target} that is not there ({', '.join(names)}{more})"
        yield Damage(reference.table, place, what)


# A whole store looked through: what is damaged in it, if anything is.


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
