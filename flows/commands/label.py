"""`claimflow label`: a blind sheet for people to fill, and what they wrote taken in."""

import sys
from argparse import Namespace

import polars as pl

from claimflow.flows.commands.answers import shown, standard_output
from claimflow.flows.commands.output import write_bytes
from claimflow.flows.commands.stores import named_store
from claimflow.flows.errors import Fault, InputError
from claimflow.flows.quality.csv_sheets import Sheet, read_sheet, to_csv
from claimflow.flows.quality.label_sheets import LAYOUTS, draw_sheet, find_labels
from claimflow.flows.quality.labels import Kind, choose_target, label_targets, record
from claimflow.flows.report.text import counted
from claimflow.flows.store import results
from claimflow.flows.store.read_copy import publish_again


def main(options: Namespace) -> int:
    """Write a blind sheet, or take one in."""
    return _export(options) if options.action == "export" else _import(options)


def _export(options: Namespace) -> int:
    store = named_store(options)
    run_id = results.chosen_run(store, options.run)
    with store.reading() as connection:
        targets = label_targets(connection, run_id, options.of)
    target = choose_target(targets, run_id, options.of, step=options.step, metric=options.metric)
    sheet = draw_sheet(store, target, size=options.sample, by=options.by, seed=options.seed)
    content = _content(sheet, options)
    write_bytes(content, options.output)
    if options.output is not None:
        draw = f"{sheet['draw'][0]} from step {target.step} of run {run_id}"
        print(f"{counted(sheet.height, 'row')} in {options.output}: {draw}", file=sys.stderr)
    return 0


def _content(sheet: pl.DataFrame, options: Namespace) -> bytes:
    if options.output is None or options.output.suffix != ".html":
        return to_csv(sheet)
    # Only a page needs Jinja2.
    from claimflow.flows.report.label_form import form_page

    return form_page(sheet, options.of).encode()


def _import(options: Namespace) -> int:
    if not options.who.strip():
        raise InputError([Fault("--who", "is blank", "name whoever labelled it")])
    sheet = read_sheet(options.file, LAYOUTS)
    store = named_store(options)
    run_id = results.chosen_run(store, _run_of(sheet))
    labels = find_labels(sheet, store, run_id, who=options.who.strip())
    new = record(store, labels)
    if new:
        publish_again(store)
    blank = len(sheet.rows) - len(labels)
    told = f"{counted(len(new), 'label')} of {sheet.kind} by {options.who.strip()}"
    if len(new) < len(labels):
        told += f", {len(labels) - len(new):,} more on record already"
    if blank:
        told += f"; {counted(blank, 'row')} without a label"
    standard_output().print(shown(told), soft_wrap=True)
    return 0


def _run_of(sheet: Sheet[Kind]) -> str:
    """The one run that the rows of a sheet are of."""
    named = {row.cell("run").strip(): row for row in reversed(sheet.rows)}
    if len(named) == 1 and "" not in named:
        return next(iter(named))
    if not named:
        raise InputError([Fault(str(sheet.path), "has no rows", "keep those that were exported")])
    first, *others = sorted(named.values(), key=lambda row: row.line)
    what = "names no run" if "" in named else "is of another run than the rows above"
    row = named.get("", others[0] if others else first)
    raise InputError([sheet.fault(row, what, "keep the column run as it was exported")])
