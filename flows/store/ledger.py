"""The ledger: replies of models, keyed by request."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import duckdb
import polars as pl

from claimflow.flows.store.arrow import Arrow
from claimflow.flows.store.store import Store, insert, now, read_table

_LITTLE: Final = "128MB"
"""Memory for a few replies. Now and then DuckDB rewrites the newest 100,000 calls, prompts and
all, and would take a gigabyte for it."""


class Ledger:
    """Replies on file by content key. A reply is written before anyone uses it."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def recall(self, keys: Sequence[str], *, since: datetime | None = None) -> dict[str, bytes]:
        """The newest remembered reply to each of `keys` that has one, in one look-up.

        With `since` replies remembered before that moment do not count.
        """
        if not keys or not self.store.path.is_file():
            return {}
        asked = pl.DataFrame({"key": list(keys)})
        with self.store.reading() as connection:
            connection.register("asked", Arrow(asked))
            found = read_table(
                connection,
                "SELECT key, arg_max(reply, made_at) AS reply FROM audit.replies "
                "SEMI JOIN (SELECT key::UUID AS key FROM asked) USING (key) "
                "WHERE made_at >= coalesce($since, made_at) GROUP BY key",
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

        `calls` are rows of `audit.calls` that brought them, those on file already left out;
        `closed` are the ids of calls that no run is to take up again.
        """
        frame = pl.DataFrame(
            {"key": list(replies), "reply": list(replies.values())},
            schema={"key": pl.String, "reply": pl.Binary},
        )

        def write(memory: str | None) -> None:
            with self.store.writing(memory=memory) as connection:
                insert(connection, "audit.replies", frame, tool=tool, made_at=now())
                if calls is not None:
                    insert(connection, "audit.calls", _new(connection, calls))
                if closed:
                    _close(connection, closed)

        try:
            write(_LITTLE)
        except duckdb.OutOfMemoryException:
            write(None)


def _close(connection: duckdb.DuckDBPyConnection, ids: Sequence[str]) -> None:
    connection.execute(
        "UPDATE audit.calls SET open = false WHERE call_id IN (SELECT unnest($ids)::UUID)",
        {"ids": list(ids)},
    )


def _new(connection: duckdb.DuckDBPyConnection, calls: pl.DataFrame) -> pl.DataFrame:
    """The calls that are not on file."""
    connection.register("calls", Arrow(calls))
    query = (
        "SELECT * FROM calls ANTI JOIN audit.calls AS filed ON filed.call_id = calls.call_id::UUID"
    )
    found = read_table(connection, query)
    connection.unregister("calls")
    return found
