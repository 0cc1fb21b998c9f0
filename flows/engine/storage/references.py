"""What names something else in a store that is not there."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import duckdb

from claimflow.flows.engine.storage.store import Store
from claimflow.stages.rows import row_kinds

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
