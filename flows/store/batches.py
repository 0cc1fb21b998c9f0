"""Batches of calls: what was submitted, and which of its calls are still without a stored reply."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple

import polars as pl

from claimflow.flows.store.arrow import insert, read_table
from claimflow.flows.store.store import Store, now


class BatchCall(NamedTuple):
    """A call of a batch; `keys` are the ledger keys of the replies that it is to give.

    `reserved` is what it may cost, in US dollars at the price of batches; None where the price is
    unknown.
    """

    batch_id: str
    call_id: str
    rung: str
    keys: tuple[str, ...]
    step: str | None = None
    reserved: Decimal | None = None


class StoredBatch(NamedTuple):
    """A batch, with the provider's id if it is known to be submitted, and the ids of its calls."""

    batch_id: str
    provider_batch: str | None
    submitted_at: datetime
    calls: tuple[str, ...]


_OPEN: Final = "ended_at IS NULL AND call_id NOT IN (SELECT call_id FROM audit.calls)"


_WINDOW: Final = timedelta(days=1)
"""Within which all providers promise the replies of a batch."""

_LISTED: Final = """
SELECT run_id, array_to_string(
    list_sort(list_distinct(flatten(list(string_split(batch_calls.step, ', '))))), ', '
) AS step,
  split_part(batches.model, '/', 1) AS provider, provider_batch AS batch,
  CASE WHEN batches.ended_at IS NULL AND provider_batch IS NULL THEN 'submitting'
       WHEN batches.ended_at IS NULL AND count(calls.call_id) > 0 THEN 'collected in part'
       WHEN batches.ended_at IS NULL THEN 'open'
       WHEN count(calls.call_id) < count(*) THEN 'refused'
       ELSE 'collected' END AS state,
  count(*) AS requests,
  count(*) FILTER (outcome IN ('ok', 'repaired', 'partial')) AS answered,
  count(*) FILTER (outcome NOT IN ('ok', 'repaired', 'partial')) AS failed,
  submitted_at,
  CASE WHEN batches.ended_at IS NULL THEN submitted_at + $window END AS expires_at,
  CASE WHEN bool_and(cost IS NOT NULL)
            FILTER (outcome IN ('ok', 'repaired', 'partial')) IS NOT false
       THEN coalesce(sum(cost), 0)::DOUBLE END AS cost,
  CASE WHEN batches.ended_at IS NOT NULL THEN 0
       WHEN bool_and(reserved IS NOT NULL) FILTER (calls.call_id IS NULL) IS NOT false
       THEN coalesce(sum(reserved) FILTER (calls.call_id IS NULL), 0)::DOUBLE END AS reserved,
  message
FROM audit.batches JOIN audit.batch_calls USING (batch_id)
LEFT JOIN (SELECT call_id, outcome, cost FROM audit.calls) AS calls USING (call_id)
GROUP BY run_id, batches.batch_id, batches.model, provider_batch, batches.ended_at, submitted_at,
  message
ORDER BY submitted_at DESC, provider_batch
"""

_RESERVED: Final = f"""
SELECT run_id, count(*) AS calls,
  CASE WHEN bool_and(reserved IS NOT NULL) THEN sum(reserved) END AS reserved
FROM audit.batches JOIN audit.batch_calls USING (batch_id) WHERE {_OPEN} GROUP BY run_id
"""


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
                    SELECT batch_id, call_id, rung, keys, step, reserved
                    FROM audit.batch_calls JOIN audit.batches USING (batch_id)
                    WHERE {_OPEN} AND submitted_at >= coalesce($since, submitted_at)
                )
                SELECT batch_id::VARCHAR, call_id::VARCHAR, rung, keys::VARCHAR[], step, reserved
                FROM open
                WHERE NOT EXISTS (
                    SELECT 1 FROM (SELECT unnest(keys) AS key) ANTI JOIN wanted USING (key)
                )
                """,
                asked,
                since=since,
            )
        return [
            BatchCall(batch_id, call_id, rung, tuple(of), step, reserved)
            for batch_id, call_id, rung, of, step, reserved in found.iter_rows()
        ]

    def listed(self) -> pl.DataFrame:
        """Every batch, newest first, by what is in the store: no provider is asked.

        `cost` is that of the calls that were answered, `reserved` what the others may cost, both in
        US dollars at the price of batches, NULL where a price is unknown.
        """
        with self._store.reading() as connection:
            return read_table(connection, _LISTED, window=_WINDOW)

    def reserved(self) -> pl.DataFrame:
        """The runs whose batches have not ended: calls without a reply, and what they may cost."""
        with self._store.reading() as connection:
            return read_table(connection, _RESERVED)

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
            [
                (
                    *(one.call_id, one.rung, list(one.keys), one.step),
                    None if one.reserved is None else round(one.reserved, 9),
                )
                for one in calls
            ],
            schema={
                "call_id": pl.String,
                "rung": pl.String,
                "keys": pl.List(pl.String),
                "step": pl.String,
                "reserved": pl.Decimal(18, 9),
            },
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
