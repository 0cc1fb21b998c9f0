"""The outcomes of gates, printed, and the exit code that they make."""

from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.table import Table

from claimflow.flows.commands.answers import shown
from claimflow.flows.quality.gates import Outcome
from claimflow.flows.report.phrases import GATES, gate_cells


def print_gates(console: Console, outcomes: Iterable[Outcome]) -> None:
    """Print a line for every rule of a gate; nothing where there are none."""
    outcomes = list(outcomes)
    if not outcomes:
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in GATES[:3]:
        right = name != "gate"
        table.add_column(name, justify="right" if right else "left", no_wrap=right)
    table.add_column("outcome", no_wrap=True)
    table.add_column("because", overflow="fold")
    for one in outcomes:
        table.add_row(*map(shown, gate_cells(one)))
    console.print(table)


def gate_code(outcomes: Iterable[Outcome]) -> int:
    """4 when a gate failed, else 5 when one is inconclusive, else 0."""
    found = {one.outcome for one in outcomes}
    return 4 if "fail" in found else 5 if "inconclusive" in found else 0
