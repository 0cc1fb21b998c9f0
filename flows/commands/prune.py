"""`claimflow prune`: old runs removed, with what only they need."""

from argparse import Namespace

from claimflow.flows.commands.stores import named_store
from claimflow.flows.report.text import counted
from claimflow.flows.store.pruning import Keeping, Pruned, prune
from claimflow.flows.store.read_copy import publish_again


def main(options: Namespace) -> int:
    """Remove old runs and make the file smaller, or only say what would be removed."""
    store = named_store(options)
    keeping = Keeping(options.keep_runs, options.keep_days, replies=not options.replies)
    pruned = prune(store, keeping, dry_run=options.dry_run)
    if not options.dry_run:
        publish_again(store)
    _print(pruned)
    return 0


def _print(pruned: Pruned) -> None:
    verb = "would be removed" if pruned.after is None else "removed"
    for run_id in pruned.removed:
        print(f"  {run_id}")
    print(f"{counted(len(pruned.removed), 'run')} {verb}, {pruned.kept:,} kept")
    counts = (
        counted(pruned.tables, "table"),
        counted(pruned.rows, "row"),
        counted(pruned.calls, "call"),
        counted(pruned.replies, "reply", "replies"),
    )
    print(f"with them: {', '.join(counts)}; the texts of {counted(pruned.emptied, 'call')}")
    if pruned.after is None:
        print(f"the file has {pruned.before:,} bytes")
    else:
        print(f"the file had {pruned.before:,} bytes and has {pruned.after:,}")
