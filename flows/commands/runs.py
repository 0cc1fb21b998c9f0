"""`claimflow runs`: the runs of a store."""

from argparse import Namespace

from flows.commands.answers import print_table
from flows.commands.stores import read_store
from flows.engine.findings.results import all_runs


def main(options: Namespace) -> int:
    """Print the runs of a store, newest first."""
    print_table(all_runs(read_store(options)))
    return 0
