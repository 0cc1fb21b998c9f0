"""Integrity checks of a whole store."""

import glob
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

import duckdb
import polars as pl

from claimflow.flows.store.arrow import read_table
from claimflow.flows.store.artifacts import Artifact, read_shards
from claimflow.flows.store.fingerprint import Digest
from claimflow.flows.store.schema import SCHEMA_VERSION, content_columns_at
from claimflow.flows.store.segments import (
    by_shard,
    groups_of_parts,
    in_digest_order,
    list_digest,
    rows_of,
    segment_digests,
)
from claimflow.flows.store.store import Store
from claimflow.stages.rows import Claim, Row, RubricVerdict, Verdict, row_kinds
from claimflow.stages.tables import schema

CALLS_OF_VOTES: Final = "unnest((ballot ->> '$[*].call_id')::UUID[])"
"""SQL for the ids of the calls that gave the votes on a verdict."""

UNREADABLE: Final = ".unreadable"
"""Ending of the name of a file beside the store with calls that could not be saved."""

_SHOWN: Final = 3
"""Names that a message lists."""


class Damage(NamedTuple):
    """One fault in a store: the table, the place in it, and what is wrong."""

    table: str
    place: str
    what: str

    def __str__(self) -> str:
        return f"{self.table}: {self.place}: {self.what}"


class Checked(NamedTuple):
    """How many runs, of how many, their tables and rows were checked, and what was damaged."""

    runs: int
    every_run: int
    tables: int
    rows: int
    faults: list[Damage]


def check_store(store: Store, *, newest: bool = False) -> Checked:
    """Check every complete table and every reference of a store, part by part.

    With `newest` only the tables of the newest run of each pipeline, and of its newest whole run.
    Digests of tables, segments and lists of segments are computed again; a table that was made
    under an older schema version has the digest of the columns of that version. What DuckDB cannot
    read is a fault as well. The store is opened for one table at a time.
    Files beside it that hold calls which could not be saved are faults, too.
    """
    found: list[Damage] = []
    with store.reading() as connection:
        every = connection.execute("SELECT count(*) FROM audit.runs").fetchall()[0][0]
        runs = [str(run) for (run,) in connection.execute(_NEWEST if newest else _ALL).fetchall()]
        artifacts = _artifacts(connection, runs if newest else None)
        found += _unknown_kinds(connection)
    ranges = _readable(store, _impossible_ranges, ("audit.parts", "ranges"))
    if ranges:  # To follow a range of a trillion segments to its rows would take all memory.
        return Checked(len(runs), int(every), 0, 0, [*found, *ranges])
    for artifact, row in artifacts:
        found += _readable(
            store, partial(_table_faults, artifact=artifact, row=row), _place(artifact)
        )
    ids = [artifact.artifact_id for artifact, _ in artifacts]
    found += _readable(store, partial(_not_finite, tables=ids), ("stored", "numbers"))
    found += _readable(store, _impossible_calls, ("audit.calls", "numbers"))
    for reference in _REFERENCES:
        for run in runs if "$run" in reference.query else [""]:
            given = {"run": run, "tables": ids}
            values = {name: value for name, value in given.items() if f"${name}" in reference.query}
            place = (reference.table, f"names of {reference.target}")
            found += _readable(store, partial(_faults, reference=reference, values=values), place)
    found += _unreadable_journals(store)
    rows = sum(artifact.row_count for artifact, _ in artifacts)
    return Checked(len(runs), int(every), len(artifacts), rows, found)


def _place(artifact: Artifact) -> tuple[str, str]:
    return artifact.kind, f"artifact {artifact.artifact_id}"


def _readable(
    store: Store,
    faults: Callable[[duckdb.DuckDBPyConnection], Iterator[Damage]],
    place: tuple[str, str],
) -> list[Damage]:
    """The faults that a check finds, or that it cannot read what it checks."""
    try:
        with store.reading() as connection:
            return list(faults(connection))
    except duckdb.Error as error:
        return [Damage(*place, f"cannot be read ({str(error).splitlines()[0]})")]


def _unknown_kinds(connection: duckdb.DuckDBPyConnection) -> Iterator[Damage]:
    """One fault for each artifact whose rows would be in a table that claimflow does not have."""
    found = connection.execute(
        "SELECT artifact_id::VARCHAR, kind FROM audit.artifacts "
        "WHERE NOT list_contains($kinds, kind) ORDER BY 1",
        {"kinds": [row.table for row in row_kinds()]},
    ).fetchall()
    for artifact_id, kind in found:
        yield Damage("audit.artifacts", f"artifact {artifact_id}", f"there is no table {kind!r}")


