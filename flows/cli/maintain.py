"""`claimflow export`, `merge`, `prune`, `verify` and `migrate`: what is done with whole stores."""

import argparse
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from claimflow.flows.cli.options import (
    RUN,
    Commands,
    add_command,
    add_format_option,
    add_store_options,
    positive,
)
from claimflow.flows.cli.output import write_bytes
from claimflow.flows.cli.stores import named_store, readable_run, readable_store, run_named
from claimflow.flows.errors import Fault, InputError, on_one_line
from claimflow.flows.report.formatting import format_count

if TYPE_CHECKING:
    from claimflow.flows.store.edits import Kind


def add(commands: Commands) -> None:
    """Declare `export`, `merge`, `prune`, `verify` and `migrate`."""
    parser = add_command(
        commands,
        "export",
        export,
        "write tables as Parquet, or scores or rows to correct as a CSV sheet",
        example="claims --format csv -o claims.csv",
    )
    parser.add_argument(
        "tables",
        nargs="*",
        metavar="TABLE",
        help="the tables to write (default: all but the replies of models)",
    )
    add_format_option(parser, "parquet", "csv")
    parser.add_argument(
        "-o",
        "--output",
        "--to",
        metavar="PLACE",
        help="a folder or an address such as s3://bucket/tables; the file of a sheet",
    )
    parser.add_argument("--run", metavar="RUN", help=f"the rows of one run only: {RUN}")
    parser.add_argument("--step", metavar="STEP", help="in a sheet: the rows of this step only")
    add_store_options(parser, live=True)

    parser = add_command(
        commands,
        "merge",
        merge,
        "copy the replies of models from stores of other machines into a store",
        example="machine-2.duckdb machine-3.duckdb --store nightly.duckdb",
    )
    parser.add_argument(
        "others", nargs="+", type=Path, metavar="STORE", help="a store to copy the replies of"
    )
    add_store_options(parser)

    parser = add_command(
        commands,
        "prune",
        prune,
        "remove old runs and the tables that only they use",
        example="--keep-runs 10 --dry-run",
    )
    parser.add_argument(
        "--keep-runs", type=positive, metavar="N", help="keep the newest N runs of each pipeline"
    )
    parser.add_argument(
        "--keep-days",
        type=_days,
        metavar="D",
        help="keep the runs of the last D days; with both a run is kept that one of them keeps",
    )
    parser.add_argument(
        "--replies",
        action="store_true",
        help="also remove recorded replies of models from before the runs that are kept",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would be removed; remove nothing"
    )
    add_store_options(parser)

    parser = add_command(
        commands,
        "verify",
        verify,
        "check the digests, keys and references of a store",
        example="--config configs/quickstart.yaml",
    )
    parser.add_argument(
        "--all", action="store_true", help="check every run (default: the newest of each pipeline)"
    )
    add_store_options(parser)

    parser = add_command(
        commands,
        "migrate",
        migrate,
        "update a store that an older claimflow wrote",
        example="--store quickstart.duckdb",
    )
    add_store_options(parser)


def _days(text: str) -> int:
    """A whole number of days from 1 to 36,500, by which any date can be moved."""
    from claimflow.flows.pipeline.times import MAX_DAYS

    number = positive(text)
    if number > MAX_DAYS:
        raise argparse.ArgumentTypeError(f"must be {MAX_DAYS} or less")
    return number


def export(options: Namespace) -> int:
    """Write tables and print the files or objects written, or write one sheet."""
    from claimflow.flows.object_storage import is_remote
    from claimflow.flows.store.export import export_to

    if options.format == "csv":
        if is_remote(options.output or ""):
            what, hint = "a sheet is a file", "name one by -o"
            raise InputError([Fault("--format csv", what, hint)])
        match options.tables:
            case ["scores"]:
                return _export_scores(options)
            case ["claims" | "verdicts" as kind]:
                return _export_sheet(options, kind)
            case ["rubric_verdicts"]:
                return _export_sheet(options, "checks")
            case _:
                what = "is for scores, claims, verdicts or rubric_verdicts"
                raise InputError([Fault("--format csv", what, "name one of the four")])
    if options.step is not None:
        raise InputError([Fault("--step", "is for a sheet", "add --format csv")])
    if (options.output or "").endswith(".csv"):
        what, hint = "tables are written as Parquet, into a folder", "add --format csv for a sheet"
        raise InputError([Fault(f"-o {options.output}", what, hint)])
    store = readable_store(options)
    run_id = run_named(options, store, options.run) if options.run else None
    place = options.output or f"{store.path.stem}-tables"
    for one in export_to(store, place, tables=options.tables, run_id=run_id):
        replaced = ", in place of an older file" if one.replaced else ""
        print(f"{one.place}: {format_count(one.rows, 'row')}{replaced}")
    return 0


def _export_scores(options: Namespace) -> int:
    """Write the scores of a run as CSV, one row for each sample and metric."""
    from claimflow.flows.quality.csv_sheets import to_csv
    from claimflow.flows.store.results import score_table

    store, run_id = readable_run(options)
    rows = score_table(store, run_id, options.step)
    note = f"{format_count(rows.height, 'row')} of run {run_id} in {options.output}"
    write_bytes(to_csv(rows), options.output and Path(options.output), note=note)
    return 0


