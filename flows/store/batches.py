"""Batches of calls: what was submitted, and which of its calls are still without a stored reply."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import polars as pl

from claimflow.flows.store.arrow import insert, read_table
from claimflow.flows.store.store import Store, now


class BatchCall(NamedTuple):
    """A call of a batch; `keys` are the ledger keys of the replies that it is to give."""

    batch_id: str
    call_id: str
    rung: str
    keys: tuple[str, ...]


class StoredBatch(NamedTuple):
    """A batch, with the provider's id if it is known to be submitted, and the ids of its calls."""

    batch_id: str
    provider_batch: str | None
    submitted_at: datetime
    calls: tuple[str, ...]


_OPEN: Final = "ended_at IS NULL AND call_id NOT IN (SELECT call_id FROM audit.calls)"


class Batches:
    """The batches of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def open_calls(
        self, keys: Collection[str], *, since: datetime | None = None
    ) -> list[BatchCall]:
        """The calls without a stored reply that ask for `keys` only.

        With `since` only those of batches that were submitted at or after that time.
        """
        if not keys or not self._store.path.is_file():
            return []
        with self._store.reading() as connection:
            asked = pl.DataFrame({"key": list(keys)})
            found = read_table(
                connection,
                f"""
                WITH wanted AS (SELECT key::UUID AS key FROM incoming),
                open AS (
                    SELECT batch_id, call_id, rung, keys
                    FROM audit.batch_calls JOIN audit.batches USING (batch_id)
                    WHERE {_OPEN} AND submitted_at >= coalesce($since, submitted_at)
                )
                SELECT batch_id::VARCHAR, call_id::VARCHAR, rung, keys::VARCHAR[] FROM open
                WHERE NOT EXISTS (
                    SELECT 1 FROM (SELECT unnest(keys) AS key) ANTI JOIN wanted USING (key)
                )
                """,
                asked,
                since=since,
            )
        return [
            BatchCall(batch_id, call_id, rung, tuple(of))
            for batch_id, call_id, rung, of in found.iter_rows()
        ]

    def read(self, batch_id: str) -> StoredBatch:
        """A batch."""
        with self._store.reading() as connection:
            query = (
                "SELECT batch_id::VARCHAR, provider_batch, submitted_at, list(call_id::VARCHAR) "
                "FROM audit.batches JOIN audit.batch_calls USING (batch_id) "
                "WHERE batch_id = $batch_id::UUID GROUP BY ALL"
            )
            row = read_table(connection, query, batch_id=batch_id).row(0)
            return StoredBatch(row[0], row[1], row[2], tuple(row[3]))

    def add(
        self,
        batch_id: str,
        calls: Sequence[BatchCall],
        *,
        run_id: str,
        judge: str,
        model: str,
        api_base: str | None,
        fresh_since: datetime | None,
    ) -> None:
        """Record a batch before it is submitted."""
        rows = pl.DataFrame(
            [(call.call_id, call.rung, list(call.keys)) for call in calls],
            schema={"call_id": pl.String, "rung": pl.String, "keys": pl.List(pl.String)},
            orient="row",
        )
        values = {"batch_id": batch_id, "run_id": run_id, "judge": judge, "model": model}
        with self._store.writing() as connection:
            connection.execute(
                "INSERT INTO audit.batches VALUES "
                "($batch_id, $run_id, $judge, $model, $api_base, NULL, $now, NULL, NULL, $since)",
                {**values, "api_base": api_base, "now": now(), "since": fresh_since},
            )
            insert(connection, "audit.batch_calls", rows, batch_id=batch_id)

    def fresh_since(self, pipeline: str) -> datetime | None:
        """From when a run asks anew whose batches are open; None where there is no such run.

        Batches of more than two days ago count no more.
        """
        if not self._store.path.is_file():
            return None
        query = (
            "SELECT min(fresh_since) FROM audit.batches JOIN audit.runs USING (run_id) "
            "WHERE pipeline = $pipeline AND batches.ended_at IS NULL AND submitted_at > $old"
        )
        with self._store.reading() as connection:
            old = now() - timedelta(days=2)
            since: datetime | None = read_table(
                connection, query, pipeline=pipeline, old=old
            ).item()
        return since

    def submitted(self, batch_id: str, provider_batch: str) -> None:
        """Record the provider's id of a batch."""
        self._execute(
            "UPDATE audit.batches SET provider_batch = $id WHERE batch_id = $batch_id",
            batch_id,
            id=provider_batch,
        )

    def refused(self, batch_id: str, message: str | None) -> None:
        """Record that the provider does not have a batch, or does not do it."""
        self._execute(
            "UPDATE audit.batches SET ended_at = $now, message = $message "
            "WHERE batch_id = $batch_id",
            batch_id,
            now=now(),
            message=message,
        )

    def note(self, batch_id: str, message: str) -> None:
        """Record why a batch was not done as a whole."""
        self._execute(
            "UPDATE audit.batches SET message = $message WHERE batch_id = $batch_id",
            batch_id,
            message=message,
        )

    def end(self, batch_id: str) -> None:
        """Record the end of a batch if the replies of all its calls are stored."""
        self._execute(
            "UPDATE audit.batches SET ended_at = $now WHERE batch_id = $batch_id "
            "AND NOT EXISTS (SELECT 1 FROM audit.batch_calls AS calls "
            "WHERE calls.batch_id = batches.batch_id "
            "AND call_id NOT IN (SELECT call_id FROM audit.calls))",
            batch_id,
            now=now(),
        )

    def _execute(self, query: str, batch_id: str, **values: Any) -> None:
        with self._store.writing() as connection:
            connection.execute(query, {"batch_id": batch_id, **values})
