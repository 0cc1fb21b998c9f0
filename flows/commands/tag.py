"""`claimflow tag`: names for runs."""

from argparse import Namespace

from claimflow.flows.commands.answers import print_table
from claimflow.flows.commands.stores import named_store
from claimflow.flows.errors import Fault, InputError
from claimflow.flows.store.read_copy import publish_again
from claimflow.flows.store.results import chosen_run
from claimflow.flows.store.runs import add_tag, remove_tag, tags


def main(options: Namespace) -> int:
    """Name a run, list the names, or forget one."""
    store = named_store(options)
    if options.list:
        print_table(tags(store))
        return 0
    if options.remove:
        remove_tag(store, options.remove)
        print(f"{options.remove} names no run any more")
    elif options.run and options.name:
        run = chosen_run(store, options.run)
        add_tag(store, run, options.name)
        print(f"{options.name} is run {run}")
    else:
        hint = "write claimflow tag RUN NAME, or --list"
        raise InputError([Fault("tag", "lacks a run and a name", hint)])
    publish_again(store)
    return 0
