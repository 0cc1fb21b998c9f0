"""`claimflow label` and `claimflow calibrate`: labels of people, and judges compared with them."""

import argparse
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from claimflow.flows.cli.options import (
    Commands,
    add_command,
    add_format_option,
    add_group,
    add_output_option,
    add_run,
    add_store_options,
    positive,
)
from claimflow.flows.cli.output import print_or_write, write_bytes, write_text
from claimflow.flows.cli.stores import named_store, run_named
from claimflow.flows.errors import Fault, InputError
from claimflow.flows.report.formatting import format_count

if TYPE_CHECKING:
    from claimflow.flows.quality.csv_sheets import Sheet
    from claimflow.flows.quality.labels import Kind


def add(commands: Commands) -> None:
    """Declare `label` and `calibrate`."""
    actions = add_group(commands, "label", "write sheets for people to label, and import them")
    _add_export(actions)

    parser = add_command(
        actions,
        "import",
        import_labels,
        "import a sheet that was labelled",
        example="labels.csv --who ann",
    )
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="a sheet that `claimflow label export` wrote"
    )
    parser.add_argument("--who", required=True, metavar="NAME", help="who labelled it")
    add_store_options(parser)

    parser = add_command(
        commands,
        "calibrate",
        calibrate,
        "compare the judges of a run with the labels of people",
        example="latest --by topic",
    )
    add_run(parser)
    parser.add_argument(
        "--by", metavar="FIELD", help="add the agreement for each value of this metadata field"
    )
    add_format_option(parser, "table", "json")
    add_output_option(parser)
    add_store_options(parser)


def _add_export(actions: Commands) -> None:
    parser = add_command(
        actions,
        "export",
        export_sheet,
        "write a sheet to label: texts without verdicts",
        example="latest --sample 100 -o labels.html",
    )
    add_run(parser)
    parser.add_argument(
        "--of",
        choices=["verdicts", "checks", "claims", "samples"],
        default="verdicts",
        help="what is labelled: checks are those of rubrics (default: verdicts)",
    )
    parser.add_argument("--step", metavar="STEP", help="take the rows of this step")
    parser.add_argument(
        "--metric", metavar="M", help="the metric for which samples are rated from 0 to 1"
    )
    parser.add_argument(
        "--sample", type=positive, default=100, metavar="N", help="draw N rows (default: 100)"
    )
    parser.add_argument(
        "--by",
        choices=["random", "uncertainty"],
        default="random",
        help="draw at random (default), or prefer rows on which the judge is unsure",
    )
    parser.add_argument(
        "--seed", type=_seed, default=0, metavar="S", help="the seed of the draw (default: 0)"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="write to this CSV file, or to a page to label in if its name ends in .html",
    )
    add_store_options(parser)


def _seed(text: str) -> int:
    number = int(text)
    if not 0 <= number < 1_000_000_000:
        raise argparse.ArgumentTypeError("must be 0 to 999999999")
    return number


def export_sheet(options: Namespace) -> int:
    """Write a sheet for labelling as CSV, or as a page in which labels are set."""
    from claimflow.flows.quality.csv_sheets import to_csv
    from claimflow.flows.quality.label_sheets import draw_from_target, label_sheet
    from claimflow.flows.quality.labels import choose_target, label_targets

    store = named_store(options)
    run_id = run_named(options, store, options.run)
    with store.reading() as connection:
        targets = label_targets(connection, run_id, options.of)
    target = choose_target(targets, run_id, options.of, step=options.step, metric=options.metric)
    drawn = draw_from_target(store, target, size=options.sample, by=options.by, seed=options.seed)
    if options.output is None or options.output.suffix != ".html":
        content = to_csv(label_sheet(drawn))
    else:
        from claimflow.flows.report.label_form import label_page

        content = label_page(drawn).encode()
    draw = f"{drawn.draw} from step {target.step} of run {run_id}"
    note = f"{format_count(len(drawn.rows), 'row')} in {options.output}: {draw}"
    write_bytes(content, options.output, note=note)
    return 0


def import_labels(options: Namespace) -> int:
    """Record the labels of a sheet."""
    from claimflow.flows.quality.csv_sheets import read_sheet
    from claimflow.flows.quality.label_sheets import LAYOUTS, find_labels
    from claimflow.flows.quality.labels import record
    from claimflow.flows.report.terminal import Terminal
    from claimflow.flows.store.read_copy import refresh_read_copy
    from claimflow.flows.store.results import chosen_run

    who = options.who.strip()
    if not who:
        raise InputError([Fault("--who", "is blank", "name the annotator")])
    sheet = read_sheet(options.file, LAYOUTS)
    store = named_store(options)
    run_id = chosen_run(store, _run_of_sheet(sheet))
    labels = find_labels(sheet, store, run_id, who=who)
    new = record(store, labels)
    if new:
        refresh_read_copy(store)
    blank = len(sheet.rows) - len(labels)
    message = f"{format_count(len(new), 'label')} of {sheet.kind} by {who}"
    if unsure := sum(label.unsure for label in new):
        message += f", {unsure:,} of them unsure"
    if len(new) < len(labels):
        message += f", {len(labels) - len(new):,} more were imported before"
    if blank:
        message += f"; {format_count(blank, 'row')} without a label"
    Terminal().print_line(message)
    return 0


def _run_of_sheet(sheet: "Sheet[Kind]") -> str:
    """The one run that all rows of a sheet name."""
    named = {row.cell("run").strip(): row for row in reversed(sheet.rows)}
    if len(named) == 1 and "" not in named:
        return next(iter(named))
    if not named:
        raise InputError([Fault(str(sheet.path), "has no rows", "keep those that were exported")])
    first, *others = sorted(named.values(), key=lambda row: row.line)
    what = "names no run" if "" in named else "is of another run than the rows above"
    row = named.get("", others[0] if others else first)
    raise InputError([sheet.fault(row, what, "keep the column run as it was exported")])


def calibrate(options: Namespace) -> int:
    """Print how far judges and people agree, and record it."""
    from claimflow.flows.quality.calibration import calibrate as calibrate_run
    from claimflow.flows.quality.json_values import json_text
    from claimflow.flows.report.terminal import print_calibration
    from claimflow.flows.store.read_copy import refresh_read_copy
    from claimflow.flows.store.runs import LATEST

    store = named_store(options)
    run_id = run_named(options, store, options.run or LATEST)
    found = calibrate_run(store, run_id, by=options.by)
    refresh_read_copy(store)
    if options.format == "json":
        write_text(json_text(found), options.output)
    else:
        print_or_write(lambda terminal: print_calibration(terminal, found), options.output)
    return 0
