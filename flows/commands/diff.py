"""`claimflow diff`: what changed from one run to another, and why."""

from argparse import Namespace
from io import StringIO

from rich.console import Console

from claimflow.flows.commands.answers import standard_output
from claimflow.flows.commands.diff_tables import print_comparison
from claimflow.flows.commands.output import write_text
from claimflow.flows.commands.stores import read_store
from claimflow.flows.quality.comparison import Comparison, as_json, compare
from claimflow.flows.quality.metric_differences import Runs
from claimflow.flows.report.markdown import as_markdown
from claimflow.flows.store.results import chosen_run
from claimflow.flows.store.runs import LATEST, PREVIOUS


def main(options: Namespace) -> int:
    """Compare run `options.b` with run `options.a`; 0 whatever is found."""
    store = read_store(options)
    b = chosen_run(store, options.b or LATEST)
    a = chosen_run(store, options.a or PREVIOUS, before=b)
    comparison = compare(store, Runs(a, b), by=options.by, metrics=options.metric)
    if options.format == "table" and options.output is None:
        print_comparison(standard_output(), comparison, limit=options.limit)
    else:
        write_text(_text(comparison, options), options.output)
    return 0


def _text(comparison: Comparison, options: Namespace) -> str:
    if options.format == "json":
        return as_json(comparison)
    if options.format == "markdown":
        return as_markdown(comparison, limit=options.limit)
    text = StringIO()
    console = Console(file=text, highlight=False, width=standard_output().width)
    print_comparison(console, comparison, limit=options.limit)
    return text.getvalue()
