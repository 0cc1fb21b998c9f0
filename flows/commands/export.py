"""`claimflow export`: tables as Parquet files, or claims and verdicts as a sheet to correct."""

from argparse import Namespace
from pathlib import Path

from flows.commands import sheet
from flows.commands.stores import read_store
from flows.engine.errors import Fault, InputError
from flows.engine.exporting import export_tables
from flows.engine.results import chosen_run
from flows.pages.words import counted


def main(options: Namespace) -> int:
    """Write tables into a folder and print which files came of it, or write one sheet."""
    if options.format == "csv":
        match options.tables:
            case ["claims" | "verdicts" as kind]:
                return sheet.export(options, kind)
            case _:
                what, right = "is for claims or for verdicts", "name one of the two"
                raise InputError([Fault("--format csv", what, right)])
    if options.step is not None:
        raise InputError([Fault("--step", "is for a sheet", "add --format csv")])
    store = read_store(options)
    run_id = chosen_run(store, options.run) if options.run else None
    folder = options.output or Path(f"{store.path.stem}-tables")
    for one in export_tables(store, folder, tables=options.tables, run_id=run_id):
        replaced = ", in place of an older file" if one.replaced else ""
        print(f"{one.path}: {counted(one.rows, 'row')}{replaced}")
    return 0
