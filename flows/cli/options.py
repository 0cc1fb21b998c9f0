"""Options that several commands share, and parsers for their values."""

import argparse
import math
import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, NoReturn

from claimflow.flows.errors import nearest
from claimflow.flows.pipeline.limits import COUNT

Commands = Any
"""What `add_subparsers` returns; argparse has no public name for its type."""

RUN: Final = "a run id, the beginning of one, a tag, latest or previous"

_MANY: Final = ("--only", "--metrics", "--rename")
"""The options that take several values."""


class Parser(argparse.ArgumentParser):
    """A parser whose messages name the nearest command, action, option or choice."""

    def error(self, message: str) -> NoReturn:
        """As `ArgumentParser.error`, with a hint where a word is like a known one."""
        wrong = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if wrong:
            word, known = wrong[1], re.findall(r"[\w-]+", wrong[2])
            near = nearest(word, known)
            if near:
                message = f"{message[: wrong.start()]}unknown {word!r}; did you mean {near!r}?"
        super().error(message)

    def refuse(self, arguments: Sequence[str]) -> NoReturn:
        """End with a message on arguments that no parser knows."""
        options = re.findall(r"--[a-z][a-z-]*", self.format_help())
        near = [nearest(one.partition("=")[0], options) for one in arguments if one[:1] == "-"]
        hint = f"; did you mean {near[0]!r}?" if near and near[0] else ""
        super().error(f"unrecognized arguments: {' '.join(arguments)}{hint}")


def add_command(commands: Commands, name: str, handler: Any, text: str, *, example: str) -> Parser:
    """Declare the command `name`, which `handler(options) -> int` carries out.

    `text` is its line in the list of commands and the first line of its own help, which ends with
    the `example`, the arguments of one call.
    """
    parser: Parser = commands.add_parser(
        name,
        help=text,
        description=_sentence(text),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.epilog = f"example:\n  {parser.prog} {example}".rstrip()
    parser.set_defaults(handler=handler, parser=parser)
    return parser


def add_group(commands: Commands, name: str, text: str) -> Commands:
    """Declare the command `name` whose actions are declared with what this returns."""
    parser = commands.add_parser(name, help=text, description=_sentence(text))
    return parser.add_subparsers(dest="action", required=True, metavar="ACTION")


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def add_pipeline(parser: argparse.ArgumentParser) -> None:
    """Add the pipeline file, and the store to use instead of the one that it names."""
    parser.add_argument("config", type=Path, metavar="PIPELINE", help="a pipeline's YAML file")
    parser.add_argument(
        "--store", type=Path, metavar="FILE", help="use this DuckDB file as the store"
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the run to read, by default the newest."""
    parser.add_argument("run", nargs="?", metavar="RUN", help=f"{RUN} (default: the newest)")


def add_rerun_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose samples and steps, and which tables are made again."""
    parser.add_argument(
        "--limit",
        type=positive,
        metavar="N",
        help="take the first N samples only; a list of messages counts as one",
    )
    parser.add_argument(
        "--samples",
        metavar="FILE-or-SQL",
        help="take these samples only: a file of ids, or a SELECT that returns sample_id",
    )
    parser.add_argument(
        "--part",
        metavar="K/N",
        help="take one of N disjoint parts of the samples only, such as 2/4, for one of several "
        "machines",
    )
    parser.add_argument(
        "--skip-unusable",
        action="store_true",
        help="leave out and count samples that cannot be used, instead of ending with their errors",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        action="extend",
        default=[],
        metavar="STEP",
        help="make these steps only; the tables that they need must be in the store",
    )
    parser.add_argument(
        "--from",
        dest="from_step",
        metavar="STEP",
        help="make this step and those that depend on it; the tables that they need must be in "
        "the store",
    )
    parser.add_argument(
        "--failed",
        action="store_true",
        help="make the steps whose newest table has failed rows, and those that depend on them",
    )
    parser.add_argument(
        "--again",
        action="append",
        default=[],
        metavar="STEP",
        help="make this step even if its table can be reused; may be repeated",
    )
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="ignore recorded replies and ask the models again: in the steps of --again, or in "
        "every step of the run",
    )


def add_redact_option(parser: argparse.ArgumentParser) -> None:
    """Add the option to keep texts out of the record of calls."""
    parser.add_argument(
        "--redact",
        action="store_true",
        help="store hashes instead of the texts of model calls (audit.calls)",
    )


def add_store_options(parser: argparse.ArgumentParser, *, live: bool = False) -> None:
    """Add the options that name a store; with `live` also the one to read the store itself."""
    parser.add_argument(
        "--store", type=Path, metavar="FILE", help="the store (default: the last one used here)"
    )
    parser.add_argument(
        "--config", type=Path, metavar="PIPELINE", help="use the store of this pipeline file"
    )
    if live:
        parser.add_argument(
            "--live",
            action="store_true",
            help="read the store itself, waiting until it is free, instead of its read copy",
        )


def add_output_option(parser: argparse.ArgumentParser) -> None:
    """Add the file to write to."""
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write to this file (default: print)"
    )


def add_format_option(parser: argparse.ArgumentParser, *formats: str) -> None:
    """Add the format to write; the first of `formats` is the default."""
    text = f"(default: {formats[0]})"
    parser.add_argument("--format", choices=formats, default=formats[0], help=text)


_FILES: Final = (".yaml", ".yml", ".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")


def file_first(arguments: Sequence[str]) -> list[str]:
    """Arguments in which the file in `run --only STEP FILE` stands before every such option.

    An option that takes several values takes the file as well, although the usage line of
    argparse shows this order.
    """
    arguments = list(arguments)
    starts = [place for place, word in enumerate(arguments) if word in _MANY]
    for start in starts:
        values = [*takewhile(lambda one: not one.startswith("-"), arguments[start + 1 :])]
        if len(values) > 1 and values[-1].endswith(_FILES):
            arguments.insert(starts[0], arguments.pop(start + len(values)))
            break
    return arguments


def port(text: str) -> int:
    """A port that does not need administrator rights, or 0."""
    number = int(text)
    if number != 0 and not 1024 <= number <= 65535:
        raise argparse.ArgumentTypeError("must be 0, or 1024 to 65535")
    return number


def local_path(text: str) -> Path:
    """A path of this machine; an address would become a folder that is named after its scheme."""
    if "://" in text:
        raise argparse.ArgumentTypeError("must be a path on this machine, not an address")
    return Path(text)


def positive(text: str) -> int:
    """A whole number of 1 or more; those above a trillion count as a trillion."""
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError("must be a whole number of 1 or more") from None
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return min(number, COUNT)


def duration(text: str) -> timedelta:
    """Seconds, or a number with s, m, h or d."""
    from claimflow.flows.pipeline.times import check_duration

    return _timedelta(text, check_duration)


def wait(text: str) -> timedelta:
    """As `duration`, or 0."""
    from claimflow.flows.pipeline.times import check_wait

    return _timedelta(text, check_wait)


def _timedelta(text: str, check: Callable[[Any], Any]) -> timedelta:
    from claimflow.flows.pipeline.times import to_timedelta

    try:
        return to_timedelta(check(int(text) if text.isdecimal() else text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def seconds(text: str) -> float:
    """A finite number of seconds greater than 0."""
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError("must be greater than 0")
    return number
