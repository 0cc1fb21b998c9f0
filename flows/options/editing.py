"""Commands by which people correct claims and verdicts."""

import argparse
from pathlib import Path

from claimflow.flows.options.common import Commands, store_options


def add(commands: Commands) -> None:
    """Declare `import` and `edits`."""
    take_in = commands.add_parser("import", help="take in claims or verdicts corrected in a sheet")
    take_in.add_argument("file", type=Path, help="a sheet that `claimflow export` wrote")
    take_in.add_argument("--why", required=True, metavar="TEXT", help="why they were corrected")
    _who(take_in)
    take_in.add_argument("--run", help="the run that it is of, where the sheet does not say")
    store_options(take_in)
    # No module can be named as this command is.
    take_in.set_defaults(module="take_in")

    edits = commands.add_parser("edits", help="list what people corrected, or take it back")
    edits.add_argument("--undo", metavar="EDIT", help="take back this edit: its id or beginning")
    edits.add_argument("--why", metavar="TEXT", help="why it is taken back")
    _who(edits)
    store_options(edits)


def _who(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--who", metavar="NAME", help="who says so (default: the login name)")
