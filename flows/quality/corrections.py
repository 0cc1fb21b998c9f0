"""Corrections of a run: those of one sample, and those that no longer apply."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final, NamedTuple

import duckdb

from claimflow.flows.store.edits import Edit, all_edits, applicable_edits, edits_in_force
from claimflow.flows.store.store import Store, read_table

_SAMPLES: Final = """
SELECT sample_id, response, reference, retrieved_contexts FROM samples
WHERE run_id = $run AND list_contains($ids, sample_id)
"""
_EDITED_VERDICTS: Final = """
SELECT step, claim_id::VARCHAR AS claim_id, passage FROM verdicts
WHERE run_id = $run AND reason IS NOT NULL AND starts_with(reason, 'edited by ')
"""


class UnusedEdit(NamedTuple):
    """An edit in force that a run could not apply, and why."""

    edit: Edit
    why: str


def edits_of_sample(store: Store, run_id: str, sample_id: str) -> list[Edit]:
    """The edits of a sample in a run's pipeline, oldest first, including those taken back."""
    with store.reading() as connection:
        pipeline, _ = _pipeline_and_start(connection, run_id)
        return [edit for edit in all_edits(connection, pipeline) if edit.sample_id == sample_id]


def unused_edits(store: Store, run_id: str) -> list[UnusedEdit]:
    """The edits in force for samples and steps of a run that it could not apply.

    An edit stops to apply when the text or the claims that it is about have changed.
    """
    with store.reading() as connection:
        pipeline, started = _pipeline_and_start(connection, run_id)
        edits = [
            edit
            for edit in edits_in_force(all_edits(connection, pipeline))
            if edit.edited_at < started
        ]
        if not edits:
            return []
        ids = sorted({edit.sample_id for edit in edits})
        samples = read_table(connection, _SAMPLES, run=run_id, ids=ids)
        steps = connection.execute(
            "SELECT step FROM audit.run_steps WHERE run_id = $run", {"run": run_id}
        ).fetchall()
        edited = set(read_table(connection, _EDITED_VERDICTS, run=run_id).iter_rows())
    sample_ids = set(samples["sample_id"])
    of_run = [edit for edit in edits if edit.sample_id in sample_ids and (edit.step,) in steps]
    return list(_unused(of_run, list(applicable_edits(of_run, [samples])), edited))


def _unused(
    edits: list[Edit], fit: list[Edit], edited_verdicts: set[tuple[str, str, int | None]]
) -> Iterator[UnusedEdit]:
    newest = {(edit.kind, edit.step, edit.sample_id): edit for edit in edits}
    fits = {(edit.edit_id, edit.step, edit.sample_id) for edit in fit}
    for edit in newest.values():
        if (edit.edit_id, edit.step, edit.sample_id) not in fits:
            yield UnusedEdit(edit, f"the sample has another {edit.field} now")
        elif edit.kind == "verdicts" and not all(
            (edit.step, row["claim_id"], row["passage"]) in edited_verdicts for row in edit.rows
        ):
            yield UnusedEdit(edit, "the sample has other claims now")


def _pipeline_and_start(connection: duckdb.DuckDBPyConnection, run_id: str) -> tuple[str, datetime]:
    """(the pipeline of a run, when the run started)."""
    ((pipeline, started),) = connection.execute(
        "SELECT pipeline, started_at FROM audit.runs WHERE run_id = $run", {"run": run_id}
    ).fetchall()
    return pipeline, started
