"""`claimflow export`: tables as Parquet files, or claims and verdicts as a sheet to correct."""

from argparse import Namespace

from claimflow.flows.commands import sheet
from claimflow.flows.commands.stores import read_store
from claimflow.flows.errors import Fault, InputError
from claimflow.flows.object_storage import is_remote
from claimflow.flows.report.text import counted
from claimflow.flows.store.export import export_to
from claimflow.flows.store.results import chosen_run


def main(options: Namespace) -> int:
    """Write tables and print which files or objects came of it, or write one sheet."""
    if options.format == "csv":
        if is_remote(options.output or ""):
            what, hint = "a sheet is a file", "name one by -o"
            raise InputError([Fault("--format csv", what, hint)])
        match options.tables:
            case ["claims" | "verdicts" as kind]:
                return sheet.export(options, kind)
            case _:
                what, hint = "is for claims or for verdicts", "name one of the two"
                raise InputError([Fault("--format csv", what, hint)])
    if options.step is not None:
        raise InputError([Fault("--step", "is for a sheet", "add --format csv")])
    if (options.output or "").endswith(".csv"):
        what, hint = "tables are written as Parquet, into a folder", "add --format csv for a sheet"
        raise InputError([Fault(f"-o {options.output}", what, hint)])
    store = read_store(options)
    run_id = chosen_run(store, options.run) if options.run else None
    place = options.output or f"{store.path.stem}-tables"
    for one in export_to(store, place, tables=options.tables, run_id=run_id):
        replaced = ", in place of an older file" if one.replaced else ""
        print(f"{one.place}: {counted(one.rows, 'row')}{replaced}")
    return 0
