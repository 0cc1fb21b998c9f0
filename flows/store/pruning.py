"""Remove old runs, and make the file of a store smaller."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final, NamedTuple

import duckdb

from claimflow.flows.errors import StoreFullError
from claimflow.flows.store.connection import log_path
from claimflow.flows.store.integrity import CALLS_OF_VOTES
from claimflow.flows.store.read_copy import (
    COPY_MEMORY,
    REWRITTEN,
    bounded,
    copying,
    fold_log,
    rewrite,
)
from claimflow.flows.store.runs import CURRENT_TAGS, refuse_in_progress
from claimflow.flows.store.store import Store, now
from claimflow.stages.rows import Sample, row_kinds


class Retention(NamedTuple):
    """Which runs to keep, beside all that have a tag.

    The newest `runs` completed runs of each pipeline and the runs of the last `days` days: a run
    that one of the two keeps is kept. None keeps none. With `replies` all replies of models are
    kept, with `pipeline` all runs of other pipelines.
    """

    runs: int | None = None
    days: int | None = None
    replies: bool = True
    pipeline: str | None = None


class Saving(NamedTuple):
    """About how many bytes the file would lose: free blocks, and rows that no kept run uses."""

    free: int
    unused: int


class Pruned(NamedTuple):
    """What was or would be removed, in numbers, and the bytes of the file before and after.

    `exempt` are the runs that are kept though they are old: with their tags, or None where a gate
    of a kept run compared with it. `emptied` counts the calls that stay without their texts,
    `replies` what was said to calls, `results` what local models found, such as embeddings.
    `after` is None where nothing was removed, and `saving` what would be saved.
    """

    removed: list[str]
    kept: int
    exempt: dict[str, str | None]
    tables: int
    rows: int
    calls: int
    emptied: int
    replies: int
    results: int
    before: int
    after: int | None
    saving: Saving | None


def prune(
    store: Store, retention: Retention, *, dry_run: bool = False, memory: str = COPY_MEMORY
) -> Pruned:
    """Remove the runs that are not to be kept, and what only they used.

    Tables that a kept run reused stay, also those that a removed run made, and so do edits and
    the calls that a kept row refers to. Calls that only a kept reply refers to stay without their
    texts, unless the store has no runs at all, as that of a shared ledger. What is kept is written
    to a new file, as by `compact`. Raises `StoreBusyError` while a run is in progress.
    """
    before = store.path.stat().st_size if store.path.is_file() else 0
    if dry_run:
        with store.reading(config=bounded(memory)) as connection:
            found = _select(connection, store, retention, before)
            return found._replace(saving=_saving(connection))
    # Of an older schema version it is migrated here.
    with store.writing():
        pass
    with _replacing(store, memory) as (connection, folder):
        found = _select(connection, store, retention, before)
        rewrite(connection, folder, kept=_kept_rows())
    return found._replace(after=store.path.stat().st_size)


def compact(store: Store, *, memory: str = COPY_MEMORY) -> None:
    """Rewrite the file without the space of removed rows; the new file replaces the old at once.

    A crash leaves either file whole. Others may read meanwhile. DuckDB takes at most `memory`.
    Raises `StoreFullError` where the disk has no room for both.
    """
    fold_log(store)
    with _replacing(store, memory) as (connection, folder):
        rewrite(connection, folder)


@contextmanager
def _replacing(store: Store, memory: str) -> Iterator[tuple[duckdb.DuckDBPyConnection, Path]]:
    """As `copying`; what `rewrite` leaves in the folder replaces the file of the store."""
    with copying(store, store.path, memory=memory) as (connection, folder):
        if log_path(store.path).exists():
            what = "its log cannot be moved into it; make room on the disk and try again"
            raise StoreFullError(f"{store.path}: {what}")
        yield connection, folder
        part = folder / REWRITTEN
        shutil.copymode(store.path, part)
        part.replace(store.path)
        # Another process may have opened the old file without having locked it yet. If it
        # got the lock, it would write into a file that has no name any more.
        time.sleep(_SECONDS_LOCKED)


def _select(
    connection: duckdb.DuckDBPyConnection, store: Store, retention: Retention, before: int
) -> Pruned:
    """Choose what is kept, in temporary tables, and count what is not."""
    refuse_in_progress(connection, store.path)
    _select_kept(connection, retention)
    return _count(connection, before)


_SECONDS_LOCKED: Final = 0.2
"""How long the lock of a replaced file is kept."""


def _select_kept(connection: duckdb.DuckDBPyConnection, retention: Retention) -> None:
    """Make temporary tables of the runs, tables, calls and replies that are kept."""
    since = now() - timedelta(days=retention.days) if retention.days else None
    values = {"runs": retention.runs, "since": since, "pipeline": retention.pipeline}
    connection.execute(_KEPT_RUNS, values)
    connection.execute(_KEPT_TABLES)
    connection.execute(
        "CREATE TEMP TABLE kept_segments AS SELECT DISTINCT kind, segment "
        "FROM audit.artifact_segments SEMI JOIN kept_tables USING (artifact_id)"
    )
    named = " UNION ".join(
        f"SELECT call_id FROM stored.{row.table} WHERE {_used_rows(row.table)}"
        for row in row_kinds()
        if "call_id" in row.model_fields
    )
    for table in ("verdicts", "rubric_verdicts"):
        named += f" UNION SELECT {CALLS_OF_VOTES} FROM stored.{table} WHERE {_used_rows(table)}"
    # A NULL among them would make NULL of every NOT IN.
    connection.execute(
        f"CREATE TEMP TABLE named_calls AS SELECT * FROM ({named}) WHERE call_id IS NOT NULL"
    )
    forget = {"forget": not retention.replies}
    connection.execute(_REMEMBERED, forget | {"since": since})
    connection.execute(_OF_OTHER_STORES, forget)


_KEPT_RUNS: Final = f"""
CREATE TEMP TABLE kept_runs AS
WITH ended AS (
  SELECT pipeline, started_at,
         row_number() OVER (PARTITION BY pipeline ORDER BY started_at DESC) AS place
  FROM audit.runs
  -- A partial run takes the place of no whole one.
  WHERE status = 'measured' OR run_id IN (SELECT run_id FROM audit.whole_runs)
),
-- A pipeline with fewer runs keeps all of them.
first AS (SELECT pipeline, started_at FROM ended WHERE place = $runs),
recent AS (
  SELECT run_id FROM audit.runs LEFT JOIN first USING (pipeline)
  WHERE runs.started_at >= $since::TIMESTAMP
     OR ($runs IS NOT NULL
         AND runs.started_at >= coalesce(first.started_at, '-infinity'::TIMESTAMP))
     OR pipeline <> $pipeline
),
tagged AS (
  SELECT run_id, string_agg(tag, ', ' ORDER BY tag) AS tags FROM ({CURRENT_TAGS}) GROUP BY run_id
),
wanted AS (FROM recent UNION SELECT run_id FROM tagged),
every AS (
  FROM wanted
  UNION
  SELECT baseline FROM audit.gates SEMI JOIN wanted USING (run_id) WHERE baseline IS NOT NULL
)
SELECT run_id, tags, run_id NOT IN (FROM recent) AS exempt
FROM every LEFT JOIN tagged USING (run_id)
"""

# A table with edits applied was made from a base table, which no run step refers to.
_KEPT_TABLES: Final = """
CREATE TEMP TABLE kept_tables AS
WITH used AS (
  SELECT DISTINCT artifact_id FROM audit.run_steps SEMI JOIN kept_runs USING (run_id)
)
FROM used
UNION
SELECT (inputs->>'base')::UUID FROM audit.artifacts SEMI JOIN used USING (artifact_id)
WHERE stage = 'edits'
"""

_REMEMBERED: Final = """
CREATE TEMP TABLE remembered_calls AS
WITH oldest AS (
  SELECT min(started_at) AS began FROM audit.runs SEMI JOIN kept_runs USING (run_id)
),
replies AS (
  SELECT key, made_at,
         -- Embeddings from an endpoint are replies, too, but no text.
         CASE WHEN tool = 'judge'
              THEN try_cast(try_cast(try(decode(reply)) AS JSON) ->> '$.call' AS UUID) END
           AS call_id
  FROM audit.replies
)
SELECT key, call_id FROM replies
-- Without a kept run the days count, if they are given.
WHERE NOT $forget
      OR made_at >= coalesce((SELECT began FROM oldest), $since::TIMESTAMP, '-infinity'::TIMESTAMP)
      OR call_id IN (SELECT call_id FROM named_calls WHERE call_id IS NOT NULL)
