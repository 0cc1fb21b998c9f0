"""The ledger: replies of models, keyed by request."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import duckdb
import polars as pl

from claimflow.flows.store.arrow import insert, read_table
from claimflow.flows.store.store import Store, now

_MEMORY: Final = "128MB"
"""Memory limit for writing a few replies. Now and then DuckDB rewrites the newest 100,000 calls
with their prompts, and without a limit it takes a gigabyte for that."""


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
                    insert(connection, "audit.calls", _not_stored(connection, calls))
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


def _not_stored(connection: duckdb.DuckDBPyConnection, calls: pl.DataFrame) -> pl.DataFrame:
    return read_table(
        connection,
        "SELECT * FROM incoming "
        "ANTI JOIN audit.calls AS stored ON stored.call_id = incoming.call_id::UUID",
        calls,
    )
