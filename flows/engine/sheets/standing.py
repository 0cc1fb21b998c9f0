"""What a sheet is held against: the rows of its run, its samples, and the edits in force."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from claimflow.flows.engine.sheets.rows import sheet_rows
from claimflow.flows.engine.storage.edits import Edit, Kind, all_edits, fitting, in_force, text_key
from claimflow.flows.engine.storage.store import Store, read_table

Place = tuple[str, str]
"""A step and a sample of it."""


class Standing(NamedTuple):
    """The `rows` of a run as a sheet would have them, by step and sample, and its `steps`.

    `edits` are those in force for the samples as the run had them, oldest first.
    """

    run_id: str
    pipeline: str
    rows: Mapping[Place, list[dict[str, Any]]]
    texts: Mapping[str, Mapping[str, Any]]
    edits: Mapping[Place, list[Edit]]
    steps: tuple[str, ...]

    def text(self, sample_id: str, field: str) -> str:
        """The key of what stands in a field of a sample."""
        return text_key(self.texts[sample_id][field])


def standing(store: Store, run_id: str, kind: Kind, sample_ids: Iterable[str]) -> Standing:
    """What stood in a run; texts and edits of the samples in `sample_ids` that it has."""
    rows: dict[Place, list[dict[str, Any]]] = {}
    for row in sheet_rows(store, run_id, kind).iter_rows(named=True):
        rows.setdefault((row["step"], row["sample_id"]), []).append(row)
    with store.reading() as connection:
        ((pipeline,),) = connection.execute(
            "SELECT pipeline FROM audit.runs WHERE run_id = $run", {"run": run_id}
        ).fetchall()
        samples = read_table(
            connection,
            "SELECT sample_id, response, reference, retrieved_contexts FROM samples "
            "WHERE run_id = $run AND list_contains($ids, sample_id)",
            run=run_id,
            ids=list(sample_ids),
        )
        on_record = in_force(all_edits(connection, pipeline))
    edits: dict[Place, list[Edit]] = {}
    for edit in fitting([edit for edit in on_record if edit.kind == kind], [samples]):
        edits.setdefault((edit.step, edit.sample_id), []).append(edit)
    texts = {row["sample_id"]: row for row in samples.iter_rows(named=True)}
    steps = tuple(dict.fromkeys(step for step, _ in rows))
    return Standing(run_id, pipeline, rows, texts, edits, steps)
