"""Edits that a run could not use, for what they are about has changed since."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final, NamedTuple

import duckdb

from claimflow.flows.engine.storage.edits import Edit, all_edits, fitting, in_force
from claimflow.flows.engine.storage.store import Store, read_table

_SAMPLES: Final = """
SELECT sample_id, response, reference, retrieved_contexts FROM samples
WHERE run_id = $run AND list_contains($ids, sample_id)
"""
_VERDICTS: Final = """
SELECT step, claim_id::VARCHAR AS claim_id, passage FROM verdicts
WHERE run_id = $run AND reason IS NOT NULL AND starts_with(reason, 'edited by ')
"""


class Lapsed(NamedTuple):
    """An edit in force that a run had no use for, and why."""

    edit: Edit
    why: str


def edits_of(store: Store, run_id: str, sample_id: str) -> list[Edit]:
    """The edits of a sample in a run's pipeline, oldest first; those taken back too."""
    with store.reading() as connection:
        pipeline, _ = _run(connection, run_id)
        return [edit for edit in all_edits(connection, pipeline) if edit.sample_id == sample_id]


def lapsed(store: Store, run_id: str) -> list[Lapsed]:
    """The edits in force for samples and steps of a run that it could not use."""
    with store.reading() as connection:
        pipeline, started = _run(connection, run_id)
        edits = [
            edit for edit in in_force(all_edits(connection, pipeline)) if edit.edited_at < started
        ]
        if not edits:
            return []
        ids = sorted({edit.sample_id for edit in edits})
        samples = read_table(connection, _SAMPLES, run=run_id, ids=ids)
        steps = connection.execute(
            "SELECT step FROM audit.run_steps WHERE run_id = $run", {"run": run_id}
        ).fetchall()
        used = set(read_table(connection, _VERDICTS, run=run_id).iter_rows())
    there = set(samples["sample_id"])
    about = [edit for edit in edits if edit.sample_id in there and (edit.step,) in steps]
    return list(_lapsed(about, list(fitting(about, [samples])), used))


def _lapsed(
    edits: list[Edit], fit: list[Edit], used: set[tuple[str, str, int | None]]
) -> Iterator[Lapsed]:
    newest = {(edit.kind, edit.step, edit.sample_id): edit for edit in edits}
    fits = {(edit.edit_id, edit.step, edit.sample_id) for edit in fit}
    for edit in newest.values():
        if (edit.edit_id, edit.step, edit.sample_id) not in fits:
            yield Lapsed(edit, f"the sample has another {edit.field} now")
        elif edit.kind == "verdicts" and not all(
            (edit.step, row["claim_id"], row["passage"]) in used for row in edit.rows
        ):
            yield Lapsed(edit, "the sample has other claims now")


def _run(connection: duckdb.DuckDBPyConnection, run_id: str) -> tuple[str, datetime]:
    """Of which pipeline a run is, and when it started."""
    found = connection.execute(
        "SELECT pipeline, started_at FROM audit.runs WHERE run_id = $run", {"run": run_id}
    ).fetchall()
    pipeline, started = found[0]
    return pipeline, started
