"""Correction sheets: rows of a run exported as CSV, corrected by hand, read back."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, get_args
from uuid import uuid4

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
from claimflow.flows.quality.labels import TABLES
from claimflow.flows.store.arrow import read_table
from claimflow.flows.store.edits import (
    Edit,
    Kind,
    all_edits,
    applicable_edits,
    edits_in_force,
    fields_read,
    text_fields,
    text_key,
)
from claimflow.flows.store.runs import pipeline_and_start
from claimflow.flows.store.store import Store, now
from claimflow.stages.rows import Label, content_key
from claimflow.stages.rubric import check_labels, check_score

LAYOUTS: Final[tuple[SheetLayout[Kind], ...]] = (
    SheetLayout(
        "checks",
        "check_name",
        columns=(
            "run",
            "sample_id",
            "step",
            "check_name",
            "criterion",
            "claim_id",
            "claim",
            "verdict",
            "status",
            "reason",
        ),
        required=("sample_id", "step", "check_name", "criterion", "claim_id", "verdict"),
    ),
    SheetLayout(
        "verdicts",
        "verdict",
        columns=(
            "run",
            "sample_id",
            "step",
            "claim_id",
            "claim",
            "against",
            "passage",
            "verdict",
            "status",
            "evidence",
            "reason",
        ),
        required=("sample_id", "step", "claim_id", "claim", "passage", "verdict"),
    ),
    SheetLayout(
        "claims",
        None,
        columns=("run", "sample_id", "step", "of", "claim_id", "claim", "status", "text"),
        required=("sample_id", "step", "claim_id", "claim"),
    ),
)

_LABELS: Final = get_args(Label)

_EDIT_COLUMNS: Final[Mapping[Kind, tuple[str, ...]]] = {
    "verdicts": ("claim_id", "claim", "against", "passage"),
    "checks": ("claim_id", "claim", "check_name", "criterion", "scale"),
}
"""What an edit keeps of a row of verdicts, besides the verdict."""

_KEY: Final[Mapping[Kind, tuple[str, str]]] = {
    "verdicts": ("claim_id", "passage"),
    "checks": ("claim_id", "check_name"),
}
"""The columns that tell the verdicts of a step on a sample apart."""

_TEXT: Final[Mapping[Kind, str]] = {"verdicts": "claim", "checks": "criterion"}
"""The column of a text that is changed elsewhere."""

_FIELD_COLUMN: Final[Mapping[Kind, str]] = {
    "claims": "of",
    "verdicts": "against",
    "checks": "reads",
}
"""The column that names the field of the sample, or the fields, that a row is about."""

Place = tuple[str, str]
"""A step and a sample of it."""


class Change(NamedTuple):
    """The rows of one sample in one step before and after correction, and how many differ."""

    before: list[dict[str, Any]]
    after: list[dict[str, Any]]
    changed: int = 0
    added: int = 0
    removed: int = 0


class CorrectedSample(NamedTuple):
    """An edit of one sample in one step, not recorded yet, and the change that it makes."""

    edit: Edit
    change: Change


# Which passages a verdict on cited ones is about depends on the response too: none is corrected.
_STEPS: Final = """
SELECT run_steps.step, position, settings
FROM audit.run_steps JOIN audit.artifacts USING (artifact_id)
WHERE run_steps.run_id = $run AND kind = $kind AND step = coalesce($step::VARCHAR, step)
      AND settings->>'$.premises' IS DISTINCT FROM 'cited'
ORDER BY position
"""

# A text without claims has a row too, so that claims can be added to it.
_CLAIMS: Final = f"""
SELECT $run AS run, texts.sample_id, texts.step, texts."of", claim_id::VARCHAR AS claim_id,
       claim, coalesce(status, 'none') AS status,
       CASE WHEN "start" IS NULL THEN whole
            ELSE substr(whole, "start" + 1, stop - "start") END AS text, context
