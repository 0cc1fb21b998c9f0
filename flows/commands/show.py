"""`claimflow show`: one run again, as it was printed when it ended."""

from argparse import Namespace

from claimflow.flows.commands.run_tables import print_report
from claimflow.flows.commands.stores import read_store
from claimflow.flows.store.results import chosen_run


def main(options: Namespace) -> int:
    """Print a run; returns what `print_report` makes of it."""
    store = read_store(options)
    return print_report(store, chosen_run(store, options.run), slices=options.slices)
