"""Edits: corrections of claims, verdicts and checks of rubrics by hand, and which of them apply."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

import duckdb
import polars as pl

from claimflow.flows.pipeline.wiring import Step
from claimflow.flows.store.arrow import insert, read_table
from claimflow.flows.store.runs import pipeline_and_start
from claimflow.flows.store.store import Store
from claimflow.stages.rows import RubricVerdict, canonical, content_key

Kind = Literal["claims", "verdicts", "checks"]

_JSON = ("rows", "replaced")


class Edit(NamedTuple):
    """The corrected rows of one sample in one step, from one import.

    `field` names the fields of the sample that were read, separated by commas, and `text` is the
    key of their texts: the one that the claims are of or were verified against, then the question
    and the history of the conversation where they were read beside it; or those that the judge of
    a rubric read. `rows` are all claims of the sample, or those of its verdicts that changed;
    `replaced` are the rows before. `undoes` is the edit that this one undoes, if any.
    """

    edit_id: str
    kind: Kind
    pipeline: str
    step: str
    sample_id: str
    field: str
    text: str
    rows: list[dict[str, Any]]
    replaced: list[dict[str, Any]]
    who: str
    why: str
    edited_at: datetime
    undoes: str | None = None

    @property
    def reason(self) -> str:
        """The reason that the corrected rows carry."""
        return f"edited by {self.who}: {self.why}"

    @property
    def subject(self) -> str:
        """The field that the rows are about, or the fields that the judge of a rubric read."""
        return self.field if self.kind == "checks" else self.field.partition(",")[0]


_READ_BESIDE: Final[Mapping[str, tuple[str, ...]]] = {
    "question": ("user_input",),
    "conversation": ("user_input", "history"),
}
"""What a stage with that `context` reads beside a response or a reference."""


def fields_read(field: str, context: str | None) -> str:
    """The `field` of an edit: a field of the sample and what `context` adds to it.

    Contexts are read as they are, whatever the question.
    """
    beside = _READ_BESIDE.get(context or "", ())
    return ",".join([field, *(() if field == "retrieved_contexts" else beside)])


def text_key(sample: Mapping[str, Any], field: str) -> str:
    """Key of the text, or the texts, in a field of a sample, or in several joined by commas."""
    texts = [_text(sample, name) for name in field.split(",")]
    return content_key("text", texts if len(texts) > 1 else texts[0])


def _text(sample: Mapping[str, Any], name: str) -> Any:
    if name == "history":
        return json.loads(sample["metadata"]).get(name)
    return sample[name]


def edited_field(step: Step) -> str | None:
    """The `subject` of the edits of a step; None where its rows cannot be edited."""
    if step.stage.makes is RubricVerdict:
        return ",".join(getattr(step.stage, "reads", ())) or None
    return step.stage.claims_of or step.stage.premise


def save_edits(store: Store, edits: Iterable[Edit]) -> None:
    """Store edits, all in one transaction."""
    rows = [
        edit._asdict() | {name: canonical(getattr(edit, name)).decode() for name in _JSON}
        for edit in edits
    ]
    frame = pl.DataFrame(rows, schema_overrides={"undoes": pl.String}, infer_schema_length=None)
    with store.writing() as connection:
        insert(connection, "audit.edits", frame)


def all_edits(connection: duckdb.DuckDBPyConnection, pipeline: str | None = None) -> list[Edit]:
    """Every stored edit (of one pipeline), oldest first, undone ones included."""
    found = read_table(
        connection,
        """
        SELECT edit_id::VARCHAR AS edit_id, kind, pipeline, step, sample_id, field,
               text::VARCHAR AS text, rows::VARCHAR AS rows, replaced::VARCHAR AS replaced,
               who, why, edited_at, undoes::VARCHAR AS undoes
        FROM audit.edits WHERE pipeline = coalesce($pipeline, pipeline)
        ORDER BY edited_at, edit_id, step, sample_id
        """,
        pipeline=pipeline,
    )
    return [
        Edit(**row | {"rows": json.loads(row["rows"]), "replaced": json.loads(row["replaced"])})
        for row in found.iter_rows(named=True)
    ]


def edits_in_force(edits: Iterable[Edit]) -> list[Edit]:
    """The edits that neither undo another nor are undone, in the same order."""
    edits = list(edits)
    undone = {edit.undoes for edit in edits}
    return [edit for edit in edits if edit.undoes is None and edit.edit_id not in undone]


def undo_edit(
    edits: Iterable[Edit], edit_id: str, *, undoing: str, who: str, why: str, at: datetime
) -> list[Edit]:
    """The edits, with the id `undoing`, that undo those of `edits` with the id `edit_id`."""
    return [
        edit._replace(
            edit_id=undoing,
            rows=edit.replaced,
            replaced=edit.rows,
            who=who,
            why=why,
            edited_at=at,
            undoes=edit_id,
        )
        for edit in edits
        if edit.edit_id == edit_id
    ]


def applicable_edits(edits: Iterable[Edit], samples: Iterable[pl.DataFrame]) -> Iterator[Edit]:
    """The edits whose sample is in `samples` and has the same text as when it was edited."""
    by_sample: dict[str, list[Edit]] = {}
    for edit in edits:
        by_sample.setdefault(edit.sample_id, []).append(edit)
    if not by_sample:
        return
    for frame in samples:
        for row in frame.filter(pl.col("sample_id").is_in(list(by_sample))).iter_rows(named=True):
            for edit in by_sample[row["sample_id"]]:
                if text_key(row, edit.field) == edit.text:
                    yield edit


class Edits:
    """The edits that apply to the samples of a run of `pipeline`.

    `samples` gives the samples, part by part; it is called only where there are edits.
    """

    def __init__(
        self, store: Store, pipeline: str, samples: Callable[[], Iterable[pl.DataFrame]]
    ) -> None:
        stored: list[Edit] = []
        if store.path.is_file():
            with store.reading() as connection:
                stored = edits_in_force(all_edits(connection, pipeline))
        self._applicable = list(applicable_edits(stored, samples())) if stored else []

    def of(self, step: Step) -> list[Edit]:
        """The edits of the table of a step, oldest first."""
        scale = getattr(step.stage, "scale", None)
        found = [
            edit
            for edit in self._applicable
            if (edit.step, edit.subject) == (step.name, edited_field(step))
            and all(row.get("scale") == stored_scale(scale) for row in edit.rows)
        ]
        return sorted(found, key=lambda edit: (edit.edited_at, edit.edit_id))


def stored_scale(scale: Mapping[int, str] | None) -> dict[str, str] | None:
    """The scale of a rubric as JSON stores it; None for rows that have none."""
    return None if scale is None else {str(grade): meaning for grade, meaning in scale.items()}


class UnusedEdit(NamedTuple):
    """An edit in force that a run could not apply, and why."""

    edit: Edit
    why: str


def edits_of_sample(store: Store, run_id: str, sample_id: str) -> list[Edit]:
    """The edits of a sample in a run's pipeline, oldest first, including those taken back."""
    with store.reading() as connection:
        pipeline, _ = pipeline_and_start(connection, run_id)
        return [edit for edit in all_edits(connection, pipeline) if edit.sample_id == sample_id]


