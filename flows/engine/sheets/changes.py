"""What a person changed in the rows that a sheet has of one sample in one step."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, get_args

from claimflow.flows.engine.errors import Fault, one_of
from claimflow.flows.engine.sheets.cells import as_saved
from claimflow.flows.engine.sheets.form import Sheet, SheetRow
from claimflow.stages.keys import content_key
from claimflow.stages.words import Label

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
            right = "leave claim_id empty to add a claim, or say which run it is of by --run"
            faults.append(sheet.fault(row, what, right))
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
