"""What people corrected, told with a run and with a sample."""

from collections import Counter
from typing import Any, Final

from rich.console import Console
from rich.tree import Tree

from claimflow.flows.commands.answers import shown
from claimflow.flows.quality.corrections import edits_of_sample, unused_edits
from claimflow.flows.report.text import counted
from claimflow.flows.store.edits import Edit
from claimflow.flows.store.store import Store

_TOLD: Final = 5


def print_lapsed(console: Console, store: Store, run_id: str) -> None:
    """Say which edits a run could not use, and why."""
    found = unused_edits(store, run_id)
    if not found:
        return
    apply = "applies" if len(found) == 1 else "apply"
    console.print(shown(f"{counted(len(found), 'edit')} by hand no longer {apply}:"))
    for edit, why in found[:_TOLD]:
        line = f"  {edit.sample_id}, step {edit.step}: {why} (edit {_signed(edit)})"
        console.print(shown(line), soft_wrap=True)
    if len(found) > _TOLD:
        console.print(shown(f"  ... and {len(found) - _TOLD:,} more"))
    console.print()


def add_edits(tree: Tree, store: Store, run_id: str, sample_id: str) -> None:
    """Add what people corrected in a sample: who, when, why, and what became of what."""
    edits = edits_of_sample(store, run_id, sample_id)
    if not edits:
        return
    undone = {edit.undoes for edit in edits}
    branch = tree.add(shown("by hand", style="bold"))
    for edit in edits:
        did = "corrected" if edit.undoes is None else f"took back {edit.undoes[:8]}"
        since = ", taken back since" if edit.edit_id in undone else ""
        when = f"{edit.edited_at:%Y-%m-%d %H:%M:%S}"
        leaf = branch.add(shown(f"{edit.step}: {did} on {when}{since} (edit {_signed(edit)})"))
        before, after = Counter(_lines(edit.replaced)), Counter(_lines(edit.rows))
        for mark, lines in (("-", before - after), ("+", after - before)):
            for line in lines:
                leaf.add(shown(f"{mark} {line}", style="dim"))


def _lines(rows: list[dict[str, Any]]) -> list[str]:
    """Each claim; each verdict with its passage and its claim."""
    return [_verdict(row) if "verdict" in row else row["claim"] for row in rows]


def _verdict(row: dict[str, Any]) -> str:
    passage = "" if row["passage"] is None else f" [{row['passage']}]"
    return f"{row['verdict'] or 'failed'}{passage}: {row['claim']}"


def _signed(edit: Edit) -> str:
    return f"{edit.edit_id[:8]} by {edit.who}: {edit.why}"
