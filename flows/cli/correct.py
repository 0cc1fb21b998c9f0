"""`claimflow import` and `claimflow edits`: claims, verdicts and checks that people corrected."""

import getpass
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from claimflow.flows.cli.options import RUN, Commands, add_command, add_store_options
from claimflow.flows.cli.stores import named_store, run_named
from claimflow.flows.errors import Fault, InputError, one_of
from claimflow.flows.report.formatting import format_count

if TYPE_CHECKING:
    import polars as pl

    from claimflow.flows.quality.correction_sheets import CorrectedSample
    from claimflow.flows.quality.csv_sheets import Sheet
    from claimflow.flows.store.edits import Edit, Kind
    from claimflow.flows.store.store import Store

_ID: Final = 8
"""Characters of an edit's id that are shown."""


def add(commands: Commands) -> None:
    """Declare `import` and `edits`."""
    parser = add_command(
        commands,
        "import",
        import_sheet,
        "import claims, verdicts or checks corrected in a CSV sheet",
        example='sheet.csv --who ann --why "the date was wrong"',
    )
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="a sheet that `claimflow export` wrote"
    )
    parser.add_argument("--why", required=True, metavar="TEXT", help="the reason of the edit")
    _add_who(parser)
    parser.add_argument(
        "--run", metavar="RUN", help=f"the run of the sheet, if the sheet does not say: {RUN}"
    )
    add_store_options(parser)

    parser = add_command(
        commands,
        "edits",
        edits,
        "list the corrections made by hand, or undo one",
        example='--undo 3f2a91c0 --why "wrong sample"',
    )
    parser.add_argument(
        "--undo", metavar="EDIT", help="undo this edit, given by its id or its beginning"
    )
    parser.add_argument("--why", metavar="TEXT", help="the reason of --undo")
    _add_who(parser)
    add_store_options(parser)


def _add_who(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--who", metavar="NAME", help="the author of the edit (default: the login name)"
    )


def import_sheet(options: Namespace) -> int:
    """Record what was changed in a sheet, with author, time and reason."""
    from claimflow.flows.quality.correction_sheets import LAYOUTS, find_corrections
    from claimflow.flows.quality.csv_sheets import read_sheet
    from claimflow.flows.report.terminal import Terminal
    from claimflow.flows.store.edits import save_edits
    from claimflow.flows.store.read_copy import refresh_read_copy

    who, why = _author_and_reason(options)
    sheet = read_sheet(options.file, LAYOUTS)
    store = named_store(options)
    run_id = _chosen_run(sheet, store, options)
    corrected = find_corrections(sheet, store, run_id, who=who, why=why)
    terminal = Terminal()
    if not corrected:
        terminal.print_line(
            f"nothing in {options.file} is new to run {run_id} and the edits on record"
        )
        return 0
    save_edits(store, [one.edit for one in corrected])
    refresh_read_copy(store)
    for line in _import_lines(corrected):
        terminal.print_line(line)
    return 0


def _author_and_reason(options: Namespace) -> tuple[str, str]:
    """The name of `--who` or else the login name, and the reason of `--why`."""
    faults = [
        Fault(f"--{name}", "is blank", hint)
        for name, hint in (("who", "name the author"), ("why", "say why it was edited"))
        if getattr(options, name) is not None and not getattr(options, name).strip()
    ]
    if faults:
        raise InputError(faults)
    try:
        return (options.who or getpass.getuser()).strip(), options.why.strip()
    except (OSError, KeyError) as error:
        what = "there is no login name"
        raise InputError([Fault("--who", what, "name the author")]) from error


def _chosen_run(sheet: "Sheet[Kind]", store: "Store", options: Namespace) -> str:
    """The run that a sheet is compared with: the one that it names, or else that of `--run`."""
    from claimflow.flows.quality.correction_sheets import run_of_sheet
    from claimflow.flows.store.results import chosen_run

    own = run_of_sheet(sheet)
    named = options.run is not None or own is None
    asked = run_named(options, store, options.run) if named else None
    if own is None or asked in (None, own):
        return asked or chosen_run(store, own)
    what, hint = f"{sheet.path} is of run {own}", "leave --run out, or export that run"
    raise InputError([Fault("--run", what, hint)])


