"""A sheet taken in: checked whole against its run, and what was changed in it as edits."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import uuid4

from claimflow.flows.engine.errors import Fault, InputError, one_of
from claimflow.flows.engine.sheets.changes import Change, changed_claims, changed_verdicts
from claimflow.flows.engine.sheets.form import Sheet, SheetRow
from claimflow.flows.engine.sheets.standing import Place, Standing, standing
from claimflow.flows.engine.storage.edits import Edit, Kind
from claimflow.flows.engine.storage.store import Store, now

_FIELD: Final[Mapping[Kind, str]] = {"claims": "of", "verdicts": "against"}
"""The column that names the field of the sample that a row is about."""


class Taken(NamedTuple):
    """An edit, and how many of its rows are changed, added and removed ones."""

    edit: Edit
    change: Change


def run_of(sheet: Sheet) -> str | None:
    """The run that the rows of a sheet are of; None where they do not say.

    Raises `InputError` where they are of several.
    """
    named = {row.cell("run").strip(): row for row in reversed(sheet.rows)}
    named.pop("", None)
    if len(named) < 2:
        return next(iter(named), None)
    first, *others = sorted(named.values(), key=lambda row: row.line)
    here = first.cell("run").strip()
    raise InputError(
        sheet.fault(
            row, f"is of run {row.cell('run').strip()}, the rows above of {here}", "keep one run"
        )
        for row in others
    )


def taken_in(sheet: Sheet, store: Store, run_id: str, *, who: str, why: str) -> list[Taken]:
    """What a person changed in a sheet of that run, but for what is on record already.

    Nothing is written. Raises `InputError` with everything that is wrong with the sheet.
    """
    ids = {row.cell("sample_id") for row in sheet.rows}
    stood = standing(store, run_id, sheet.kind, ids)
    faults: list[Fault] = []
    changes = list(_changes(sheet, stood, faults))
    if faults:
        raise InputError(sorted(faults, key=lambda fault: int(fault.place.rpartition(":")[2])))
    edit_id, at = str(uuid4()), now()
    taken = []
    for (step, sample_id), change in changes:
        news = _news(sheet, stood.edits.get((step, sample_id), ()), change)
        if news is not None:
            field = stood.rows[step, sample_id][0][_FIELD[sheet.kind]]
            text = stood.text(sample_id, field)
            about = (edit_id, sheet.kind, stood.pipeline, step, sample_id, field, text)
            edit = Edit(*about, news.after, news.before, who, why, at)
            taken.append(Taken(edit, news))
    return taken


def _changes(sheet: Sheet, stood: Standing, faults: list[Fault]) -> Iterator[tuple[Place, Change]]:
    """What was changed, by step and sample."""
    places: dict[Place, list[SheetRow]] = defaultdict(list)
    for row in sheet.rows:
        place = row.cell("step").strip(), row.cell("sample_id")
        fault = _misplaced(sheet, stood, place)
        if fault:
            faults.append(sheet.fault(row, *fault))
        else:
            places[place].append(row)
    compare = changed_claims if sheet.kind == "claims" else changed_verdicts
    for place, rows in places.items():
        change = compare(sheet, rows, stood.rows[place], faults)
        if change is not None:
            yield place, change


def _misplaced(sheet: Sheet, stood: Standing, place: Place) -> tuple[str, str] | None:
    step, sample_id = place
    if step not in stood.steps:
        what = f"no step {step!r} of run {stood.run_id} makes {sheet.kind}"
        return what, one_of(step, stood.steps)
    if sample_id not in stood.texts:
        what = f"run {stood.run_id} has no sample {sample_id!r}"
        return what, "keep sample_id as it was exported"
    if place not in stood.rows:
        what = f"sample {sample_id!r} has no {sheet.kind} in step {step}"
        return what, "delete the row"
    return None


def _news(sheet: Sheet, edits: Sequence[Edit], change: Change) -> Change | None:
    """The change, less what is on record in `edits` already."""
    if sheet.kind == "claims":
        if not edits:
            return change
        last = edits[-1].rows
        same = {row["claim"] for row in last} == {row["claim"] for row in change.after}
        return None if same else change._replace(before=last)
    known = {(row["claim_id"], row["passage"]): row for edit in edits for row in edit.rows}
    pairs = [
        (known.get((after["claim_id"], after["passage"]), before), after)
        for before, after in zip(change.before, change.after, strict=True)
    ]
    new = [(before, after) for before, after in pairs if before != after]
    if not new:
        return None
    return Change([before for before, _ in new], [after for _, after in new], len(new))
