"""`claimflow runs`: the runs of a store."""

from argparse import Namespace

from claimflow.flows.commands.answers import print_table
from claimflow.flows.commands.stores import read_store
from claimflow.flows.store.results import all_runs


def main(options: Namespace) -> int:
    """Print the runs of a store, newest first."""
    print_table(all_runs(read_store(options)))
    return 0
