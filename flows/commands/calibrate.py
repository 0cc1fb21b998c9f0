"""`claimflow calibrate`: the judges of a run held against what people said."""

from argparse import Namespace
from io import StringIO

from rich.console import Console

from claimflow.flows.commands.answers import standard_output
from claimflow.flows.commands.calibrate_tables import print_calibration
from claimflow.flows.commands.output import write_text
from claimflow.flows.commands.stores import named_store
from claimflow.flows.quality.calibration import RunCalibration, as_json, calibrate
from claimflow.flows.store.read_copy import publish_again
from claimflow.flows.store.results import chosen_run
from claimflow.flows.store.runs import LATEST


def main(options: Namespace) -> int:
    """Print how far judges and people agree, and put it on record; 0 whatever is found."""
    store = named_store(options)
    found = calibrate(store, chosen_run(store, options.run or LATEST), by=options.by)
    publish_again(store)
    if options.format == "table" and options.output is None:
        print_calibration(standard_output(), found)
    else:
        write_text(_text(found, options), options.output)
    return 0


def _text(found: RunCalibration, options: Namespace) -> str:
    if options.format == "json":
        return as_json(found)
    text = StringIO()
    console = Console(file=text, highlight=False, width=standard_output().width)
    print_calibration(console, found)
    return text.getvalue()
