"""`claimflow verify`: a whole store looked through for damage."""

from argparse import Namespace

from claimflow.flows.commands.answers import shown, standard_output
from claimflow.flows.commands.stores import named_store
from claimflow.flows.report.text import counted
from claimflow.flows.store.integrity import check_store


def main(options: Namespace) -> int:
    """Print every fault that is found, or that there is none; 1 when there are some, else 0."""
    checked = check_store(named_store(options))
    console = standard_output()
    for fault in checked.faults:
        console.print(shown(fault), soft_wrap=True)
    looked = f"{counted(checked.tables, 'table')}, {counted(checked.rows, 'row')}"
    found = counted(len(checked.faults), "fault") if checked.faults else "all right"
    console.print(f"{looked}, {found}")
    return 1 if checked.faults else 0
