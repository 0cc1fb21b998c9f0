"""Names that people give to runs, and the run that a word on the command line means."""

import re
from typing import Final

import duckdb
import polars as pl

from claimflow.flows.engine.errors import Fault, InputError, one_of
from claimflow.flows.engine.storage.store import Store, now, read_table

LATEST: Final = "latest"
PREVIOUS: Final = "previous"

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_LIKE_AN_ID: Final = re.compile(r"\d{1,8}|\d{8}-.*")

CURRENT: Final = """
SELECT tag, run_id, tagged_at FROM audit.tags SEMI JOIN audit.runs USING (run_id)
QUALIFY row_number() OVER (PARTITION BY tag ORDER BY tagged_at DESC, tags.rowid DESC) = 1
"""
"""The tags that count, each with its run: the newest row of every name."""


def add_tag(store: Store, run_id: str, tag: str) -> None:
    """Let `tag` mean this run from now on. Raises `InputError` for what cannot be a tag."""
    wrong = why_no_tag(tag)
    if wrong:
        raise InputError([Fault("tag", *wrong)])
    with store.writing() as connection:
        connection.execute(
            "INSERT INTO audit.tags (tag, run_id, tagged_at) VALUES ($tag, $run, $now)",
            {"tag": tag, "run": run_id, "now": now()},
        )


def remove_tag(store: Store, tag: str) -> None:
    """Forget a tag; the run stays. Raises `InputError` where there is no such tag."""
    known = tags(store)["tag"].to_list()
    if tag not in known:
        raise InputError([Fault("tag", f"there is no tag {tag!r}", one_of(tag, known))])
    with store.writing() as connection:
        connection.execute("DELETE FROM audit.tags WHERE tag = $tag", {"tag": tag})


def tags(store: Store) -> pl.DataFrame:
    """Every tag with its run and since when: tag, run_id, tagged_at; by name."""
    with store.reading() as connection:
        return read_table(connection, f"{CURRENT} ORDER BY tag")


def why_no_tag(tag: str) -> tuple[str, str] | None:
    """What keeps a text from being a tag, and what would be right; None for a tag."""
    if tag in (LATEST, PREVIOUS):
        return f"{tag!r} always means a run of its own", "choose another name"
    if not _NAME.fullmatch(tag):
        return f"{tag!r} cannot be a tag", "use up to 100 letters, digits, points, _ and -"
    if _LIKE_AN_ID.fullmatch(tag):
        return f"{tag!r} looks like a run id", "choose a name such as main"
    return None


def find_run(store: Store, word: str, *, before: str | None = None) -> str | None:
    """The run that `word` means: a tag, `latest`, `previous`, a run id or its beginning.

    `latest` is the newest run that is done. `previous` is the newest done run of the same
    pipeline that started before the run `before`, which is the latest where it is None. Of an
    id's beginning it is the newest run. None where there is no such run.
    """
    with store.reading() as connection:
        return found_run(connection, word, before=before)


def newest_of(store: Store, pipeline: str) -> str | None:
    """The newest done run of a pipeline, by its name."""
    with store.reading() as connection:
        return _first(connection, "status = 'done' AND pipeline = $pipeline", pipeline=pipeline)


def found_run(
    connection: duckdb.DuckDBPyConnection, word: str, *, before: str | None = None
) -> str | None:
    """As `find_run`, on an open store."""
    if word == LATEST:
        return _latest(connection)
    if word == PREVIOUS:
        return _first(
            connection,
            """
            status = 'done' AND pipeline = (SELECT pipeline FROM audit.runs WHERE run_id = $run)
            AND started_at < (SELECT started_at FROM audit.runs WHERE run_id = $run)
            """,
            run=before or _latest(connection),
        )
    tagged = connection.execute(
        f"SELECT run_id FROM ({CURRENT}) WHERE tag = $tag", {"tag": word}
    ).fetchall()
    return tagged[0][0] if tagged else _first(connection, "starts_with(run_id, $word)", word=word)


def _latest(connection: duckdb.DuckDBPyConnection) -> str | None:
    return _first(connection, "status = 'done'")


def _first(connection: duckdb.DuckDBPyConnection, where: str, **values: str | None) -> str | None:
    found = connection.execute(
        f"SELECT run_id FROM audit.runs WHERE {where} ORDER BY started_at DESC LIMIT 1",
        values or None,
    ).fetchall()
    return found[0][0] if found else None