FROM (
    SELECT sample_id, steps.step, position, settings->>'of' AS "of",
           settings->>'context' AS context,
           CASE settings->>'of' WHEN 'response' THEN response ELSE reference END AS whole
    FROM samples, ({_STEPS}) steps WHERE samples.run_id = $run
) texts
LEFT JOIN (SELECT * FROM claims WHERE run_id = $run AND status <> 'not_a_claim') made
     USING (sample_id, step)
WHERE claim_id IS NOT NULL OR trim(whole) <> ''
ORDER BY position, texts.sample_id, "start", claim
"""

_VERDICTS: Final = f"""
SELECT $run AS run, about.sample_id, v.step, v.claim_id::VARCHAR AS claim_id, about.claim,
       v.against, v.passage, v.verdict, v.status, v.evidence, v.reason,
       settings->>'context' AS context
FROM ({_STEPS}) steps
JOIN (SELECT * FROM verdicts WHERE run_id = $run) v USING (step)
JOIN (
    SELECT claim_id, any_value(sample_id) AS sample_id, any_value(claim) AS claim,
           any_value("start") AS "start"
    FROM claims WHERE run_id = $run GROUP BY claim_id
) about USING (claim_id)
ORDER BY position, about.sample_id, "start", about.claim, v.passage
"""

# A row without a criterion says that the checks of the sample could not be read.
_CHECKS: Final = f"""
SELECT $run AS run, v.sample_id, v.step, v.check_name, v.criterion,
       v.claim_id::VARCHAR AS claim_id, about.claim, v.verdict, v.status, v.reason,
       array_to_string(settings->>'$.reads[*]', ',') AS reads, settings->>'scale' AS scale
