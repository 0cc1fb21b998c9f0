"""The ledger: replies of models, keyed by request."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

import duckdb
import polars as pl

from claimflow.flows.store.arrow import insert, quoted_name, read_table
from claimflow.flows.store.read_copy import COPY_MEMORY
from claimflow.flows.store.store import Store, now

_MEMORY: Final = "128MB"
"""Memory limit for writing a few replies. Now and then DuckDB rewrites the newest 100,000 calls
with their prompts, and without a limit it takes a gigabyte for that."""

_ROWS_AT_FIRST, _FEWEST_ROWS, _MOST_ROWS = 1_024, 64, 32_768
"""Rows of another ledger that are copied in the first transaction, and in any."""

_SAME_REPLY: Final = {"key": "UUID", "reply": "BLOB"}
"""The columns that tell replies apart. A key has one for each time that it was asked about; the
same reply has another time in each store that a shared ledger gave it."""

_BYTES_AT_ONCE: Final = 32 << 20
"""Bytes of rows that are copied in one transaction, if they are as long as those before them."""

Result = TypeVar("Result")


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

    def calls(self, ids: Sequence[str], columns: Sequence[str]) -> pl.DataFrame:
        """These columns of the rows of `audit.calls` with these ids, in no order."""
        with self.store.reading() as connection:
            return read_table(
                connection,
                f"SELECT {', '.join(map(quoted_name, columns))} FROM audit.calls "
                "SEMI JOIN (SELECT call_id::UUID AS call_id FROM incoming) USING (call_id)",
                pl.DataFrame({"call_id": list(ids)}, schema={"call_id": pl.String}),
            )

    def remember(
        self,
        tool: str,
        replies: Mapping[str, bytes],
        *,
        calls: pl.DataFrame | None = None,
        closed: Sequence[str] = (),
        call_of: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Write the replies of `tool` in one transaction.

        `calls` are the rows of `audit.calls` for the calls that gave them, and `call_of` says which
        one gave which reply; calls that are stored already are skipped with their replies. `closed`
        are ids of calls that no later run is to continue.
        """
        frame = pl.DataFrame(
            {"key": list(replies), "reply": list(replies.values())},
            schema={"key": pl.String, "reply": pl.Binary},
        )

        def write(memory: str | None) -> None:
            new = frame
            with self.store.writing(memory=memory) as connection:
                if calls is not None:
                    missing = _not_stored(connection, "audit.calls", calls, {"call_id": "UUID"})
                    insert(connection, "audit.calls", missing)
                    known = set(calls["call_id"]).difference(missing["call_id"])
                    again = [key for key, call in call_of.items() if call in known]
                    new = _without_repeated(connection, frame, again)
                insert(connection, "audit.replies", new, tool=tool, made_at=now())
                if closed:
                    _close(connection, closed)

        _written(write, _MEMORY)

    def take_over(self, other: Store) -> TakenOver:
        """Copy the calls and replies of `other` that are not here.

        Calls come before the replies that name them, some thousands in each transaction: when a
        copy is interrupted, a second one continues it. The file of `other` is open for as long.
        Raises `InputError` where one of the two is no store of this schema version.
        """
        with other.reading() as source:
            calls, _ = self._copy(source, "audit.calls", {"call_id": "UUID"})
            self._close_calls(source)
            replies, known = self._copy(source, "audit.replies", _SAME_REPLY)
        return TakenOver(calls, replies, known)

    def _copy(
        self, source: duckdb.DuckDBPyConnection, table: str, key: Mapping[str, str]
    ) -> tuple[int, int]:
        """Copy the rows of `table` that are not here; how many are copied, and how many were here.

        `key` are the columns that tell rows apart, with their types.
        """
        with self.store.reading() as connection:
            ours = connection.table(table).columns
        # Someone may have added a column to one of the two.
        both = [name for name in source.table(table).columns if name in ours]
        columns = ", ".join(map(quoted_name, both))
        copied = known = first = 0
        count = _ROWS_AT_FIRST
        [[last]] = source.execute(f"SELECT coalesce(max(rowid), -1) FROM {table}").fetchall()
        while first <= last:
            found = read_table(
                source,
                f"SELECT {columns} FROM {table} WHERE rowid >= $first AND rowid < $first + $count",
                first=first,
                count=count,
            )
            first += count
            of_row = int(found.estimated_size()) // max(1, found.height) + 1
            count = min(_MOST_ROWS, max(_FEWEST_ROWS, _BYTES_AT_ONCE // of_row))
            written = _written(partial(self._insert_missing, table, found, key), COPY_MEMORY)
            copied += written
            known += found.height - written
        return copied, known

    def _insert_missing(
        self, table: str, rows: pl.DataFrame, key: Mapping[str, str], memory: str | None
    ) -> int:
        with self.store.writing(memory=memory) as connection:
            missing = _not_stored(connection, table, rows, key)
            insert(connection, table, missing)
        return missing.height

    def _close_calls(self, source: duckdb.DuckDBPyConnection) -> None:
        """Close calls that were copied while their wrong replies were still to be shown."""
        with self.store.reading() as connection:
            ours = read_table(connection, "SELECT call_id FROM audit.calls WHERE open")
        closed = read_table(
            source,
            "SELECT call_id FROM audit.calls SEMI JOIN incoming "
            "ON calls.call_id = incoming.call_id::UUID WHERE NOT open",
            ours,
        )
        if closed.height:
            with self.store.writing() as connection:
                _close(connection, closed["call_id"].to_list())


def _written(write: Callable[[str | None], Result], memory: str) -> Result:
    """What `write` returns within `memory`, or without a limit where DuckDB needs more."""
    try:
        return write(memory)
    except duckdb.OutOfMemoryException:
        return write(None)


def _close(connection: duckdb.DuckDBPyConnection, calls: Sequence[str]) -> None:
    connection.execute(
        "UPDATE audit.calls SET open = false WHERE call_id IN (SELECT unnest($ids)::UUID)",
        {"ids": list(calls)},
    )


def _without_repeated(
    connection: duckdb.DuckDBPyConnection, replies: pl.DataFrame, again: Sequence[str]
) -> pl.DataFrame:
    """The replies without those to the keys in `again` that are stored already.

    A request was repeated, or another run on this store was given the same.
    """
    if not again:
        return replies
    is_again = pl.col("key").is_in(again)
    others = _not_stored(connection, "audit.replies", replies.filter(is_again), _SAME_REPLY)
    return pl.concat([replies.filter(~is_again), others])


def _not_stored(
    connection: duckdb.DuckDBPyConnection, table: str, rows: pl.DataFrame, key: Mapping[str, str]
) -> pl.DataFrame:
    """Those of `rows` whose `key`, columns with their types, no row of `table` has."""
    equal = " AND ".join(f"stored.{one} = incoming.{one}::{kind}" for one, kind in key.items())
    return read_table(
        connection, f"SELECT * FROM incoming ANTI JOIN {table} AS stored ON {equal}", rows
    )