def _impossible_ranges(connection: duckdb.DuckDBPyConnection) -> Iterator[Damage]:
    """One fault for each range of a list of segments that names segments that cannot be there."""
    ranges = connection.execute(
        "SELECT part, place, segment, length FROM audit.parts "
        "WHERE length < 1 OR place < 0 OR segment < 0 OR segment::HUGEINT + length - 1 > "
        "(SELECT coalesce(max(segment), 0) FROM audit.segments) ORDER BY ALL LIMIT $shown",
        {"shown": _SHOWN},
    ).fetchall()
    for part, place, segment, length in ranges:
        what = f"{length:,} segments from {segment} are not there; no table was checked"
        yield Damage("audit.parts", f"part {part}, place {place}", what)


_ALL: Final = "SELECT run_id FROM audit.runs ORDER BY started_at"

_NEWEST: Final = """
SELECT run_id FROM audit.runs
WHERE run_id IN (SELECT arg_max(run_id, started_at) FROM audit.runs GROUP BY pipeline)
   OR run_id IN (SELECT run_id FROM audit.latest_runs)
ORDER BY started_at
"""


class _Reference(NamedTuple):
    """Rows of `table` that refer to a `target` which does not exist.

    `query` selects the `place` and the `name` of each; a query with the parameter `$run` is
    executed once for each run, and `$tables` are the ids of the tables to check.
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


def _of_call(row: type[Row], call: str = "call_id") -> _Reference:
    query = (
        "SELECT place, call_id AS name FROM (SELECT 'artifact ' || artifact_id AS place, "
        f"{call} AS call_id FROM {rows_of(row)} "
        "WHERE list_contains($tables, artifact_id::VARCHAR)) "
        "ANTI JOIN audit.calls USING (call_id) WHERE call_id IS NOT NULL"
    )
    return _Reference(row.table, "a call", query)


def _of_run(table: str, label: str) -> _Reference:
    query = (
        f"SELECT {label} AS place, run_id AS name FROM {table} ANTI JOIN audit.runs USING (run_id)"
    )
    return _Reference(table, "a run", query)


_REFERENCES: Final = (
    *(
        _Reference(
            table,
            "a claim",
            f"SELECT {_STEP}, claim_id AS name FROM (SELECT * FROM {table} WHERE run_id = $run) "
            "ANTI JOIN (SELECT claim_id FROM claims WHERE run_id = $run) USING (claim_id)",
        )
        for table in ("verdicts", "citations")
    ),
    *(_of_sample(row.table) for row in row_kinds() if "sample_id" in row.model_fields),
    _of_call(Claim),
    _of_call(Verdict),
    _of_call(Verdict, CALLS_OF_VOTES),
    _of_call(RubricVerdict),
    _of_call(RubricVerdict, CALLS_OF_VOTES),
    _Reference(
        "audit.run_steps",
        "a table",
        f"SELECT {_STEP}, artifact_id AS name FROM audit.run_steps ANTI JOIN "
        "(SELECT artifact_id FROM audit.artifacts WHERE digest IS NOT NULL) USING (artifact_id)",
    ),
    _of_run("audit.run_steps", "'step ' || step"),
    _of_run("audit.tags", "'tag ' || tag"),
    _of_run("audit.readers", "'step ' || step"),
    _of_run("audit.gates", "'gate ' || metric"),
    _of_run("audit.sendings", "'target ' || target"),
    _of_run("audit.sent", "'target ' || target"),
    _Reference(
        "audit.artifact_parts",
        "a table",
        "SELECT 'parts' AS place, artifact_id AS name FROM audit.artifact_parts "
        "ANTI JOIN audit.artifacts USING (artifact_id)",
    ),
    _Reference(
        "audit.artifact_parts",
        "a part",
        "SELECT 'artifact ' || artifact_id AS place, part AS name FROM audit.artifact_parts "
        "ANTI JOIN audit.parts USING (part)",
    ),
    _Reference(
        "audit.artifact_segments",
        "a segment",
        "SELECT 'artifact ' || artifact_id AS place, segment AS name "
        "FROM audit.artifact_segments ANTI JOIN audit.segments USING (kind, segment) "
        "WHERE list_contains($tables, artifact_id::VARCHAR)",
    ),
    _Reference(
        "audit.languages",
        "a sample",
        "SELECT 'segments' AS place, segment AS name FROM audit.languages ANTI JOIN "
        "(SELECT segment FROM audit.segments WHERE kind = 'samples') USING (segment)",
    ),
    _Reference(
        "audit.runs",
        "a step",
        "SELECT 'run ' || run_id AS place, step_count || ' steps' AS name FROM audit.runs "
        "WHERE status = 'done' AND step_count > "
        "(SELECT count(*) FROM audit.run_steps WHERE run_steps.run_id = runs.run_id)",
    ),
    *(
        _Reference(
            row.table,
            "a segment",
            "SELECT 'stored rows' AS place, segment AS name "
            f"FROM stored.{row.table} ANTI JOIN "
            f"(SELECT segment FROM audit.segments WHERE kind = '{row.table}') USING (segment)",
        )
        for row in row_kinds()
    ),
)


def _faults(
    connection: duckdb.DuckDBPyConnection, reference: _Reference, values: dict[str, Any]
) -> Iterator[Damage]:
    """One fault for each place, with the number of rows and the first names in them."""
    found = connection.execute(
        "SELECT place, count(*), count(DISTINCT name), "
        f"list(DISTINCT name ORDER BY name)[:{_SHOWN}] "
        f"FROM (SELECT place, coalesce(name::VARCHAR, 'NULL') AS name FROM ({reference.query})) "
        "GROUP BY place ORDER BY place",
        values,
    ).fetchall()
    for place, count, different, names in found:
        names_it = f"{_rows(count)} name{'s' if count == 1 else ''}"
        more = ", ..." if different > len(names) else ""
        what = f"{names_it} {reference.target} that is not there ({', '.join(names)}{more})"
        yield Damage(reference.table, place, what)


def _artifacts(
    connection: duckdb.DuckDBPyConnection, runs: Sequence[str] | None
) -> list[tuple[Artifact, type[Row]]]:
    """The complete tables of `runs`, or all."""
    kinds = {row.table: row for row in row_kinds()}
    found = connection.execute(
        "SELECT artifact_id::VARCHAR, digest::VARCHAR, kind, shards, row_count, failures "
        "FROM audit.artifacts WHERE digest IS NOT NULL AND ($runs IS NULL OR artifact_id IN "
        "(SELECT artifact_id FROM audit.run_steps WHERE list_contains($runs, run_id))) "
        "ORDER BY made_at, artifact_id",
        {"runs": runs},
    ).fetchall()
    return [(Artifact(*one), kinds[one[2]]) for one in found if one[2] in kinds]


def _table_faults(
    connection: duckdb.DuckDBPyConnection, artifact: Artifact, row: type[Row]
) -> Iterator[Damage]:
    def damage(what: str) -> Damage:
        return Damage(*_place(artifact), what)

    digests, as_stored = _digests(row), _digests(row)
    count = failed = 0
    other: list[int] = []
    for part in _parts(connection, artifact, row):
        other += _other_segments(connection, row, part)
        counted = in_digest_order(row, part)
        for digest in digests:
            digest.add(counted)
        # Before schema version 11 the order of rows was that in which their stage made them.
        for digest in as_stored if counted is not part else ():
            digest.add(part)
        count += part.height
        failed += part.filter(pl.col("status") == "failed").height if "status" in part else 0
    if count != artifact.row_count:
        yield damage(f"has {_rows(count)}, and {artifact.row_count:,} are on record")
    elif artifact.digest not in {digest.value() for digest in (*digests, *as_stored)}:
        yield damage(f"its rows are not those that were written (digest {artifact.digest})")
    elif other:
        listed = ", ".join(str(one) for one in other[:_SHOWN]) + ", ..." * (len(other) > _SHOWN)
        noun = "segment has" if len(other) == 1 else "segments have"
        yield damage(
            f"{len(other):,} {noun} other rows than were written, in columns that say how a "
            f"row came about, or another digest ({listed})"
        )
    yield from map(damage, _list_faults(connection, artifact))
    if failed != artifact.failures:
        yield damage(f"has {failed:,} failed rows, and {artifact.failures:,} are on record")
    repeated = _repeated_keys(connection, artifact, row)
    if repeated:
        yield damage(f"{_rows(repeated)} too many with the same key ({', '.join(row.key)})")


def _other_segments(
    connection: duckdb.DuckDBPyConnection, row: type[Row], part: pl.DataFrame
) -> list[int]:
    """The segments of a part whose digest is not on record, or on record more than once."""
    query = (
        "SELECT incoming.segment FROM incoming LEFT JOIN audit.segments AS stored "
        "ON stored.segment = incoming.segment AND stored.kind = $kind GROUP BY ALL "
        "HAVING count(*) <> 1 OR any_value(stored.digest) IS DISTINCT FROM "
        "any_value(incoming.digest)::UUID ORDER BY ALL"
    )
    found = segment_digests(row, part)
    return read_table(connection, query, found, kind=row.table)["segment"].to_list()


def _list_faults(connection: duckdb.DuckDBPyConnection, artifact: Artifact) -> Iterator[str]:
    """What is wrong with the lists of segments of the parts of a table."""
    lists = connection.execute(
        "SELECT shard, any_value(digest), list(segment ORDER BY place) "
        "FROM audit.artifact_parts JOIN audit.artifact_segments USING (artifact_id, shard) "
        "WHERE artifact_id = $id GROUP BY shard ORDER BY shard",
        {"id": artifact.artifact_id},
    ).fetchall()
    for shard, digest, segments in lists:
        if digest != UUID(list_digest(segments)):
            yield f"the list of the segments of its part {shard} is not the one that was written"


def _digests(row: type[Row]) -> list[Digest]:
    """A digest of each set of columns that digests covered under some schema version."""
    versions = range(1, SCHEMA_VERSION + 1)
    columns = dict.fromkeys(content_columns_at(row, version) for version in versions)
    return [Digest(row, names) for names in columns]


def _parts(
    connection: duckdb.DuckDBPyConnection, artifact: Artifact, row: type[Row]
) -> Iterator[pl.DataFrame]:
    for shards in groups_of_parts(artifact.shards):
        columns = ("segment", *row.model_fields)
        rows = read_shards(connection, row, artifact, shards, columns=columns)
        yield from by_shard(rows, shards)


def _repeated_keys(
    connection: duckdb.DuckDBPyConnection, artifact: Artifact, row: type[Row]
) -> int:
    key = ", ".join(f'"{name}"' for name in row.key)
    ((repeated,),) = connection.execute(
        f"SELECT count(*) - count(DISTINCT row({key})) FROM {rows_of(row)} WHERE artifact_id = $id",
        {"id": artifact.artifact_id},
    ).fetchall()
    return int(repeated)


def _not_finite(connection: duckdb.DuckDBPyConnection, tables: Sequence[str]) -> Iterator[Damage]:
    """One fault for each artifact and column that holds NaN or infinity."""
    for row in row_kinds():
        for name, dtype in schema(row).items():
            if dtype.is_float():
                found = read_table(
                    connection,
                    f"SELECT artifact_id::VARCHAR AS artifact, count(*) AS n "
                    f'FROM {rows_of(row)} WHERE NOT isfinite("{name}") '
                    "AND list_contains($tables, artifact_id::VARCHAR) GROUP BY ALL ORDER BY ALL",
                    tables=list(tables),
                )
                for artifact, n in found.iter_rows():
                    what = f"NaN or infinity in {name!r} of {_rows(n)}"
                    yield Damage(row.table, f"artifact {artifact}", what)


def _impossible_calls(connection: duckdb.DuckDBPyConnection) -> Iterator[Damage]:
    """One fault for each run with calls of negative tokens or cost, which the first release stored.

    They lower every sum that they are in.
    """
    found = connection.execute(
        "SELECT run_id, count(*) FROM audit.calls "
        "WHERE prompt_tokens < 0 OR cached_tokens < 0 OR completion_tokens < 0 OR cost < 0 "
        "GROUP BY run_id ORDER BY run_id"
    ).fetchall()
    for run_id, count in found:
        what = f"negative tokens or cost in {_rows(count)}; sums of this run are too low"
        yield Damage("audit.calls", f"run {run_id}", what)


def _unreadable_journals(store: Store) -> Iterator[Damage]:
    found = store.path.parent.glob(f"{glob.escape(store.path.name)}.*{UNREADABLE}")
    for path in sorted(found):
        what = (
            "calls of a run that could not be saved; open it with the version of claimflow that "
            "wrote it, under its name without the ending, or delete it"
        )
        yield Damage("audit.calls", f"file {path.name}", what)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"
