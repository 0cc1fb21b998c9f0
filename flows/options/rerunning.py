"""Options of commands that make a pipeline's tables, or say what that would take."""

import argparse


def rerun_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what of a pipeline is run, and what is made again."""
    parser.add_argument(
        "--again",
        action="append",
        default=[],
        metavar="STEP",
        help="make this step even though its table is on file; may be repeated",
    )
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="ask models anew: for the steps of --again, or for all that the run has",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="STEP",
        help="just these steps; what they need must be on file",
    )
    parser.add_argument(
        "--from",
        dest="from_step",
        metavar="STEP",
        help="just this step and what depends on it; what they need must be on file",
    )
    parser.add_argument(
        "--failed",
        action="store_true",
        help="just what failed in the newest run and what depends on it",
    )
    parser.add_argument(
        "--samples",
        metavar="FILE-or-SQL",
        help="just these samples: a file of their ids, or a SELECT that answers a sample_id",
    )