FROM ({_STEPS}) steps
JOIN (SELECT * FROM rubric_verdicts WHERE run_id = $run) v USING (step)
LEFT JOIN (
    SELECT claim_id, any_value(claim) AS claim, any_value("start") AS "start"
    FROM claims WHERE run_id = $run GROUP BY claim_id
) about USING (claim_id)
WHERE v.criterion IS NOT NULL
ORDER BY position, v.sample_id, "start", about.claim, v.check_name
"""

_QUERIES: Final[Mapping[Kind, str]] = {
    "claims": _CLAIMS,
    "verdicts": _VERDICTS,
    "checks": _CHECKS,
}


def sheet_rows(store: Store, run_id: str, kind: Kind, step: str | None = None) -> pl.DataFrame:
    """The rows of a correction sheet of a run (of one step of it), in the columns of its layout.

    Raises `InputError` where no step of the run, or not the step named, makes rows of that kind.
    """
    layout = next(layout for layout in LAYOUTS if layout.kind == kind)
    return _rows(store, run_id, kind, step).select(layout.columns)


def _rows(store: Store, run_id: str, kind: Kind, step: str | None = None) -> pl.DataFrame:
    """The rows of a sheet, with what was read beside a text (`context`).

    Those of checks have the fields read and the `scale` as JSON.
    """
    table = TABLES[kind]
    with store.reading() as connection:
        steps = read_table(connection, _STEPS, run=run_id, kind=table, step=None)["step"]
        if step is not None and step not in steps:
            what = f"no step {step!r} of run {run_id} makes {table}"
            raise InputError([Fault("--step", what, one_of(step, steps))])
        if steps.is_empty():
            what, hint = f"no step of run {run_id} makes {table}", "choose a run that has some"
            raise InputError([Fault(str(store.path), what, hint)])
        return read_table(connection, _QUERIES[kind], run=run_id, kind=table, step=step)


def run_of_sheet(sheet: Sheet[Kind]) -> str | None:
    """The run that the rows of a sheet name; None where they name none.

    Raises `InputError` where they name several.
    """
    first_rows = {row.cell("run").strip(): row for row in reversed(sheet.rows)}
    first_rows.pop("", None)
    if len(first_rows) < 2:
        return next(iter(first_rows), None)
    first, *others = sorted(first_rows.values(), key=lambda row: row.line)
    run = first.cell("run").strip()
    raise InputError(
        sheet.fault(
            row, f"is of run {row.cell('run').strip()}, the rows above of {run}", "keep one run"
        )
        for row in others
    )


def find_corrections(
    sheet: Sheet[Kind], store: Store, run_id: str, *, who: str, why: str
) -> list[CorrectedSample]:
    """The corrections in a sheet of a run, except those that are recorded already.

    Writes nothing. Raises `InputError` with every fault of the sheet.
    """
    baseline = _load_baseline(store, run_id, sheet.kind, {r.cell("sample_id") for r in sheet.rows})
    faults: list[Fault] = []
    changes = list(_changes(sheet, baseline, faults))
    if faults:
        raise_faults(faults)
    edit_id, at = str(uuid4()), now()
    corrected = []
    for (step, sample_id), whole_change in changes:
        edits = baseline.edits.get((step, sample_id), ())
        change = _without_recorded(sheet.kind, edits, whole_change)
        if change is not None:
            row = baseline.rows[step, sample_id][0]
            field = fields_read(row[_FIELD_COLUMN[sheet.kind]], row.get("context"))
            text = text_key(baseline.texts[sample_id], field)
            about = (edit_id, sheet.kind, baseline.pipeline, step, sample_id, field, text)
            edit = Edit(*about, change.after, change.before, who, why, at)
            corrected.append(CorrectedSample(edit, change))
    return corrected


class _Baseline(NamedTuple):
    """The `rows` of a run in the columns of a sheet, by step and sample, and its `steps`.

    `texts` are the fields of each sample, `edits` those in force for them, oldest first.
    """

    run_id: str
    pipeline: str
    rows: Mapping[Place, list[dict[str, Any]]]
    texts: Mapping[str, Mapping[str, Any]]
    edits: Mapping[Place, list[Edit]]
    steps: tuple[str, ...]


def _load_baseline(store: Store, run_id: str, kind: Kind, sample_ids: Iterable[str]) -> _Baseline:
    """The rows of a run; texts and edits only of the samples in `sample_ids`."""
    rows: dict[Place, list[dict[str, Any]]] = {}
    for row in _rows(store, run_id, kind).iter_rows(named=True):
        rows.setdefault((row["step"], row["sample_id"]), []).append(row)
    with store.reading() as connection:
        pipeline, _ = pipeline_and_start(connection, run_id)
        samples = text_fields(connection, run_id, sample_ids)
        recorded = edits_in_force(all_edits(connection, pipeline))
    edits: dict[Place, list[Edit]] = {}
    for edit in applicable_edits([edit for edit in recorded if edit.kind == kind], [samples]):
        edits.setdefault((edit.step, edit.sample_id), []).append(edit)
    texts = {row["sample_id"]: row for row in samples.iter_rows(named=True)}
    steps = tuple(dict.fromkeys(step for step, _ in rows))
    return _Baseline(run_id, pipeline, rows, texts, edits, steps)


def _changes(
    sheet: Sheet[Kind], baseline: _Baseline, faults: list[Fault]
) -> Iterator[tuple[Place, Change]]:
    """The changes in a sheet by step and sample; adds what is wrong with it to `faults`."""
    rows_by_place: dict[Place, list[SheetRow]] = defaultdict(list)
    for row in sheet.rows:
        place = row.cell("step").strip(), row.cell("sample_id")
        problem = _place_problem(sheet.kind, baseline, place)
        if problem:
            faults.append(sheet.fault(row, *problem))
        else:
            rows_by_place[place].append(row)
    compare = _changed_claims if sheet.kind == "claims" else _changed_verdicts
    for place, rows in rows_by_place.items():
        change = compare(sheet, rows, baseline.rows[place], faults)
        if change is not None:
            yield place, change


def _place_problem(kind: Kind, baseline: _Baseline, place: Place) -> Problem | None:
    step, sample_id = place
    if step not in baseline.steps:
        what = f"no step {step!r} of run {baseline.run_id} makes {TABLES[kind]}"
        return what, one_of(step, baseline.steps)
    if sample_id not in baseline.texts:
        what = f"run {baseline.run_id} has no sample {sample_id!r}"
        return what, "keep sample_id as it was exported"
    if place not in baseline.rows:
        return f"sample {sample_id!r} has no {kind} in step {step}", "delete the row"
    return None


def _changed_claims(
    sheet: Sheet[Kind],
    rows: Sequence[SheetRow],
    baseline: Sequence[dict[str, Any]],
    faults: list[Fault],
) -> Change | None:
    """All claims of a sample before and after; None where they are the same.

    A row without an id adds a claim, a blank claim removes one.
    """
    by_id = {row["claim_id"]: row["claim"] for row in baseline if row["claim_id"] is not None}
    kept, added = _claims_in_sheet(sheet, rows, by_id, faults)
    old = [claim for claim in by_id.values() if claim is not None]
    new = [*(kept[key] for key in by_id if key in kept), *added]
    if set(new) == set(old):
        return None
    changed = sum(by_id[key] != claim for key, claim in kept.items())
    sample_id, of = baseline[0]["sample_id"], baseline[0]["of"]
    before, after = (
        [
            {"claim_id": content_key("claim", sample_id, of, claim), "claim": claim}
            for claim in claims
        ]
        for claims in (old, new)
    )
    return Change(before, after, changed, len(added), len(old) - len(kept))


def _claims_in_sheet(
    sheet: Sheet[Kind], rows: Sequence[SheetRow], by_id: Mapping[str, Any], faults: list[Fault]
) -> tuple[dict[str, str], list[str]]:
    """(the claims that have an id, by id; the claims that were added)."""
    kept: dict[str, str] = {}
    added: list[str] = []
    lines: dict[str, int] = {}
    for row in _rows_with_valid_id(sheet, rows, by_id, faults):
        claim_id = row.cell("claim_id").strip()
        old = by_id.get(claim_id)
        claim = row.cell("claim").strip()
        if old is not None and normalize_newlines(row.cell("claim")) == normalize_newlines(old):
            claim = old
        if not claim:
            continue
        if claim in lines:
            what = f"the same claim is already on line {lines[claim]}"
            faults.append(sheet.fault(row, what, "delete one of them"))
        lines[claim] = row.line
        if old is None:
            added.append(claim)
        else:
            kept[claim_id] = claim
    return kept, added


def _rows_with_valid_id(
    sheet: Sheet[Kind], rows: Sequence[SheetRow], by_id: Mapping[str, Any], faults: list[Fault]
) -> Iterator[SheetRow]:
    """The rows whose claim_id is blank, or one of the sample's that no row above has."""
    lines: dict[str, int] = {}
    for row in rows:
        claim_id = row.cell("claim_id").strip()
        if claim_id and claim_id not in by_id:
            what = f"{claim_id!r} is not a claim of sample {row.cell('sample_id')!r} in that run"
            hint = "leave claim_id empty to add a claim, or say which run it is of by --run"
            faults.append(sheet.fault(row, what, hint))
        elif claim_id in lines:
            what = f"claim_id {claim_id!r} is already on line {lines[claim_id]}"
            faults.append(sheet.fault(row, what, "leave claim_id empty to add a claim"))
        else:
            yield row
        if claim_id:
            lines.setdefault(claim_id, row.line)


