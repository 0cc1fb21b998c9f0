"""Commands by which people look at runs."""

import argparse
from pathlib import Path

from claimflow.flows.options.common import Commands, live_option, store_options


def add(commands: Commands) -> None:
    """Declare `plot` and `view`."""
    plot = commands.add_parser("plot", help="write one plot of a run as SVG or PNG")
    plot.add_argument("metrics", nargs="*", metavar="METRIC", help="one; with --against any number")
    plot.add_argument(
        "--kind",
        choices=["distribution", "trend", "reliability"],
        help="how its scores lie (default), or its means over the newest runs of the pipeline; "
        "of a step that verifies claims, named in place of METRIC: whether labels bear out its "
        "probabilities",
    )
    what = "a run id or its beginning, a tag, latest or previous"
    plot.add_argument("--run", help=f"{what} (default: the newest)")
    plot.add_argument("--against", metavar="RUN", help="how far the means lie from this run's")
    plot.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="a .svg or .png file"
    )
    store_options(plot)
    live_option(plot)

    view = commands.add_parser("view", help="serve reports and a page for SQL to this machine")
    view.add_argument(
        "--port", type=_port, default=8765, metavar="N", help="(default: 8765; 0: any free one)"
    )
    store_options(view)
    live_option(view)


def _port(text: str) -> int:
    """A port that needs no rights of an administrator, or 0."""
    number = int(text)
    if number != 0 and not 1024 <= number <= 65535:
        raise argparse.ArgumentTypeError("must be 0, or 1024 to 65535")
    return number
