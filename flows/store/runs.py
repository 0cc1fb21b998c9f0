"""Records of runs: their start, steps and end, and the tags that name them."""

import getpass
import os
import platform
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Literal, NamedTuple

import duckdb
import polars as pl

from claimflow.flows import __version__
from claimflow.flows.errors import (
    Fault,
    InputError,
    JudgeError,
    PendingError,
    RunTimeoutError,
    StoppedError,
    StoreBusyError,
    StoreError,
    WorkersError,
    one_of,
)
from claimflow.flows.store.arrow import read_table
from claimflow.flows.store.artifacts import Artifact, delete_unfinished
from claimflow.flows.store.store import Store, now

Ending = Literal["done", "measured", "failed", "stopped", "pending"]
"""How a run ended; `latest` and `previous` are runs that are done.

failed: it could not continue or took too long, or it is complete and too many rows failed.
measured: a run that measured noise, which has no tables.
"""

NOISE_SUFFIX: Final = " (noise)"
"""Suffix of the pipeline's name in runs that measure noise."""


class Coverage(NamedTuple):
    """How many of the samples and steps of its pipeline a run has.

    `selection` is the options that left some out, as in `--limit 3`; None for a whole run.
    """

    sample_count: int
    samples_available: int
    step_count: int
    steps_available: int
    selection: str | None


PARTIAL: Final = """
CASE WHEN selection IS NOT NULL THEN concat_ws(', ',
  CASE WHEN sample_count < samples_available
       THEN format('{:,} of {:,} samples', sample_count, samples_available)
       ELSE format('{:,} sample{}', sample_count, CASE WHEN sample_count <> 1 THEN 's' ELSE '' END)
  END,
  CASE WHEN step_count < steps_available
       THEN format('{:,} of {:,} steps', step_count, steps_available) END) END
"""
"""SQL for how much of its pipeline a partial run has, as in `3 of 40 samples`; NULL for a whole
run. On `audit.runs`."""


def start_run(
    store: Store, *, pipeline: str, config_path: str, config: str, coverage: Coverage | None = None
) -> tuple[str, list[str]]:
    """Record the start of a run; returns its id and the ids of runs found killed.

    Without `coverage` it is unknown how much of the pipeline the run has, and it counts as whole.
    A run was killed when it is recorded as running and its process has ended. Rows of its
    unfinished tables are deleted: no run can reuse them, and replies of models are in the ledger.
    """
    with store.writing() as connection:
        # The clock is read in the transaction: two runs that start at once get different ids.
        started = now()
        # The last four digits are the fraction of the second, so that ids sort by time.
        run_id = f"{started:%Y%m%d-%H%M%S}-{started.microsecond * 65_536 // 1_000_000:04x}"
        killed = _mark_killed_runs(connection)
        connection.execute(
            """
            INSERT INTO audit.runs
            (run_id, pipeline, config_path, config, status, started_at, host, process, made_by,
             sample_count, samples_available, step_count, steps_available, selection)
            VALUES ($run_id, $pipeline, $config_path, $config, 'running', $started, $host, $process,
             $made_by, $sample_count, $samples_available, $step_count, $steps_available, $selection)
            """,
            dict.fromkeys(Coverage._fields)
            | (coverage._asdict() if coverage else {})
            | {
                "run_id": run_id,
                "pipeline": pipeline,
                "config_path": config_path,
                "config": config,
                "started": started,
                "host": platform.node(),
                "process": os.getpid(),
                "made_by": __version__,
            },
        )
    return run_id, killed


def record_step(
    connection: duckdb.DuckDBPyConnection,
    run_id: str,
    *,
    step: str,
    position: int,
    artifact: Artifact,
    reused: bool,
    seconds: float,
) -> None:
    """Record which artifact a step of a run used."""
    connection.execute(
        "INSERT INTO audit.run_steps VALUES ($run, $step, $position, $id, $reused, $s, $now)",
        {
            "run": run_id,
            "step": step,
            "position": position,
            "id": artifact.artifact_id,
            "reused": reused,
            "s": seconds,
            "now": now(),
        },
    )


def end_run(store: Store, run_id: str, status: Ending, reason: str | None = None) -> None:
    """Record the end of a run."""
    with store.writing() as connection:
        connection.execute(
            "UPDATE audit.runs SET status = $status, reason = $reason, ended_at = $now "
            "WHERE run_id = $run",
            {"status": status, "reason": reason, "now": now(), "run": run_id},
        )


@dataclass
class RunEnd:
    """How a run is recorded to have ended, if no error ends it."""

    status: Ending = "done"
    reason: str | None = None