"""

_OF_OTHER_STORES: Final = """
-- The ledger of several machines has no runs: rows in other stores refer to its calls.
INSERT INTO named_calls
SELECT call_id FROM audit.calls
WHERE NOT EXISTS (FROM audit.runs)
      AND (NOT $forget OR call_id IN (SELECT call_id FROM remembered_calls))
"""

_KEPT_RUN: Final = "run_id IN (SELECT run_id FROM kept_runs)"
_KEPT_TABLE: Final = "artifact_id IN (SELECT artifact_id FROM kept_tables)"
_REMEMBERED_KEY: Final = "key IN (SELECT key FROM remembered_calls)"
_KEPT_PART: Final = f"part IN (SELECT part FROM audit.artifact_parts WHERE {_KEPT_TABLE})"
# The calls of a batch that has not ended are known by what is in audit.calls.
_KEPT_BATCH: Final = (
    f"batch_id IN (SELECT batch_id FROM audit.batches WHERE ended_at IS NULL OR {_KEPT_RUN})"
)

# With the rows before them: a tag that was removed or moved since must not return.
_KEPT_TAG: Final = f"""
NOT EXISTS (
  SELECT 1 FROM audit.tags AS gone
  WHERE gone.tag = tags.tag AND tags.tagged_at <= gone.tagged_at AND NOT ({_KEPT_RUN})
)
"""

_NAMED: Final = f"({_KEPT_RUN} OR call_id IN (SELECT call_id FROM named_calls))"
_HAS_REPLY: Final = "call_id IN (SELECT call_id FROM remembered_calls WHERE call_id IS NOT NULL)"
_EMPTIED: Final = f"NOT {_NAMED} AND prompt IS NOT NULL"

_KEPT_CALLS: Final = f"""
SELECT * REPLACE (
  CASE WHEN NOT ({_EMPTIED}) THEN system END AS system,
  CASE WHEN NOT ({_EMPTIED}) THEN prompt END AS prompt,
  CASE WHEN NOT ({_EMPTIED}) THEN reply END AS reply,
  open AND NOT ({_EMPTIED}) AS open
) FROM audit.calls WHERE ({_NAMED} OR {_HAS_REPLY})
"""


def _used_rows(table: str) -> str:
    """SQL for the condition that a kept artifact has a segment of `table`."""
    return f"segment IN (SELECT segment FROM kept_segments WHERE kind = '{table}')"


def _count(connection: duckdb.DuckDBPyConnection, before: int) -> Pruned:
    def count(table: str, condition: str) -> int:
        query = f"SELECT count(*) FROM {table} WHERE {condition}"
        return int(connection.execute(query).fetchall()[0][0])

    gone = connection.execute(
        f"SELECT run_id FROM audit.runs WHERE NOT ({_KEPT_RUN}) ORDER BY started_at"
    ).fetchall()
    exempt = connection.execute(
        "SELECT run_id, tags FROM audit.runs JOIN kept_runs USING (run_id) WHERE exempt "
        "ORDER BY started_at"
    ).fetchall()
    forgotten = f"NOT ({_REMEMBERED_KEY})"
    return Pruned(
        removed=[run_id for (run_id,) in gone],
        kept=count("audit.runs", _KEPT_RUN),
        exempt=dict(exempt),
        tables=count("audit.artifacts", f"NOT ({_KEPT_TABLE})"),
        rows=sum(
            count(f"stored.{row.table}", f"NOT ({_used_rows(row.table)})") for row in row_kinds()
        ),
        calls=count("audit.calls", f"NOT {_NAMED} AND NOT ({_HAS_REPLY})"),
        emptied=count("audit.calls", f"{_EMPTIED} AND {_HAS_REPLY}"),
        replies=count("audit.replies", f"{forgotten} AND tool = 'judge'"),
        results=count("audit.replies", f"{forgotten} AND tool <> 'judge'"),
        before=before,
        after=None,
        saving=None,
    )


def _saving(connection: duckdb.DuckDBPyConnection) -> Saving:
    """What pruning gives back; the rows of a table count alike, though some are longer."""
    ((block, free),) = connection.execute(
        "SELECT block_size, free_blocks FROM pragma_database_size() "
        "WHERE database_name = current_database()"
    ).fetchall()
    kept_rows = _kept_rows()
    segments = " UNION ALL ".join(
        f"SELECT '{table}' AS name, block_id, block_offset, additional_block_ids "
        f"FROM pragma_storage_info('{table}') WHERE persistent AND block_id >= 0"
        for table in kept_rows
    )
    sizes = dict(connection.execute(_SIZES.format(segments=segments), {"block": block}).fetchall())
    unused = 0.0
    for table, kept in kept_rows.items():
        counts = f"SELECT (SELECT count(*) FROM {table}), (SELECT count(*) FROM ({kept}))"
        ((rows, stay),) = connection.execute(counts).fetchall()
        unused += sizes.get(table, 0) * (1 - stay / rows) if rows else 0
    return Saving(block * free, round(unused))


# A block holds segments of several columns and tables: one reaches up to the next one.
_SIZES: Final = """
WITH segments AS ({segments}),
reached AS (
  SELECT name, len(additional_block_ids) * $block AS further,
         lead(block_offset, 1, $block) OVER (PARTITION BY block_id ORDER BY block_offset)
           - block_offset AS own
  FROM segments
)
SELECT name, sum(own + further)::DOUBLE FROM reached GROUP BY name
"""


def _kept_rows() -> dict[str, str]:
    """A query for the rows that stay of each table that may lose some, as `rewrite` takes it."""
    conditions = {
        **{f"stored.{row.table}": _used_rows(row.table) for row in row_kinds()},
        "audit.segments": "(kind, segment) IN (SELECT kind, segment FROM kept_segments)",
        "audit.languages": _used_rows(Sample.table),
        "audit.parts": _KEPT_PART,
        "audit.artifact_parts": _KEPT_TABLE,
        "audit.artifacts": _KEPT_TABLE,
        "audit.batch_calls": _KEPT_BATCH,
        "audit.batches": _KEPT_BATCH,
        "audit.replies": _REMEMBERED_KEY,
        "audit.tags": _KEPT_TAG,
        **{
            f"audit.{table}": _KEPT_RUN
            for table in ("run_steps", "readers", "gates", "sendings", "sent", "runs")
        },
    }
    queries = {
        table: f"SELECT * FROM {table} WHERE ({condition})"
        for table, condition in conditions.items()
    }
    return queries | {"audit.calls": _KEPT_CALLS}
