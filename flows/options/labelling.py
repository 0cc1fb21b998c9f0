"""Commands by which people label what a run has, and judges are held against them."""

import argparse
from pathlib import Path

from claimflow.flows.options.common import Commands, positive, store_options


def add(commands: Commands) -> None:
    """Declare `label` and `calibrate`."""
    label = commands.add_parser("label", help="have people say what is right")
    actions = label.add_subparsers(dest="action", required=True, metavar="ACTION")
    _export(actions.add_parser("export", help="write a blind sheet: texts without verdicts"))
    take_in = actions.add_parser("import", help="take in a sheet that was labelled")
    take_in.add_argument("file", type=Path, help="a sheet that `claimflow label export` wrote")
    take_in.add_argument("--who", required=True, metavar="NAME", help="who labelled it")
    store_options(take_in)

    calibrate = commands.add_parser("calibrate", help="hold the judges of a run against labels")
    calibrate.add_argument(
        "run", nargs="?", help="a run id, its start or a tag (default: the newest)"
    )
    calibrate.add_argument("--by", metavar="FIELD", help="also by this metadata field")
    calibrate.add_argument("--format", choices=["table", "json"], default="table")
    calibrate.add_argument("-o", "--output", type=Path, help="write to this file")
    store_options(calibrate)


def _export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", help="a run id, its start or a tag (default: the newest)")
    parser.add_argument(
        "--of", choices=["verdicts", "claims", "samples"], default="verdicts", help="of what"
    )
    parser.add_argument("--step", help="of this step")
    parser.add_argument("--metric", metavar="M", help="of samples: what is rated from 0 to 1")
    parser.add_argument(
        "--sample", type=positive, default=100, metavar="N", help="how many (default: 100)"
    )
    parser.add_argument("--by", choices=["random", "uncertainty"], default="random")
    parser.add_argument(
        "--seed", type=natural, default=0, metavar="S", help="of the draw (default: 0)"
    )
    where = "write to this file; a page to label in where its name ends in .html"
    parser.add_argument("-o", "--output", type=Path, help=where)
    store_options(parser)


def natural(text: str) -> int:
    """A whole number from 0 to 999,999,999."""
    number = int(text)
    if not 0 <= number < 1_000_000_000:
        raise argparse.ArgumentTypeError("must be 0 to 999999999")
    return number
