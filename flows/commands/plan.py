"""`claimflow plan`: what a run would make and reuse."""

from argparse import Namespace

from rich import box
from rich.table import Table

from flows.commands.answers import standard_output
from flows.engine.execute import open_store
from flows.engine.planning import Planned, plan
from flows.engine.prepare import prepare


def main(options: Namespace) -> int:
    """Print what would become of each step."""
    prepared = prepare(options.config, limit=options.limit, again=options.again)
    store = open_store(prepared, options.store)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("step", "uses", "plan"):
        table.add_column(name, overflow="fold")
    for step in plan(prepared, store, again=frozenset(options.again)):
        table.add_row(step.step, step.stage, _words(step))
    standard_output().print(table)
    return 0


def _words(step: Planned) -> str:
    match step.action:
        case "reuse":
            return f"reuse {step.row_count:,} rows"
        case "make":
            return "make"
        case "wait":
            return f"waits for {', '.join(step.waits_for)}"
