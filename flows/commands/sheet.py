"""`claimflow export claims` and `export verdicts`: a sheet that a person can correct."""

import sys
from argparse import Namespace
from pathlib import Path

from claimflow.flows.commands.output import write_bytes
from claimflow.flows.commands.stores import read_store
from claimflow.flows.quality.correction_sheets import sheet_rows
from claimflow.flows.quality.csv_sheets import to_csv
from claimflow.flows.report.text import counted
from claimflow.flows.store import results
from claimflow.flows.store.edits import Kind


def export(options: Namespace, kind: Kind) -> int:
    """Write the claims or verdicts of a run as CSV to a file, or to standard output."""
    store = read_store(options)
    run_id = results.chosen_run(store, options.run)
    rows = sheet_rows(store, run_id, kind, options.step)
    write_bytes(to_csv(rows), None if options.output is None else Path(options.output))
    if options.output is not None:
        told = f"{counted(rows.height, 'row')} of run {run_id} in {options.output}"
        print(told, file=sys.stderr)
    return 0
