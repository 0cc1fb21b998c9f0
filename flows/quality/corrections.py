"""Corrections by hand: read from CSV, checked against their run, recorded."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, get_args
from uuid import uuid4

import duckdb

from claimflow.flows.errors import Fault, InputError, one_of
from claimflow.flows.quality.correction_csv import Sheet, SheetRow, as_saved, sheet_rows
from claimflow.flows.store.edits import Edit, Kind, all_edits, fitting, in_force, text_key
from claimflow.flows.store.store import Store, now, read_table
from claimflow.stages.rows import Label, content_key

# What a person changed in the rows that a sheet has of one sample in one step.


_LABELS: Final = get_args(Label)
_VERDICT: Final = ("claim_id", "claim", "against", "passage")


class Change(NamedTuple):
    """The rows of one sample in one step, before and after, and how many are other ones."""

    before: list[dict[str, Any]]
    after: list[dict[str, Any]]
    changed: int = 0
    added: int = 0
    removed: int = 0


def changed_claims(
    sheet: Sheet, rows: Sequence[SheetRow], stood: Sequence[dict[str, Any]], faults: list[Fault]
) -> Change | None:
    """The claims of a sample, all of them; None where they are as they were.

    A row without an id is a claim that was added, one whose claim is blank is none. What is
    wrong goes to `faults`.
    """
    by_id = {row["claim_id"]: row["claim"] for row in stood if row["claim_id"] is not None}
    kept, added = _written(sheet, rows, by_id, faults)
    was = [claim for claim in by_id.values() if claim is not None]
    now = [*(kept[key] for key in by_id if key in kept), *added]
    if set(now) == set(was):
        return None
    changed = sum(by_id[key] != claim for key, claim in kept.items())
    sample_id, of = stood[0]["sample_id"], stood[0]["of"]
    before, after = (
        [
            {"claim_id": content_key("claim", sample_id, of, claim), "claim": claim}
            for claim in claims
        ]
        for claims in (was, now)
    )
    return Change(before, after, changed, len(added), len(was) - len(kept))


def _written(
    sheet: Sheet, rows: Sequence[SheetRow], by_id: Mapping[str, Any], faults: list[Fault]
) -> tuple[dict[str, str], list[str]]:
    """The claims that a sheet has now: those with an id by it, and those that were added."""
    kept: dict[str, str] = {}
    added: list[str] = []
    lines: dict[str, int] = {}
    for row in _once(sheet, rows, by_id, faults):
        before = by_id.get(row.cell("claim_id").strip())
        claim = _unless_changed(row.cell("claim"), before)
        if not claim:
            continue
        if claim in lines:
            what = f"the same claim stands already on line {lines[claim]}"
            faults.append(sheet.fault(row, what, "delete one of them"))
        lines[claim] = row.line
        if before is None:
            added.append(claim)
        else:
            kept[row.cell("claim_id").strip()] = claim
    return kept, added


def changed_verdicts(
    sheet: Sheet, rows: Sequence[SheetRow], stood: Sequence[dict[str, Any]], faults: list[Fault]
) -> Change | None:
    """Those verdicts of a sample that are other ones than before; None where there are none."""
    by_key = {_key(row["claim_id"], row["passage"]): row for row in stood}
    seen: dict[tuple[str, str], int] = {}
    change = Change([], [])
    for row in rows:
        key = _key(row.cell("claim_id").strip(), row.cell("passage").strip())
        fault = _verdict_fault(row, by_key.get(key), seen.get(key))
        if fault:
            faults.append(sheet.fault(row, *fault))
        elif by_key[key]["verdict"] != (label := row.cell("verdict").strip() or None):
            before = {name: by_key[key][name] for name in _VERDICT}
            change.before.append(before | {"verdict": by_key[key]["verdict"]})
            change.after.append(before | {"verdict": label})
        seen.setdefault(key, row.line)
    return change._replace(changed=len(change.after)) if change.after else None


def _once(
    sheet: Sheet, rows: Sequence[SheetRow], by_id: Mapping[str, Any], faults: list[Fault]
) -> Iterator[SheetRow]:
    """The rows whose id is the sample's, or none, and stands in no row before."""
    lines: dict[str, int] = {}
    for row in rows:
        key = row.cell("claim_id").strip()
        if key and key not in by_id:
            what = f"{key!r} is no claim of sample {row.cell('sample_id')!r} in that run"
            hint = "leave claim_id empty to add a claim, or say which run it is of by --run"
            faults.append(sheet.fault(row, what, hint))
        elif key in lines:
            what = f"claim_id {key!r} stands already on line {lines[key]}"
            faults.append(sheet.fault(row, what, "leave claim_id empty to add a claim"))
        else:
            yield row
        if key:
            lines.setdefault(key, row.line)


def _unless_changed(cell: str, before: str | None) -> str:
    """The claim as it was, where a spreadsheet wrote nothing else, or the one written now."""
    if before is not None and as_saved(cell) == as_saved(before):
        return before
    return cell.strip()


def _verdict_fault(
    row: SheetRow, stood: Mapping[str, Any] | None, line: int | None
) -> tuple[str, str] | None:
    """(what is wrong with a row of a sheet of verdicts, what would be right)."""
    if stood is None:
        passage = f" by passage {row.cell('passage')}" if row.cell("passage") else ""
        what = f"no verdict{passage} on claim {row.cell('claim_id')!r} in that run"
        return what, "keep claim_id and passage as they were exported"
    if line is not None:
        return f"the same verdict stands already on line {line}", "delete one of them"
    if as_saved(row.cell("claim")) != as_saved(stood["claim"]):
        return "the claim is another one", "correct claims in a sheet of claims"
    verdict = row.cell("verdict").strip()
    if verdict and verdict not in _LABELS:
        return f"{verdict!r} is no verdict", one_of(verdict, _LABELS)
    if not verdict and stood["verdict"] is not None:
        return "has no verdict", f"write one of {', '.join(_LABELS)}"
    return None


def _key(claim_id: str, passage: object) -> tuple[str, str]:
    return claim_id, "" if passage is None else str(passage)


# What a sheet is held against: the rows of its run, its samples, and the edits in force.


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


# A sheet taken in: checked whole against its run, and what was changed in it as edits.


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


# Edits that a run could not use, for what they are about has changed since.


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