def _export_sheet(options: Namespace, kind: "Kind") -> int:
    """Write the claims, verdicts or checks of a run as CSV, for people to correct."""
    from claimflow.flows.quality.correction_sheets import sheet_rows
    from claimflow.flows.quality.csv_sheets import to_csv

    store, run_id = readable_run(options)
    rows = sheet_rows(store, run_id, kind, options.step)
    note = f"{format_count(rows.height, 'row')} of run {run_id} in {options.output}"
    write_bytes(to_csv(rows), options.output and Path(options.output), note=note)
    return 0


def merge(options: Namespace) -> int:
    """Copy what other stores hold of calls, so that no run on this one asks for it again."""
    from claimflow.flows.files import is_file
    from claimflow.flows.judge.ledger_writer import recover_journals
    from claimflow.flows.report.terminal import Terminal
    from claimflow.flows.store.ledger import Ledger
    from claimflow.flows.store.read_copy import refresh_read_copy
    from claimflow.flows.store.store import Store, store_version

    store = named_store(options)
    # A store that is not there would be made.
    store_version(store)
    others = [(path, Store(path.absolute())) for path in options.others]
    faults = list[Fault]()
    for path, other in others:
        try:
            if is_file(other.path) and other.path.samefile(store.path):
                what = "is the store that replies are copied into"
                raise InputError([Fault(str(path), what, "name other stores")])
            with other.reading():
                pass
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(faults)
    terminal = Terminal()
    for path, other in others:
        # Calls of a run that was killed there are in files beside its store.
        recover_journals(Ledger(other))
        found = Ledger(store).take_over(other)
        calls = format_count(found.calls, "call")
        replies = format_count(found.replies, "reply", "replies")
        known = f", {found.known:,} were there already" if found.known else ""
        terminal.print_line(on_one_line(f"{path}: {calls} and {replies} copied{known}"))
    refresh_read_copy(store)
    return 0


def prune(options: Namespace) -> int:
    """Remove old runs and shrink the file, or print what would be removed."""
    from claimflow.flows.store import pruning
    from claimflow.flows.store.read_copy import refresh_read_copy
    from claimflow.flows.store.store import store_version

    if options.keep_runs is None and options.keep_days is None:
        hint = "add --keep-runs or --keep-days"
        raise InputError([Fault("prune", "it is not said what to keep", hint)])
    store = named_store(options)
    # A store that is not there would be made.
    store_version(store)
    keeping = pruning.Retention(options.keep_runs, options.keep_days, replies=not options.replies)
    pruned = pruning.prune(store, keeping, dry_run=options.dry_run)
    if not options.dry_run:
        refresh_read_copy(store)
    verb = "would be removed" if pruned.after is None else "removed"
    for run_id in pruned.removed:
        print(f"  {run_id}")
    print(f"{format_count(len(pruned.removed), 'run')} {verb}, {pruned.kept:,} kept")
    for run_id, tags in pruned.exempt.items():
        why = f"its tag {tags}" if tags else "a kept run, whose gate compared with it"
        print(f"  {run_id} is kept for {why}")
    counts = (
        (pruned.tables, "table", "tables"),
        (pruned.rows, "row", "rows"),
        (pruned.calls, "call", "calls"),
        (pruned.emptied, "call's texts", "calls' texts"),
        (pruned.replies, "reply", "replies"),
        (pruned.results, "result of a local model", "results of local models"),
    )
    told = [format_count(number, one, many) for number, one, many in counts if number]
    if told:
        print(f"with them: {', '.join(told)}")
    if pruned.after is not None:
        print(f"the file had {pruned.before:,} bytes and has {pruned.after:,}")
    elif pruned.saving is not None:
        free, unused = pruned.saving
        about = _rounded(max(0, pruned.before - free - unused))
        print(f"the file has {pruned.before:,} bytes and would have about {about}")
        whose = (("are free already", free), ("are of rows that no kept run uses", unused))
        parts = [f"about {_rounded(size)} bytes {what}" for what, size in whose if size]
        if parts:
            print(f"of it {', '.join(parts)}")
    return 0


def _rounded(size: int) -> str:
    return f"{float(f'{size:.2g}'):,.0f}"


def verify(options: Namespace) -> int:
    """Print every fault that is found in a store; 1 when there are some, else 0."""
    from claimflow.flows.report.terminal import Terminal
    from claimflow.flows.store.integrity import check_store

    checked = check_store(named_store(options), newest=not options.all)
    terminal = Terminal()
    for fault in checked.faults:
        terminal.print_line(fault)
    looked = f"{format_count(checked.tables, 'table')}, {format_count(checked.rows, 'row')}"
    found = format_count(len(checked.faults), "fault") if checked.faults else "all right"
    terminal.print(f"{looked}, {found}")
    if checked.runs < checked.every_run:
        runs = f"{checked.runs:,} of {format_count(checked.every_run, 'run')}"
        terminal.print(f"checked: {runs}, the newest of each pipeline; --all checks every run")
    return 1 if checked.faults else 0


def migrate(options: Namespace) -> int:
    """Bring a store to the newest schema version, shrink its file, and print both versions."""
    from claimflow.flows.store import store as stores
    from claimflow.flows.store.pruning import compact
    from claimflow.flows.store.read_copy import refresh_read_copy
    from claimflow.flows.store.schema import SCHEMA_VERSION

    store = named_store(options)
    found = stores.store_version(store)
    stores.migrate(store)
    change = "" if found == SCHEMA_VERSION else f", now {SCHEMA_VERSION}"
    # What follows may lack room, and the store is of the new version all the same.
    print(f"{store.path}: schema version {found}{change}", flush=True)
    if found != SCHEMA_VERSION:
        compact(store)
    refresh_read_copy(store)
    return 0
