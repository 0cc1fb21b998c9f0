"""`claimflow edits`: what people corrected by hand; `--undo` takes some of it back."""

from argparse import Namespace
from collections.abc import Sequence
from typing import Final
from uuid import uuid4

import polars as pl

from claimflow.flows.commands.answers import print_table, shown, standard_output
from claimflow.flows.commands.stores import named_store
from claimflow.flows.commands.take_in import signed
from claimflow.flows.errors import Fault, InputError, one_of
from claimflow.flows.report.text import counted
from claimflow.flows.store.edits import Edit, all_edits, record, taking_back
from claimflow.flows.store.read_copy import publish_again
from claimflow.flows.store.store import Store, now

_ID: Final = 8
"""Characters of an id that are shown."""


def main(options: Namespace) -> int:
    """List the edits of a store, oldest first, or take one back."""
    store = named_store(options)
    with store.reading() as connection:
        edits = all_edits(connection)
    if options.undo is not None:
        return _undo(options, store, edits)
    if options.why is not None or options.who is not None:
        raise InputError([Fault("--why", "says why an edit is taken back", "add --undo EDIT")])
    if edits:
        print_table(_listed(edits))
    else:
        standard_output().print(shown(f"no edits in {store.path}"), soft_wrap=True)
    return 0


def _undo(options: Namespace, store: Store, edits: Sequence[Edit]) -> int:
    if options.why is None:
        raise InputError([Fault("--undo", "lacks a reason", "add --why TEXT")])
    who, why = signed(options)
    edit_id = _chosen(options.undo, edits)
    undone = taking_back(edits, edit_id, undoing=str(uuid4()), who=who, why=why, at=now())
    record(store, undone)
    publish_again(store)
    steps = ", ".join(dict.fromkeys(edit.step for edit in undone))
    words = f"edit {edit_id[:_ID]} of {counted(len(undone), 'sample')} of step {steps}"
    told = f"{words} is taken back; the next run does without it"
    standard_output().print(shown(told), soft_wrap=True)
    return 0


def _chosen(word: str, edits: Sequence[Edit]) -> str:
    """The edit whose id begins with `word`, which can be taken back."""
    known = {edit.edit_id: edit for edit in edits}
    found = [edit_id for edit_id in known if word and edit_id.startswith(word)]
    if len(found) != 1:
        what = f"{word!r} begins {len(found)} edit ids" if found else f"there is no edit {word!r}"
        hint = "write more of it" if found else one_of(word, [name[:_ID] for name in known][:5])
        raise InputError([Fault("--undo", what, hint)])
    edit = known[found[0]]
    if edit.undoes is not None:
        what = f"edit {word} takes back edit {edit.undoes[:_ID]}"
        raise InputError([Fault("--undo", what, "import the sheet again")])
    by = [other for other in edits if other.undoes == edit.edit_id]
    if by:
        what = f"edit {word} was taken back by {by[0].who}: {by[0].why}"
        raise InputError([Fault("--undo", what, "there is nothing to do")])
    return edit.edit_id


def _listed(edits: Sequence[Edit]) -> pl.DataFrame:
    """One row for each import and step: what, where, how many samples, who, when, why."""
    undone = {edit.undoes for edit in edits}
    places: dict[tuple[str, str], list[Edit]] = {}
    for edit in edits:
        places.setdefault((edit.edit_id, edit.step), []).append(edit)
    rows = []
    for (edit_id, step), of_step in places.items():
        edit = of_step[0]
        state = "taken back" if edit_id in undone else "in force"
        if edit.undoes is not None:
            state = f"takes back {edit.undoes[:_ID]}"
        rows.append(
            {
                "edit": edit_id[:_ID],
                "kind": edit.kind,
                "pipeline": edit.pipeline,
                "step": step,
                "samples": len(of_step),
                "who": edit.who,
                "when": edit.edited_at,
                "state": state,
                "why": edit.why,
            }
        )
    return pl.DataFrame(rows)
