"""The ledger: replies of models, keyed by request."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import duckdb
import polars as pl

from claimflow.flows.store.arrow import insert, read_table
from claimflow.flows.store.store import Store, now

_MEMORY: Final = "128MB"
"""Memory limit for writing a few replies. Now and then DuckDB rewrites the newest 100,000 calls
with their prompts, and without a limit it takes a gigabyte for that."""


_ROWS_AT_ONCE: Final = 16_384
"""Rows of a ledger that are copied in one transaction: a row group of DuckDB's, some 30 MB."""


class TakenOver(NamedTuple):
    """How many calls and replies were copied, and how many replies were there already."""

    calls: int
    replies: int
    known: int


class Ledger:
    """Stored replies of models by content key. A reply is written before it is used."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def recall(self, keys: Sequence[str], *, since: datetime | None = None) -> dict[str, bytes]:
        """The newest stored reply to each of `keys` that has one, in one query.

        With `since` only replies written at or after that time count.
        """
        if not keys or not self.store.path.is_file():
            return {}
        asked = pl.DataFrame({"key": list(keys)})
        with self.store.reading() as connection:
            found = read_table(
                connection,
                "SELECT key, arg_max(reply, made_at) AS reply FROM audit.replies "
                "SEMI JOIN (SELECT key::UUID AS key FROM incoming) USING (key) "
                "WHERE made_at >= coalesce($since, made_at) GROUP BY key",
                asked,
                since=since,
            )
        return dict(zip(found["key"], found["reply"], strict=True))

    def remember(
        self,
        tool: str,
        replies: Mapping[str, bytes],
        *,
        calls: pl.DataFrame | None = None,
        closed: Sequence[str] = (),
    ) -> None:
        """Write the replies of `tool` in one transaction.

        `calls` are the rows of `audit.calls` for the calls that gave them; those that are stored
        already are skipped. `closed` are ids of calls that no later run is to continue.
        """
        frame = pl.DataFrame(
            {"key": list(replies), "reply": list(replies.values())},
            schema={"key": pl.String, "reply": pl.Binary},
        )

        def write(memory: str | None) -> None:
            with self.store.writing(memory=memory) as connection:
                insert(connection, "audit.replies", frame, tool=tool, made_at=now())
                if calls is not None:
                    missing = _not_stored(connection, "audit.calls", calls, {"call_id": "UUID"})
                    insert(connection, "audit.calls", missing)
                if closed:
                    connection.execute(
                        "UPDATE audit.calls SET open = false "
                        "WHERE call_id IN (SELECT unnest($ids)::UUID)",
                        {"ids": list(closed)},
                    )

        try:
            write(_MEMORY)
        except duckdb.OutOfMemoryException:
            write(None)

    def take_over(self, other: Store) -> TakenOver:
        """Copy the calls and replies of `other` that are not here.

        Calls come before the replies that name them, some thousands in each transaction: when a
        copy is interrupted, a second one continues it. The file of `other` is open for as long.
        Raises `InputError` where it is no store of this schema version.
        """
        with other.reading() as source:
            calls, _ = self._copy(source, "audit.calls", {"call_id": "UUID"})
            # One key has a reply for each time that it was asked about.
            key = {"key": "UUID", "made_at": "TIMESTAMP"}
            replies, known = self._copy(source, "audit.replies", key)
        return TakenOver(calls, replies, known)

    def _copy(
        self, source: duckdb.DuckDBPyConnection, table: str, key: Mapping[str, str]
    ) -> tuple[int, int]:
        """Copy the rows of `table` that are not here; how many are copied, and how many were here.

        `key` are the columns that tell rows apart, with their types.
        """
        copied = known = 0
        [[last]] = source.execute(f"SELECT coalesce(max(rowid), -1) FROM {table}").fetchall()
        for first in range(0, last + 1, _ROWS_AT_ONCE):
            found = read_table(
                source,
                f"SELECT * FROM {table} WHERE rowid >= $first AND rowid < $first + $count",
                first=first,
                count=_ROWS_AT_ONCE,
            )
            with self.store.writing() as connection:
                missing = _not_stored(connection, table, found, key)
                insert(connection, table, missing)
            copied += missing.height
            known += found.height - missing.height
        return copied, known


def _not_stored(
    connection: duckdb.DuckDBPyConnection, table: str, rows: pl.DataFrame, key: Mapping[str, str]
) -> pl.DataFrame:
    """Those of `rows` whose `key`, columns with their types, no row of `table` has."""
    equal = " AND ".join(f"stored.{one} = incoming.{one}::{kind}" for one, kind in key.items())
    return read_table(
        connection, f"SELECT * FROM incoming ANTI JOIN {table} AS stored ON {equal}", rows
    )
