"""Corrections made by hand: on record, and which one applies to which sample."""

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, Literal, NamedTuple

import duckdb
import polars as pl

from claimflow.flows.pipeline.wiring import Step
from claimflow.flows.store.store import Store, insert, read_table
from claimflow.stages.rows import canonical, content_key

Kind = Literal["claims", "verdicts"]

_JSON = ("rows", "replaced")


class Edit(NamedTuple):
    """What one import says of one sample's rows in one step.

    `field` is the field of the sample that the claims are of or were held against, `text` the
    key of what stood there. `rows` are all the claims of the sample from then on, or those of
    its verdicts that changed; `replaced` is what stood before. `undoes` is the edit that this
    one takes back, if it takes one back.
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
        """What the rows that it gave say of themselves."""
        return f"edited by {self.who}: {self.why}"


def text_key(text: str | list[str] | None) -> str:
    """Key of what stands in a field of a sample."""
    return content_key("text", text)


def edited_field(step: Step) -> str | None:
    """The field that a step's claims are of or held against; None where no edit could stand."""
    return step.stage.claims_of or step.stage.premise


def save_edits(store: Store, edits: Iterable[Edit]) -> None:
    """Put edits on record, all in one transaction."""
    rows = [
        edit._asdict() | {name: canonical(getattr(edit, name)).decode() for name in _JSON}
        for edit in edits
    ]
    frame = pl.DataFrame(rows, schema_overrides={"undoes": pl.String}, infer_schema_length=None)
    with store.writing() as connection:
        insert(connection, "audit.edits", frame)


def all_edits(connection: duckdb.DuckDBPyConnection, pipeline: str | None = None) -> list[Edit]:
    """Every edit on record (of one pipeline), oldest first; those taken back too."""
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
    """Those that neither take another back nor were taken back, in the same order."""
    edits = list(edits)
    undone = {edit.undoes for edit in edits}
    return [edit for edit in edits if edit.undoes is None and edit.edit_id not in undone]


def undo_edit(
    edits: Iterable[Edit], edit_id: str, *, undoing: str, who: str, why: str, at: datetime
) -> list[Edit]:
    """The edits by which `edit_id`, one of `edits`, is taken back as `undoing`."""
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
    """Those whose sample is one of `samples` and still says what it said."""
    by_sample: dict[str, list[Edit]] = {}
    for edit in edits:
        by_sample.setdefault(edit.sample_id, []).append(edit)
    if not by_sample:
        return
    for frame in samples:
        for row in frame.filter(pl.col("sample_id").is_in(list(by_sample))).iter_rows(named=True):
            for edit in by_sample[row["sample_id"]]:
                if text_key(row[edit.field]) == edit.text:
                    yield edit


class Edits:
    """The edits that stand for the samples of a run of `pipeline`.

    `samples` gives the samples, part by part; it is asked only where there are edits.
    """

    def __init__(
        self, store: Store, pipeline: str, samples: Callable[[], Iterable[pl.DataFrame]]
    ) -> None:
        on_record: list[Edit] = []
        if store.path.is_file():
            with store.reading() as connection:
                on_record = edits_in_force(all_edits(connection, pipeline))
        self._standing = list(applicable_edits(on_record, samples())) if on_record else []

    def of(self, step: Step) -> list[Edit]:
        """Those that stand for the table of a step, oldest first."""
        found = [e for e in self._standing if (e.step, e.field) == (step.name, edited_field(step))]
        return sorted(found, key=lambda edit: (edit.edited_at, edit.edit_id))
