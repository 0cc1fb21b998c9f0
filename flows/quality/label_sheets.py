"""Blind label sheets: drawn from a run, written without the judge's verdicts, read back."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import uuid4

import duckdb
import polars as pl

from claimflow.flows.errors import Fault, InputError, one_of
from claimflow.flows.quality.csv_sheets import (
    Problem,
    Sheet,
    SheetLayout,
    SheetRow,
    normalize_newlines,
    raise_faults,
)
from claimflow.flows.quality.label_sampling import (
    Draw,
    DrawMethod,
    draw_rows,
    parse_draw,
    uncertainty,
)
from claimflow.flows.quality.labels import (
    TABLES,
    Kind,
    LabelRecord,
    LabelTarget,
    frame_key,
    label_targets,
    target_rows,
    with_texts,
)
from claimflow.flows.store.store import Store, now

TEXT_COLUMNS: Final[Mapping[Kind, tuple[str, ...]]] = {
    "verdicts": ("user_input", "premise", "claim"),
    "checks": (
        *("user_input", "response", "reference", "retrieved_contexts"),
        *("criterion", "claim", "scale"),
    ),
    "claims": ("user_input", "text", "claim"),
    "samples": ("user_input", "response", "reference", "retrieved_contexts"),
}
"""The columns of the texts that an annotator reads."""

_KEY_COLUMNS: Final[Mapping[Kind, tuple[str, ...]]] = {
    "verdicts": ("sample_id", "claim_id", "against", "passage"),
    "checks": ("sample_id", "claim_id", "against", "passage"),
    "claims": ("sample_id", "claim_id"),
    "samples": ("sample_id", "metric"),
}

_IDENTIFIED_BY: Final[Mapping[Kind, str | None]] = {
    "verdicts": "premise",
    "checks": "criterion",
    "claims": "claim",
    "samples": None,
}

LAYOUTS: Final[tuple[SheetLayout[Kind], ...]] = tuple(
    SheetLayout(
        kind,
        column,
        columns=(
            columns := (
                *("run", "step", "draw", *_KEY_COLUMNS[kind], *TEXT_COLUMNS[kind]),
                *("label", "comment"),
            )
        ),
        required=[name for name in columns if name not in ("against", "user_input", "comment")],
    )
    for kind, column in _IDENTIFIED_BY.items()
)

UNSURE: Final = "unsure"
"""What a person writes in place of a label who cannot decide."""

_DRAWN_FIELDS: Final = ("subject", "sample_id", "claim_id", "claim", "against", "passage")
"""The fields of a label that are those of the row drawn."""

_Key = tuple[str, str, str]
"""Sample, claim and passage of a row, as texts; "" for none."""

_Source = tuple[str, str, str]
"""The step, the metric ("" for none) and the draw that a row of a sheet names."""


class DrawnRows(NamedTuple):
    """Rows drawn from a target to be labelled, in a random order.

    A row is one of `with_texts` with its inclusion probability; `frame` is the key of all rows
    that could have been drawn.
    """

    target: LabelTarget
    draw: Draw
    frame: str
    rows: list[tuple[dict[str, Any], float]]

    def labels(
        self, keys: Collection[_Key], label: str, shared: Mapping[str, Any]
    ) -> list[LabelRecord]:
        """The records of one label for the rows with `keys`; `shared` are its other fields.

        `label` is one of the target's values, a number as text, `UNSURE`, or "" to take an earlier
        label back.
        """
        given = None if label in ("", UNSURE) else label
        rated = self.target.values is None and given is not None
        return [
            LabelRecord(
                **shared,
                **{name: row[name] for name in _DRAWN_FIELDS},
                kind=self.target.kind,
                run_id=self.target.run_id,
                step=self.target.step,
                metric=self.target.metric,
                label=None if rated else given,
                rating=float(label) if rated else None,
                unsure=label == UNSURE,
                draw=str(self.draw),
                frame=self.frame,
                probability=probability,
            )
            for row, probability in self.rows
            if row_key(row) in keys
        ]


def row_key(row: Mapping[str, object]) -> _Key:
    """Sample, claim and passage of a drawn row, as texts; "" for none."""
    parts = (row[name] for name in ("sample_id", "claim_id", "passage"))
    sample, claim, passage = ("" if part is None else str(part) for part in parts)
    return sample, claim, passage


def new_import(who: str, file: str) -> dict[str, Any]:
    """The fields that the labels of one import, or one label given in the viewer, share."""
    return {"import_id": str(uuid4()), "annotator": who, "file": file, "labelled_at": now()}


def draw_from_target(
    store: Store, target: LabelTarget, *, size: int, by: DrawMethod, seed: int
) -> DrawnRows:
    """At most `size` rows to label.

    Raises `InputError` where there are no rows, or where `by` is uncertainty and the rows do not
    tell how certain the judge was.
    """
    with store.reading() as connection:
        rows = target_rows(connection, target)
        if rows.is_empty():
            what = f"step {target.step} of run {target.run_id} has no {target.kind}"
            raise InputError([Fault("--of", what, "choose another step or run")])
        if by == "uncertainty" and uncertainty(rows) is None:
            what = f"nothing says how sure step {target.step} was: no probabilities, no votes"
            raise InputError([Fault("--by uncertainty", what, "write --by random")])
        draw = Draw(by, min(size, rows.height), rows.height, seed)
        return _draw(connection, target, rows, draw)


def _draw(
    connection: duckdb.DuckDBPyConnection, target: LabelTarget, rows: pl.DataFrame, draw: Draw
) -> DrawnRows:
    probabilities = draw_rows(rows, draw)
    drawn = with_texts(connection, target, rows[list(probabilities)])
    pairs = list(zip(drawn, probabilities.values(), strict=True))
    return DrawnRows(target, draw, frame_key(connection, target), pairs)


def label_sheet(drawn: DrawnRows) -> pl.DataFrame:
    """The rows to label as a sheet, with the empty columns `label` and `comment`."""
    target = drawn.target
    (columns,) = (layout.columns for layout in LAYOUTS if layout.kind == target.kind)
    shared = {
        **{"run": target.run_id, "step": target.step, "draw": str(drawn.draw)},
        **{"label": None, "comment": None},
    }
    return pl.DataFrame(
        [{name: (shared | row)[name] for name in columns} for row, _ in drawn.rows],
        infer_schema_length=None,
    )


def find_labels(sheet: Sheet[Kind], store: Store, run_id: str, *, who: str) -> list[LabelRecord]:
    """The labels in a sheet of a run, checked against the draws that its rows name.

    Rows without a label are left out. Writes nothing. Raises `InputError` with every fault of the
    sheet.
    """
    sources: dict[_Source, list[SheetRow]] = defaultdict(list)
    for row in sheet.rows:
        metric = row.cell("metric").strip() if sheet.kind == "samples" else ""
        sources[row.cell("step").strip(), metric, row.cell("draw").strip()].append(row)
    faults: list[Fault] = []
    labels: list[LabelRecord] = []
    shared = new_import(who, sheet.path.name)
    for source, rows in sources.items():
        found = _repeat_draw(sheet.kind, store, run_id, source)
        if isinstance(found, DrawnRows):
            labels += _labels(sheet, rows, found, shared, faults)
        else:
            faults += [sheet.fault(row, *found) for row in rows]
    if faults:
        raise_faults(faults)
    return labels


def _repeat_draw(kind: Kind, store: Store, run_id: str, source: _Source) -> DrawnRows | Problem:
    step, metric, draw_text = source
    with store.reading() as connection:
        targets = label_targets(connection, run_id, kind)
        named = [one for one in targets if (one.step, one.metric or "") == (step, metric)]
        if not named:
            steps = list(dict.fromkeys(one.step for one in targets))
            if step in steps:
                what = f"step {step!r} of run {run_id} has no metric {metric!r}"
                return what, "keep it as it was exported"
            return f"no step {step!r} of run {run_id} makes {TABLES[kind]}", one_of(step, steps)
        (target,) = named
        rows = target_rows(connection, target)
        draw = parse_draw(draw_text)
        if draw is None or draw.of != rows.height:
            return f"{draw_text!r} is not a draw from run {run_id}", "keep draw as it was exported"
        return _draw(connection, target, rows, draw)


def _labels(
    sheet: Sheet[Kind],
    rows: Sequence[SheetRow],
    source: DrawnRows,
    shared: Mapping[str, Any],
    faults: list[Fault],
) -> Iterator[LabelRecord]:
    """The labels of the rows of one draw; adds what is wrong with them to `faults`.

    `shared` are the fields that all labels of the import share.
    """
    lines: dict[_Key, int] = {}
    first_by_subject: dict[str, SheetRow] = {}
    by_key = {row_key(row): row for row, _ in source.rows}
    for row in rows:
        named = {name: row.cell(name).strip() for name in ("claim_id", "passage")}
        key = row_key({"sample_id": row.cell("sample_id"), **named})
        drawn = by_key.get(key)
        problem = _row_problem(source.target, row, drawn, lines.get(key))
        lines.setdefault(key, row.line)
        label = row.cell("label").strip()
        if problem is None and drawn is not None and label:
            first = first_by_subject.setdefault(drawn["subject"], row)
            earlier = first.cell("label").strip()
            if earlier != label:
                what = f"the same texts are labelled {earlier!r} on line {first.line}"
                problem = what, "give both one label"
            comment = row.cell("comment").strip() or None
            yield from source.labels({key}, label, {**shared, "comment": comment})
        if problem:
            faults.append(sheet.fault(row, *problem))


def _row_problem(
    target: LabelTarget, row: SheetRow, drawn: dict[str, Any] | None, earlier_line: int | None
) -> Problem | None:
    if drawn is None:
        return "is not a row of the draw", "keep the columns before the texts as they were exported"
    if earlier_line is not None:
        return f"the same row is already on line {earlier_line}", "delete one of them"
    for name in TEXT_COLUMNS[target.kind]:
        text = drawn[name] or ""
        if name != "user_input" and normalize_newlines(row.cell(name)) != normalize_newlines(text):
            return f"its {name} was changed", "keep the exported text"
    return label_problem(row.cell("label").strip(), target.values)


def label_problem(label: str, values: Sequence[str] | None) -> Problem | None:
    """What is wrong with a label, which is one of `values`, or a number where they are None."""
    if label in ("", UNSURE) or (values and label in values):
        return None
    if values:
        return f"{label!r} is not a label", one_of(label, values)
    hint = "write a number from 0 to 1, as 0.5"
    try:
        inside = 0 <= float(label) <= 1
    except ValueError:
        return f"{label!r} is not a number", hint
    return None if inside else (f"{label} is not from 0 to 1", hint)