def _import_lines(corrected: "Sequence[CorrectedSample]") -> Iterator[str]:
    """How many rows of which step were changed, added and removed, and how to undo that."""
    for step in dict.fromkeys(one.edit.step for one in corrected):
        of_step = [one for one in corrected if one.edit.step == step]
        thing = of_step[0].edit.kind.removesuffix("s")
        counts = {
            change: sum(getattr(one.change, change) for one in of_step)
            for change in ("changed", "added", "removed")
        }
        (first, count), *others = ((change, n) for change, n in counts.items() if n)
        changes = [
            f"{format_count(count, thing)} {first}",
            *(f"{n:,} {change}" for change, n in others),
        ]
        yield f"{', '.join(changes)} in {format_count(len(of_step), 'sample')} of step {step}"
    edit_id = corrected[0].edit.edit_id[:_ID]
    yield "the next run uses them; nothing in the store is overwritten"
    yield f"to undo this: claimflow edits --undo {edit_id} --why TEXT"


def edits(options: Namespace) -> int:
    """List the edits of a store, oldest first, or undo one."""
    from claimflow.flows.report.terminal import Terminal
    from claimflow.flows.store.edits import all_edits

    store = named_store(options)
    with store.reading() as connection:
        found = all_edits(connection)
    if options.undo is not None:
        return _undo(options, store, found)
    if options.why is not None or options.who is not None:
        raise InputError([Fault("--why", "gives the reason of an undo", "add --undo EDIT")])
    if found:
        Terminal().print_frame(_edit_table(found))
    else:
        Terminal().print_line(f"no edits in {store.path}")
    return 0


def _undo(options: Namespace, store: "Store", edits: "Sequence[Edit]") -> int:
    from claimflow.flows.report.terminal import Terminal
    from claimflow.flows.store.edits import save_edits, undo_edit
    from claimflow.flows.store.read_copy import refresh_read_copy
    from claimflow.flows.store.store import now

    if options.why is None:
        raise InputError([Fault("--undo", "needs a reason", "add --why TEXT")])
    who, why = _author_and_reason(options)
    edit_id = _edit_to_undo(options.undo, edits)
    undone = undo_edit(edits, edit_id, undoing=str(uuid4()), who=who, why=why, at=now())
    save_edits(store, undone)
    refresh_read_copy(store)
    steps = ", ".join(dict.fromkeys(edit.step for edit in undone))
    edit = f"edit {edit_id[:_ID]} of {format_count(len(undone), 'sample')} of step {steps}"
    Terminal().print_line(f"{edit} is undone; the next run will not use it")
    return 0


def _edit_to_undo(start: str, edits: "Sequence[Edit]") -> str:
    """The id that begins with `start`, of an edit that can be undone."""
    known = {edit.edit_id: edit for edit in edits}
    found = [edit_id for edit_id in known if start and edit_id.startswith(start)]
    if len(found) != 1:
        what = f"{start!r} begins {len(found)} edit ids" if found else f"there is no edit {start!r}"
        hint = "write more of it" if found else one_of(start, [name[:_ID] for name in known][:5])
        raise InputError([Fault("--undo", what, hint)])
    edit = known[found[0]]
    if edit.undoes is not None:
        what = f"edit {start} undoes edit {edit.undoes[:_ID]}"
        raise InputError([Fault("--undo", what, "import the sheet again")])
    by = [other for other in edits if other.undoes == edit.edit_id]
    if by:
        what = f"edit {start} was undone by {by[0].who}: {by[0].why}"
        raise InputError([Fault("--undo", what, "there is nothing to do")])
    return edit.edit_id


def _edit_table(edits: "Sequence[Edit]") -> "pl.DataFrame":
    """One row for each edit and step: what, where, how many samples, who, when, why."""
    import polars as pl

    undone = {edit.undoes for edit in edits}
    by_step: dict[tuple[str, str], list[Edit]] = {}
    for edit in edits:
        by_step.setdefault((edit.edit_id, edit.step), []).append(edit)
    rows = []
    for (edit_id, step), of_step in by_step.items():
        edit = of_step[0]
        state = "undone" if edit_id in undone else "in force"
        if edit.undoes is not None:
            state = f"undoes {edit.undoes[:_ID]}"
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
