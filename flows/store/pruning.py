"""Remove old runs, and make the file of a store smaller."""

import shutil
import time
from datetime import timedelta
from typing import Final, NamedTuple

import duckdb

from claimflow.flows.store.integrity import CALLS_OF_VOTES
from claimflow.flows.store.read_copy import fold_log, log_path, rewritten
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


class Pruned(NamedTuple):
    """What was or would be removed, in numbers, and the bytes of the file before and after.

    `emptied` counts the calls that stay without their texts.
    """

    removed: list[str]
    kept: int
    tables: int
    rows: int
    calls: int
    emptied: int
    replies: int
    before: int
    after: int | None


def prune(store: Store, retention: Retention, *, dry_run: bool = False) -> Pruned:
    """Remove the runs that are not to be kept, and what only they used.

    Tables that a kept run reused stay, also those that a removed run made, and so do edits and
    the calls that a kept row refers to. Calls that only a kept reply refers to stay without
    their texts. Raises `StoreBusyError` while a run is in progress.
    """
    before = store.path.stat().st_size if store.path.is_file() else 0
    with store.reading() if dry_run else store.writing() as connection:
        refuse_in_progress(connection, store.path)
        _select_kept(connection, retention)
        found = _count(connection, before)
        if not dry_run:
            for statement in _deletions():
                connection.execute(statement)
        for name in _TEMPORARY:
            connection.execute(f"DROP TABLE {name}")
    if dry_run:
        return found
    compact(store)
    return found._replace(after=store.path.stat().st_size)


def compact(store: Store) -> None:
    """Rewrite the file without the space of removed rows; the new file replaces the old at once.

    A crash leaves either file whole. Others may read meanwhile. Raises `StoreFullError` where
    the disk has no room for both.
    """
    fold_log(store)
    with store.reading(exclusive=True) as connection:
        if log_path(store.path).exists():
            return
        with rewritten(connection, store.path) as part:
            shutil.copymode(store.path, part)
            part.replace(store.path)
        # Another process may have opened the old file without having locked it yet. If it
        # got the lock, it would write into a file that has no name any more.
        time.sleep(_SECONDS_LOCKED)


_SECONDS_LOCKED: Final = 0.2
"""How long the lock of a replaced file is kept."""

_TEMPORARY: Final = (
    "kept_runs",
    "kept_tables",
    "kept_segments",
    "named_calls",
    "remembered_calls",
)


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
        f"SELECT call_id FROM stored.{row.table} WHERE NOT ({_unused_rows(row.table)})"
        for row in row_kinds()
        if "call_id" in row.model_fields
    )
    for table in ("verdicts", "rubric_verdicts"):
        named += (
            f" UNION SELECT {CALLS_OF_VOTES} FROM stored.{table} WHERE NOT ({_unused_rows(table)})"
        )
    connection.execute(f"CREATE TEMP TABLE named_calls AS {named}")
    connection.execute(_REMEMBERED, {"forget": not retention.replies})


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
tagged AS (SELECT run_id FROM ({CURRENT_TAGS})),
wanted AS (FROM recent UNION FROM tagged)
FROM wanted
UNION
SELECT baseline FROM audit.gates SEMI JOIN wanted USING (run_id) WHERE baseline IS NOT NULL
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
WHERE NOT $forget OR made_at >= (SELECT began FROM oldest)
      OR call_id IN (SELECT call_id FROM named_calls WHERE call_id IS NOT NULL)
"""

_GONE: Final = "run_id NOT IN (SELECT run_id FROM kept_runs)"

# With the rows before them: a tag that was removed or moved since must not return.
_DELETE_TAGS: Final = f"""
DELETE FROM audit.tags
USING (SELECT tag, max(tagged_at) AS until FROM audit.tags WHERE {_GONE} GROUP BY tag) gone
WHERE tags.tag = gone.tag AND tags.tagged_at <= gone.until
"""
_UNUSED: Final = "artifact_id NOT IN (SELECT artifact_id FROM kept_tables)"
_UNUSED_PART: Final = (
    "part NOT IN (SELECT part FROM audit.artifact_parts SEMI JOIN kept_tables USING (artifact_id))"
)
_NOT_NAMED: Final = (
    f"{_GONE} AND NOT EXISTS (SELECT 1 FROM named_calls n WHERE n.call_id = calls.call_id)"
)
_HAS_REPLY: Final = "EXISTS (SELECT 1 FROM remembered_calls r WHERE r.call_id = calls.call_id)"
_FORGOTTEN: Final = "NOT EXISTS (SELECT 1 FROM remembered_calls r WHERE r.key = replies.key)"

_BATCH_GONE: Final = (
    f"batch_id IN (SELECT batch_id FROM audit.batches WHERE ended_at IS NOT NULL AND {_GONE})"
)


def _unused_rows(table: str) -> str:
    """SQL for the condition that no kept artifact has a segment of `table`."""
    return f"segment NOT IN (SELECT segment FROM kept_segments WHERE kind = '{table}')"


def _count(connection: duckdb.DuckDBPyConnection, before: int) -> Pruned:
    def count(table: str, condition: str) -> int:
        query = f"SELECT count(*) FROM {table} WHERE {condition}"
        return int(connection.execute(query).fetchall()[0][0])

    gone = connection.execute(
        f"SELECT run_id FROM audit.runs WHERE {_GONE} ORDER BY started_at"
    ).fetchall()
    return Pruned(
        removed=[run_id for (run_id,) in gone],
        kept=count("audit.runs", f"NOT ({_GONE})"),
        tables=count("audit.artifacts", _UNUSED),
        rows=sum(count(f"stored.{row.table}", _unused_rows(row.table)) for row in row_kinds()),
        calls=count("audit.calls", f"{_NOT_NAMED} AND NOT {_HAS_REPLY}"),
        emptied=count("audit.calls", f"{_NOT_NAMED} AND {_HAS_REPLY} AND prompt IS NOT NULL"),
        replies=count("audit.replies", _FORGOTTEN),
        before=before,
        after=None,
    )


def _deletions() -> list[str]:
    """The statements that remove everything that is not kept."""
    return [
        *(f"DELETE FROM stored.{row.table} WHERE {_unused_rows(row.table)}" for row in row_kinds()),
        *(
            f"DELETE FROM audit.segments WHERE kind = '{row.table}' AND {_unused_rows(row.table)}"
            for row in row_kinds()
        ),
        f"DELETE FROM audit.languages WHERE {_unused_rows(Sample.table)}",
        f"DELETE FROM audit.parts WHERE {_UNUSED_PART}",
        f"DELETE FROM audit.artifact_parts WHERE {_UNUSED}",
        f"DELETE FROM audit.artifacts WHERE {_UNUSED}",
        # The calls of a batch that has not ended are known by what is in audit.calls.
        f"DELETE FROM audit.batch_calls WHERE {_BATCH_GONE}",
        f"DELETE FROM audit.batches WHERE {_BATCH_GONE}",
        f"DELETE FROM audit.calls WHERE {_NOT_NAMED} AND NOT {_HAS_REPLY}",
        "UPDATE audit.calls SET system = NULL, prompt = NULL, reply = NULL, open = false "
        f"WHERE {_NOT_NAMED} AND prompt IS NOT NULL",
        f"DELETE FROM audit.replies WHERE {_FORGOTTEN}",
        _DELETE_TAGS,
        *(
            f"DELETE FROM audit.{table} WHERE {_GONE}"
            for table in ("run_steps", "readers", "gates", "sendings", "sent", "runs")
        ),
    ]