@contextmanager
def recording_end(store: Store, run_id: str, stop: threading.Event) -> Iterator[RunEnd]:
    """Record the end of a run when the block ends, as in the `RunEnd` that the block may change.

    An error also sets `stop`.
    """
    end = RunEnd()
    try:
        yield end
    except StoreError:
        # The end cannot be written either: the next run finds that the process has ended.
        stop.set()
        raise
    except BaseException as error:
        stop.set()
        is_error = isinstance(error, Exception) or type(error).__name__ == "PanicException"
        if isinstance(error, PendingError):
            end_run(store, run_id, "pending", str(error))
        elif isinstance(error, StoppedError) or not is_error:
            # Ctrl-C, SystemExit and the like are requests to stop. A panic of a library in Rust is
            # an error, though its class, of which each library has its own, does not say so.
            end_run(store, run_id, "stopped", "asked to stop")
        else:
            plain = isinstance(error, JudgeError | WorkersError | RunTimeoutError)
            end_run(
                store, run_id, "failed", f"{'' if plain else f'{type(error).__name__}: '}{error}"
            )
        raise
    else:
        end_run(store, run_id, end.status, end.reason)


def refuse_in_progress(connection: duckdb.DuckDBPyConnection, path: Path, why: str = "") -> None:
    """Raise `StoreBusyError`, with `why` behind it, while a run is in progress."""
    for run_id, host, process in in_progress(connection):
        where = f"process {process} on {host}"
        raise StoreBusyError(f"{path}: run {run_id} is in progress ({where}){why}; wait for it")


def in_progress(connection: duckdb.DuckDBPyConnection) -> list[tuple[str, str, int]]:
    """The runs whose process may still run: run id, host, process id.

    Processes of other hosts cannot be seen: their runs count for a day.
    """
    found = connection.execute(
        "SELECT run_id, host, process, started_at > $now - INTERVAL 1 DAY FROM audit.runs "
        "WHERE status = 'running' ORDER BY started_at, run_id",
        {"now": now()},
    ).fetchall()
    return [
        (run_id, host, process)
        for run_id, host, process, young in found
        if (process_alive(process) if host == platform.node() else young)
    ]


def newest_run(store: Store, *, pipeline: str | None = None) -> str | None:
    """The newest run that does not measure noise, whole or not; of one pipeline if named."""
    with store.reading() as connection:
        return _newest(
            connection,
            "NOT ends_with(pipeline, $noise) AND pipeline = coalesce($pipeline, pipeline)",
            noise=NOISE_SUFFIX,
            pipeline=pipeline,
        )


def _mark_killed_runs(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Record which runs of this host were killed, and delete their unfinished tables."""
    killed = killed_runs(connection)
    for run_id in killed:
        delete_unfinished(connection, "run_id = $run", run=run_id)
        connection.execute(
            "UPDATE audit.runs SET status = 'killed', reason = 'its process ended unexpectedly' "
            "WHERE run_id = $run",
            {"run": run_id},
        )
    return killed


def killed_runs(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """The runs of this host that are recorded as running and whose process has ended."""
    running = connection.execute(
        "SELECT run_id, process FROM audit.runs WHERE status = 'running' AND host = $host",
        {"host": platform.node()},
    ).fetchall()
    return [run_id for run_id, process in running if not process_alive(process)]


def process_alive(process: int) -> bool:
    """Whether a process of this host is running, also one of another user."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return not _is_zombie(process)


def _is_zombie(process: int) -> bool:
    """Whether a process has ended, and its parent has not read its exit status.

    In a container without an init a zombie may stay for ever. On other systems than Linux the
    answer is False.
    """
    try:
        status = Path(f"/proc/{process}/stat").read_text("utf-8", "replace")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] in ("Z", "X")


# Tags, and finding a run by a tag, an id or a word such as latest.

LATEST: Final = "latest"
PREVIOUS: Final = "previous"

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_LIKE_AN_ID: Final = re.compile(r"\d{1,8}|\d{8}-.*")

CURRENT_TAGS: Final = """
SELECT * EXCLUDE (removed) FROM (
  SELECT * FROM audit.tags SEMI JOIN audit.runs USING (run_id)
  QUALIFY row_number() OVER (PARTITION BY tag ORDER BY tagged_at DESC, tags.rowid DESC) = 1
) WHERE removed IS NOT true
"""
"""SQL for the current tags: the newest row of each tag whose run exists."""


def add_tag(store: Store, run_id: str, tag: str, *, who: str | None = None) -> None:
    """Give a run a tag, which moves from the run that had it. Raises `InputError` for a bad tag.

    `who` did it, by default the account on this machine.
    """
    wrong = tag_fault(tag)
    if wrong:
        raise InputError([Fault("tag", *wrong)])
    _record_tag(store, run_id, tag, who, removed=False)


