"""A labelled sheet taken in: checked whole against the run and the draw that it came from."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import uuid4

from claimflow.flows.engine.errors import Fault, InputError, one_of
from claimflow.flows.engine.labels.drawing import Draw, drawn, places, read_draw
from claimflow.flows.engine.labels.record import Labelled
from claimflow.flows.engine.labels.sheet import READ, Blind
from claimflow.flows.engine.labels.units import (
    TABLES,
    VALUES,
    Part,
    frame_key,
    parts,
    units,
    with_texts,
)
from claimflow.flows.engine.sheets.cells import as_saved
from claimflow.flows.engine.sheets.form import SheetRow
from claimflow.flows.engine.storage.store import Store, now

Source = tuple[str, str, str]
"""The step, the metric ("" for none) and the draw that a row of a sheet says it is of."""


Common = tuple[str, str, datetime]
"""What all labels of one import share: its id, who labelled, when."""


class Drawn(NamedTuple):
    """What a draw gave: each row by its place as a sheet has it, and its probability."""

    part: Part
    draw: Draw
    frame: str
    rows: Mapping[tuple[str, str, str], tuple[dict[str, Any], float]]


def taken_in(sheet: Blind, store: Store, run_id: str, *, who: str) -> list[Labelled]:
    """The labels of a sheet of that run; rows without one are left out.

    Nothing is written. Raises `InputError` with everything that is wrong with the sheet.
    """
    sources: dict[Source, list[SheetRow]] = defaultdict(list)
    for row in sheet.rows:
        metric = row.cell("metric").strip() if sheet.kind == "samples" else ""
        sources[row.cell("step").strip(), metric, row.cell("draw").strip()].append(row)
    faults: list[Fault] = []
    labels: list[Labelled] = []
    common = (str(uuid4()), who, now())
    for source, rows in sources.items():
        found = _drawn_again(sheet, store, run_id, source)
        if isinstance(found, Drawn):
            labels += _labels(sheet, rows, found, common, faults)
        else:
            faults += [sheet.fault(row, *found) for row in rows]
    if faults:
        raise InputError(sorted(faults, key=lambda fault: int(fault.place.rpartition(":")[2])))
    return labels


def _labels(
    sheet: Blind, rows: Sequence[SheetRow], source: Drawn, common: Common, faults: list[Fault]
) -> Iterator[Labelled]:
    """The labels of the rows of one draw; what is wrong goes to `faults`."""
    lines: dict[tuple[str, str, str], int] = {}
    said: dict[str, SheetRow] = {}
    for row in rows:
        place = _place(row)
        stood = source.rows.get(place)
        fault = _fault(sheet, row, stood, lines.get(place))
        lines.setdefault(place, row.line)
        if fault is None and stood is not None and row.cell("label").strip():
            first = said.setdefault(stood[0]["subject"], row)
            fault = _divided(row, first)
            yield _labelled(sheet, row, source, common)
        if fault:
            faults.append(sheet.fault(row, *fault))


def _drawn_again(
    sheet: Blind, store: Store, run_id: str, source: Source
) -> Drawn | tuple[str, str]:
    """What the draw gave that a sheet says it is of; (what is wrong, what would be right)."""
    step, metric, words = source
    with store.reading() as connection:
        known = parts(connection, run_id, sheet.kind)
        same = [part for part in known if (part.step, part.metric or "") == (step, metric)]
        if not same:
            names = list(dict.fromkeys(part.step for part in known))
            if step in names:
                what = f"step {step!r} of run {run_id} has no metric {metric!r}"
                return what, "keep it as it was exported"
            what = f"no step {step!r} of run {run_id} makes {TABLES[sheet.kind]}"
            return what, one_of(step, names)
        rows = units(connection, same[0])
        draw = read_draw(words)
        if draw is None or draw.of != rows.height:
            return f"{words!r} is no draw from run {run_id}", "keep draw as it was exported"
        chosen = drawn(rows, draw)
        texts = with_texts(connection, same[0], rows[list(chosen)])
        frame = frame_key(connection, same[0])
    found = {
        _words(place): (row, chance)
        for place, row, chance in zip(places(texts), texts, chosen.values(), strict=True)
    }
    return Drawn(same[0], draw, frame, found)


def _words(place: tuple[object, object, object]) -> tuple[str, str, str]:
    """A place as a sheet has it."""
    sample_id, claim_id, passage = ("" if part is None else str(part) for part in place)
    return sample_id, claim_id, passage


def _fault(
    sheet: Blind, row: SheetRow, found: tuple[dict[str, Any], float] | None, line: int | None
) -> tuple[str, str] | None:
    """(what is wrong with a row, what would be right)."""
    if found is None:
        return "was not drawn", "keep the columns before the texts as they were exported"
    if line is not None:
        return f"the same stands already on line {line}", "delete one of them"
    stood, _ = found
    for name in READ[sheet.kind]:
        if name != "user_input" and as_saved(row.cell(name)) != as_saved(stood[name] or ""):
            return f"its {name} is another one", "label what was exported"
    return _value_fault(row.cell("label").strip(), VALUES.get(sheet.kind))


def _value_fault(label: str, known: Sequence[str] | None) -> tuple[str, str] | None:
    if not label or (known and label in known):
        return None
    if known:
        return f"{label!r} is no label", one_of(label, known)
    right = "write a number from 0 to 1, as 0.5"
    try:
        inside = 0 <= float(label) <= 1
    except ValueError:
        return f"{label!r} is no number", right
    return None if inside else (f"{label} is not from 0 to 1", right)


def _divided(row: SheetRow, first: SheetRow) -> tuple[str, str] | None:
    before = first.cell("label").strip()
    if before == row.cell("label").strip():
        return None
    what = f"the same texts are labelled {before!r} on line {first.line}"
    return what, "give both one label"


def _place(row: SheetRow) -> tuple[str, str, str]:
    return row.cell("sample_id"), row.cell("claim_id").strip(), row.cell("passage").strip()


def _labelled(sheet: Blind, row: SheetRow, source: Drawn, common: Common) -> Labelled:
    import_id, who, at = common
    stood, probability = source.rows[_place(row)]
    said = row.cell("label").strip()
    named = sheet.kind != "samples"
    return Labelled(
        import_id=import_id,
        kind=sheet.kind,
        subject=stood["subject"],
        run_id=source.part.run_id,
        step=source.part.step,
        **{name: stood[name] for name in ("sample_id", "claim_id", "claim", "against", "passage")},
        metric=source.part.metric,
        label=said if named else None,
        rating=None if named else float(said),
        annotator=who,
        file=sheet.path.name,
        draw=str(source.draw),
        frame=source.frame,
        probability=probability,
        labelled_at=at,
    )
