"""Options that several commands share."""

import argparse
import math
from pathlib import Path
from typing import Any, Final

Commands = Any
"""What `add_subparsers` gives, for which argparse has no public name."""

_MOST: Final = 10**12
"""Of whatever is counted there are never so many."""


def pipeline_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that reads a pipeline as a run would."""
    parser.add_argument("config", type=Path, help="a pipeline's YAML file")
    parser.add_argument("--limit", type=positive, metavar="N", help="take the first N samples")
    parser.add_argument("--store", type=Path, help="a DuckDB file instead of the pipeline's")


def store_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which store a command means."""
    parser.add_argument("--store", type=Path, help="the store (default: the last one used here)")
    parser.add_argument("--config", type=Path, help="take the store of this pipeline")


def live_option(parser: argparse.ArgumentParser) -> None:
    """Add the option to read the store itself instead of its read copy."""
    parser.add_argument(
        "--live",
        action="store_true",
        help="read the store itself, waiting for its turn, instead of the read copy",
    )


def two_or_more(text: str) -> int:
    """A whole number of 2 or more."""
    number = int(text)
    if number < 2:
        raise argparse.ArgumentTypeError("must be 2 or more")
    return number


def positive(text: str) -> int:
    """A whole number of 1 or more that every counter can hold."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return min(number, _MOST)


def days(text: str) -> int:
    """A whole number of days that a date can be moved by."""
    number = positive(text)
    if number > 36_500:
        raise argparse.ArgumentTypeError("must be 36500 or less")
    return number


def seconds(text: str) -> float:
    """A number of seconds greater than 0."""
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError("must be greater than 0")
    return number
