"""`claimflow report`: a run, or two held against each other, as a page to look at."""

import sys
from argparse import Namespace

from claimflow.flows.commands.output import write_text
from claimflow.flows.commands.stores import read_store
from claimflow.flows.errors import Fault, InputError
from claimflow.flows.report.json_document import as_json
from claimflow.flows.report.junit import as_junit
from claimflow.flows.report.markdown import run_page
from claimflow.flows.store.results import chosen_run
from claimflow.flows.store.store import Store


def main(options: Namespace) -> int:
    """Write the report of a run to a file or to standard output; 0 whatever it says."""
    if options.output is None and options.format == "html" and sys.stdout.isatty():
        raise InputError([Fault("--format html", "is not for a terminal", "add -o FILE")])
    store = read_store(options)
    run_id = chosen_run(store, options.run)
    write_text(_text(store, run_id, options), options.output)
    return 0


def _text(store: Store, run_id: str, options: Namespace) -> str:
    if options.format != "html" and options.against:
        hint = "compare two runs by `claimflow diff`, or write HTML"
        raise InputError([Fault("--against", f"is not for --format {options.format}", hint)])
    if options.format == "json":
        return as_json(store, run_id, samples=options.samples)
    if options.format == "junit":
        return as_junit(store, run_id)
    if options.format == "markdown":
        return run_page(store, run_id)
    # Jinja2 and the plots take a second to import: only a page needs them.
    from claimflow.flows.report.html import html_report

    against = chosen_run(store, options.against, before=run_id) if options.against else None
    return html_report(store, run_id, against=against, samples=options.samples)
