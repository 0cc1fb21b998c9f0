"""The command that turns a run into something to hand on."""

from pathlib import Path

from claimflow.flows.options.common import Commands, live_option, positive, store_options


def add(commands: Commands) -> None:
    """Declare `report`."""
    report = commands.add_parser("report", help="write a run as a page, JSON, JUnit or Markdown")
    what = "a run id or its beginning, a tag, latest or previous"
    report.add_argument("run", nargs="?", metavar="RUN", help=f"{what} (default: the newest)")
    report.add_argument("--against", metavar="RUN", help="another run, to show what changed since")
    formats = ["html", "json", "junit", "markdown"]
    report.add_argument("--format", choices=formats, default="html", help="(default: html)")
    report.add_argument("-o", "--output", type=Path, metavar="FILE", help="write to this file")
    report.add_argument(
        "--samples",
        type=positive,
        default=1000,
        metavar="N",
        help="show the N samples that matter most (default: 1000)",
    )
    store_options(report)
    live_option(report)
