"""The samples that finished runs have seen, for pipelines with `since: last_run`.

Samples are remembered one by one and not by a time: one that arrives late is new whatever its time
is. The table has at most as many rows as the input of each pipeline has samples, and those that it
had before one of its files was damaged, until that is whole again.
"""

from typing import NamedTuple

import polars as pl

from claimflow.flows.files import is_file
from claimflow.flows.store.arrow import Arrow, read_table
from claimflow.flows.store.schema import has_table
from claimflow.flows.store.store import Store


class Seen(NamedTuple):
    """The keys of the samples that finished runs saw.

    `again` are those that the last one saw first, for a run that repeats it; None where there is
    none, and where a newer run did not finish, so that what is repeated is not seen yet.
    """

    keys: pl.Series
    again: pl.Series | None


def seen_samples(store: Store, pipeline: str) -> Seen:
    """What the finished runs of a pipeline have seen; nothing in a store of an older version."""
    found = pl.DataFrame(schema={"key": pl.String, "last": pl.Boolean})
    finished = False
    if is_file(store.path):
        with store.reading(any_version=True) as connection:
            if has_table(connection, "seen_samples"):
                found = read_table(
                    connection,
                    "SELECT key::VARCHAR AS key, run_id = max(run_id) OVER () AS last "
                    "FROM audit.seen_samples WHERE pipeline = $pipeline",
                    pipeline=pipeline,
                )
                # A partial run repeats another one itself.
                [(newest_done,)] = connection.execute(
                    "SELECT arg_max(status = 'done', started_at) FROM audit.runs "
                    "WHERE pipeline = $pipeline AND selection IS NULL",
                    {"pipeline": pipeline},
                ).fetchall()
                finished = bool(newest_done) and found.height > 0
    return Seen(found["key"], found.filter("last")["key"] if finished else None)


def remember_seen(store: Store, pipeline: str, run_id: str, keys: pl.Series) -> None:
    """Record that a finished run has seen the samples with these keys, and forget all others."""
    incoming = Arrow(keys.rename("key").to_frame().unique())  # noqa: F841, DuckDB finds it
    with store.writing() as connection:
        known = "SELECT key FROM audit.seen_samples WHERE pipeline = $pipeline"
        connection.execute(
            "DELETE FROM audit.seen_samples WHERE pipeline = $pipeline "
            "AND key NOT IN (SELECT key::UUID FROM incoming)",
            {"pipeline": pipeline},
        )
        connection.execute(
            "INSERT INTO audit.seen_samples SELECT $pipeline, key::UUID, $run FROM incoming "
            f"WHERE key::UUID NOT IN ({known})",
            {"pipeline": pipeline, "run": run_id},
        )
