"""`claimflow import`: a sheet of claims or verdicts that a person corrected."""

import getpass
from argparse import Namespace
from collections.abc import Iterator, Sequence

from claimflow.flows.commands.answers import shown, standard_output
from claimflow.flows.commands.stores import named_store
from claimflow.flows.errors import Fault, InputError
from claimflow.flows.quality.correction_sheets import (
    LAYOUTS,
    CorrectedSample,
    find_corrections,
    run_of_sheet,
)
from claimflow.flows.quality.csv_sheets import Sheet, read_sheet
from claimflow.flows.report.text import counted
from claimflow.flows.store import results
from claimflow.flows.store.edits import Kind, record
from claimflow.flows.store.read_copy import publish_again
from claimflow.flows.store.store import Store


def main(options: Namespace) -> int:
    """Put on record what was changed in a sheet, with who, when and why."""
    who, why = signed(options)
    sheet = read_sheet(options.file, LAYOUTS)
    store = named_store(options)
    run_id = _run(sheet, store, options.run)
    taken = find_corrections(sheet, store, run_id, who=who, why=why)
    console = standard_output()
    if not taken:
        words = f"nothing in {options.file} is new to run {run_id} and the edits on record"
        console.print(shown(words), soft_wrap=True)
        return 0
    record(store, [one.edit for one in taken])
    publish_again(store)
    for line in _told(taken):
        console.print(shown(line), soft_wrap=True)
    return 0


def signed(options: Namespace) -> tuple[str, str]:
    """(who edits, why): the name given or else that of the login, and the reason given."""
    faults = [
        Fault(f"--{name}", "is blank", hint)
        for name, hint in (("who", "name whoever edits"), ("why", "say why it was edited"))
        if getattr(options, name) is not None and not getattr(options, name).strip()
    ]
    if faults:
        raise InputError(faults)
    try:
        return (options.who or getpass.getuser()).strip(), options.why.strip()
    except (OSError, KeyError) as error:
        what = "there is no login name"
        raise InputError([Fault("--who", what, "name whoever edits")]) from error


def _run(sheet: Sheet[Kind], store: Store, named: str | None) -> str:
    """The run that a sheet is held against: its own, or else the one that was asked for."""
    own = run_of_sheet(sheet)
    asked = results.chosen_run(store, named) if named is not None or own is None else None
    if own is None or asked in (None, own):
        return asked or results.chosen_run(store, own)
    what, hint = f"{sheet.path} is of run {own}", "leave --run out, or export that run"
    raise InputError([Fault("--run", what, hint)])


def _told(taken: Sequence[CorrectedSample]) -> Iterator[str]:
    """What was taken in, step by step, and how to take it back."""
    for step in dict.fromkeys(one.edit.step for one in taken):
        of_step = [one for one in taken if one.edit.step == step]
        kind = of_step[0].edit.kind.removesuffix("s")
        counts = {
            word: sum(getattr(one.change, word) for one in of_step)
            for word in ("changed", "added", "removed")
        }
        done = [f"{count:,} {word}" for word, count in counts.items() if count]
        count, _, word = done[0].partition(" ")
        first = f"{counted(int(count.replace(',', '')), kind)} {word}"
        samples = counted(len(of_step), "sample")
        yield f"{', '.join([first, *done[1:]])} in {samples} of step {step}"
    edit_id = taken[0].edit.edit_id[:8]
    yield "the next run uses them; nothing on file is overwritten"
    yield f"to take this back: claimflow edits --undo {edit_id} --why TEXT"