def _changed_verdicts(
    sheet: Sheet[Kind],
    rows: Sequence[SheetRow],
    baseline: Sequence[dict[str, Any]],
    faults: list[Fault],
) -> Change | None:
    """The verdicts of a sample that differ, before and after; None where none does."""
    kind = sheet.kind
    names = _KEY[kind]
    by_key = {tuple(_cell(row[name]) for name in names): row for row in baseline}
    lines: dict[tuple[str, ...], int] = {}
    change = Change([], [])
    for row in rows:
        key = tuple(row.cell(name).strip() for name in names)
        problem = _verdict_problem(kind, row, by_key.get(key), lines.get(key))
        if problem:
            faults.append(sheet.fault(row, *problem))
        elif by_key[key]["verdict"] != (label := row.cell("verdict").strip() or None):
            change.before.append(_edit_row(kind, by_key[key], by_key[key]["verdict"]))
            change.after.append(_edit_row(kind, by_key[key], label))
        lines.setdefault(key, row.line)
    return change._replace(changed=len(change.after)) if change.after else None


def _cell(value: object) -> str:
    return "" if value is None else str(value).strip()


def _edit_row(kind: Kind, row: Mapping[str, Any], verdict: str | None) -> dict[str, Any]:
    """What an edit keeps of a row of verdicts, with `verdict`."""
    kept = {name: row[name] for name in _EDIT_COLUMNS[kind]} | {"verdict": verdict}
    if kind == "checks":
        kept["scale"] = json.loads(row["scale"]) if row["scale"] else None
        kept["score"] = None if verdict is None else check_score(verdict, _labels(row))
    return kept