def unused_edits(store: Store, run_id: str) -> list[UnusedEdit]:
    """The edits in force for samples and steps of a run that it could not apply.

    An edit stops to apply when the text or the claims that it is about have changed.
    """
    with store.reading() as connection:
        pipeline, started = pipeline_and_start(connection, run_id)
        edits = [
            edit
            for edit in edits_in_force(all_edits(connection, pipeline))
            if edit.edited_at < started
        ]
        if not edits:
            return []
        samples = text_fields(connection, run_id, {edit.sample_id for edit in edits})
        steps = connection.execute(
            "SELECT step FROM audit.run_steps WHERE run_id = $run", {"run": run_id}
        ).fetchall()
        edited = set(read_table(connection, _EDITED, run=run_id).iter_rows())
    sample_ids = set(samples["sample_id"])
    of_run = [edit for edit in edits if edit.sample_id in sample_ids and (edit.step,) in steps]
    return list(_unused(of_run, list(applicable_edits(of_run, [samples])), edited))


def _unused(
    edits: list[Edit], fit: list[Edit], edited: set[tuple[object, ...]]
) -> Iterator[UnusedEdit]:
    newest = {(edit.kind, edit.step, edit.sample_id): edit for edit in edits}
    fits = {(edit.edit_id, edit.step, edit.sample_id) for edit in fit}
    for edit in newest.values():
        if (edit.edit_id, edit.step, edit.sample_id) not in fits:
            yield UnusedEdit(edit, f"the sample has another {edit.field.replace(',', ' or ')} now")
        elif edit.kind in _GONE and not edited.issuperset(_edited_rows(edit)):
            yield UnusedEdit(edit, _GONE[edit.kind])


_GONE: Final[dict[Kind, str]] = {
    "verdicts": "the sample has other claims now",
    "checks": "the rubric has other checks or grades, or the sample other claims, now",
}


def _edited_rows(edit: Edit) -> Iterator[tuple[object, ...]]:
    """What `_EDITED` has for each row of an edit of verdicts or checks."""
    for row in edit.rows:
        if edit.kind == "checks":
            about = row["claim_id"] or edit.sample_id
            yield edit.step, about, row["check_name"], row["criterion"]
        else:
            passage = row["passage"]
            yield edit.step, row["claim_id"], None if passage is None else str(passage), None


def text_fields(
    connection: duckdb.DuckDBPyConnection, run_id: str, sample_ids: Iterable[str]
) -> pl.DataFrame:
    """The samples of a run, with the fields that edits are about."""
    query = """
        SELECT sample_id, user_input, response, reference, retrieved_contexts,
               metadata::VARCHAR AS metadata
        FROM samples WHERE run_id = $run AND list_contains($ids, sample_id)
        """
    return read_table(connection, query, run=run_id, ids=list(sample_ids))


_EDITED: Final = """
SELECT step, claim_id::VARCHAR, passage::VARCHAR, NULL
FROM verdicts WHERE run_id = $run AND starts_with(reason, 'edited by ')
UNION ALL
SELECT step, coalesce(claim_id::VARCHAR, sample_id), check_name, criterion
FROM rubric_verdicts WHERE run_id = $run AND starts_with(reason, 'edited by ')
"""