def remove_tag(store: Store, tag: str, *, who: str | None = None) -> None:
    """Remove a tag; the run stays. Raises `InputError` where there is no such tag."""
    known = dict(tags(store).select("tag", "run_id").iter_rows())
    if tag not in known:
        raise InputError([Fault("tag", f"there is no tag {tag!r}", one_of(tag, known))])
    _record_tag(store, known[tag], tag, who, removed=True)


def _record_tag(store: Store, run_id: str, tag: str, who: str | None, *, removed: bool) -> None:
    row = {"tag": tag, "run": run_id, "now": now(), "who": who or account(), "removed": removed}
    with store.writing() as connection:
        connection.execute(
            "INSERT INTO audit.tags (tag, run_id, tagged_at, who, removed) "
            "VALUES ($tag, $run, $now, $who, $removed)",
            row,
        )


def account() -> str | None:
    """The name of the account that this process belongs to; None where it has no name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return None


def tags(store: Store) -> pl.DataFrame:
    """The current tags, sorted: tag, run_id, tagged_at, who."""
    with store.reading() as connection:
        return read_table(connection, f"{CURRENT_TAGS} ORDER BY tag")


def tag_fault(tag: str) -> tuple[str, str] | None:
    """Why a text cannot be a tag, and what would be right; None for a valid tag."""
    if tag in (LATEST, PREVIOUS):
        return f"{tag!r} always means a run of its own", "choose another name"
    if not _NAME.fullmatch(tag):
        return f"{tag!r} cannot be a tag", "use up to 100 letters, digits, points, _ and -"
    if _LIKE_AN_ID.fullmatch(tag):
        return f"{tag!r} looks like a run id", "choose a name such as main"
    return None


def find_run(
    store: Store, word: str, *, before: str | None = None, pipeline: str | None = None
) -> str | None:
    """The run that `word` names: a tag, `latest`, `previous`, a run id or its beginning.

    `latest` is the newest whole run: done, with all samples and all steps. It is of `pipeline` if
    given, else of the pipeline of the run `before` if given, else of any. `previous` is the newest
    whole run of the same pipeline that started before the run `before`, by default the latest. The
    beginning of an id names the newest run with it. None where there is no such run.
    """
    with store.reading() as connection:
        return run_meant(connection, word, before=before, pipeline=pipeline)


def newest_run_of(store: Store, pipeline: str) -> str | None:
    """The newest run of the pipeline with that name that is done or failed and not partial."""
    where = "status IN ('done', 'failed') AND selection IS NULL AND pipeline = $pipeline"
    with store.reading() as connection:
        return _newest(connection, where, pipeline=pipeline)


def run_meant(
    connection: duckdb.DuckDBPyConnection,
    word: str,
    *,
    before: str | None = None,
    pipeline: str | None = None,
) -> str | None:
    """As `find_run`, on an open store."""
    if word == LATEST:
        if pipeline is None and before is not None:
            pipeline, _ = pipeline_and_start(connection, before)
        return _latest(connection, pipeline)
    if word == PREVIOUS:
        return _newest(
            connection,
            """
            pipeline = (SELECT pipeline FROM audit.runs WHERE run_id = $run)
            AND started_at < (SELECT started_at FROM audit.runs WHERE run_id = $run)
            """,
            table="whole_runs",
            run=before or _latest(connection, pipeline),
        )
    tagged = connection.execute(
        f"SELECT run_id FROM ({CURRENT_TAGS}) WHERE tag = $tag", {"tag": word}
    ).fetchall()
    return tagged[0][0] if tagged else _newest(connection, "starts_with(run_id, $word)", word=word)


def pipeline_and_start(connection: duckdb.DuckDBPyConnection, run_id: str) -> tuple[str, datetime]:
    """(the pipeline of a run, when the run started)."""
    ((pipeline, started),) = connection.execute(
        "SELECT pipeline, started_at FROM audit.runs WHERE run_id = $run", {"run": run_id}
    ).fetchall()
    return pipeline, started


def _latest(connection: duckdb.DuckDBPyConnection, pipeline: str | None) -> str | None:
    of_pipeline = "pipeline = coalesce($pipeline, pipeline)"
    return _newest(connection, of_pipeline, table="whole_runs", pipeline=pipeline)


def _newest(
    connection: duckdb.DuckDBPyConnection,
    where: str,
    *,
    table: Literal["runs", "whole_runs"] = "runs",
    **values: str | None,
) -> str | None:
    found = connection.execute(
        f"SELECT run_id FROM audit.{table} WHERE {where} ORDER BY started_at DESC LIMIT 1", values
    ).fetchall()
    return found[0][0] if found else None
