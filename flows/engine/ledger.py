"""The ledger: what a model replied, remembered by what it was asked."""

from collections.abc import Mapping, Sequence

import polars as pl

from flows.engine.arrow import Arrow
from flows.engine.store import Store, insert, now, read_table


class Ledger:
    """Replies on file by content key. A reply is written before anyone uses it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def recall(self, keys: Sequence[str]) -> dict[str, bytes]:
        """The remembered replies among `keys`, in one look-up."""
        if not keys or not self._store.path.is_file():
            return {}
        asked = pl.DataFrame({"key": list(keys)})
        with self._store.reading() as connection:
            connection.register("asked", Arrow(asked))
            found = read_table(
                connection,
                "SELECT key, any_value(reply) AS reply FROM audit.replies "
                "SEMI JOIN (SELECT key::UUID AS key FROM asked) USING (key) GROUP BY key",
            )
        return dict(zip(found["key"], found["reply"], strict=True))

    def remember(self, tool: str, replies: Mapping[str, bytes]) -> None:
        """Write the replies of `tool` in one transaction."""
        frame = pl.DataFrame(
            {"key": list(replies), "reply": list(replies.values())},
            schema={"key": pl.String, "reply": pl.Binary},
        )
        with self._store.writing() as connection:
            insert(connection, "audit.replies", frame, tool=tool, made_at=now())