def _labels(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The verdicts that a person may give in a row of a run."""
    if "scale" not in row:
        return _LABELS
    scale = json.loads(row["scale"]) if row["scale"] else None
    return check_labels(scale and {int(grade): text for grade, text in scale.items()})


def _verdict_problem(
    kind: Kind, row: SheetRow, baseline: Mapping[str, Any] | None, earlier_line: int | None
) -> Problem | None:
    if baseline is None:
        return _unknown_verdict(kind, row)
    if earlier_line is not None:
        return f"the same verdict is already on line {earlier_line}", "delete one of them"
    text = _TEXT[kind]
    if normalize_newlines(row.cell(text)) != normalize_newlines(baseline[text]):
        where = "a sheet of claims" if kind == "verdicts" else "the pipeline or the samples"
        return f"the {text} was changed", f"change it in {where}"
    verdict, labels = row.cell("verdict").strip(), _labels(baseline)
    if verdict and verdict not in labels:
        return f"{verdict!r} is not a verdict", one_of(verdict, labels)
    if not verdict and baseline["verdict"] is not None:
        return "has no verdict", f"write one of {', '.join(labels)}"
    return None


def _unknown_verdict(kind: Kind, row: SheetRow) -> Problem:
    claim = f" on claim {row.cell('claim_id')!r}" if row.cell("claim_id") else ""
    if kind == "checks":
        what = f"no check {row.cell('check_name')!r}{claim} of the sample in that run"
        return what, "keep check_name and claim_id as they were exported"
    passage = f" by passage {row.cell('passage')}" if row.cell("passage") else ""
    what = f"no verdict{passage} on claim {row.cell('claim_id')!r} in that run"
    return what, "keep claim_id and passage as they were exported"


def _without_recorded(kind: Kind, edits: Sequence[Edit], change: Change) -> Change | None:
    """`change` without what `edits` record already; None where nothing is left."""
    if kind == "claims":
        if not edits:
            return change
        last = edits[-1].rows
        same = {row["claim"] for row in last} == {row["claim"] for row in change.after}
        return None if same else change._replace(before=last)
    first, second = _KEY[kind]
    recorded = {(row[first], row[second]): row for edit in edits for row in edit.rows}
    pairs = [
        (recorded.get((after[first], after[second]), before), after)
        for before, after in zip(change.before, change.after, strict=True)
    ]
    new = [(before, after) for before, after in pairs if before != after]
    if not new:
        return None
    return Change([before for before, _ in new], [after for _, after in new], len(new))
