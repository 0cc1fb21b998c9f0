"""The command line."""

import argparse
import importlib
import sys
from typing import Final

from claimflow.flows.options import (
    comparing,
    editing,
    keeping,
    labelling,
    looking,
    reading,
    reporting,
    running,
    scheduling,
)

EXIT_CODES: Final = """\
exit codes: 0 done, 1 done with failures (they are on record as rows),
2 wrong input (nothing was written), 3 the store is busy or its disk full, 4 a gate failed,
5 a gate is inconclusive, 6 a judge cannot be used, 7 the workers cannot go on (what was done
is kept with both), 130 stopped by Ctrl-C"""


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns its exit code.

    Each command is a module of `claimflow.flows.commands` with a function `main(options) -> int`,
    imported only when it is called: `--help` stays fast.
    """
    options = _parser().parse_args(arguments)
    try:
        guard = importlib.import_module("claimflow.flows.commands.guard")
        module = getattr(options, "module", options.command)
        command = importlib.import_module(f"claimflow.flows.commands.{module}")
    except KeyboardInterrupt:
        # Imports take a second or two, and whoever mistyped is quick.
        print("claimflow: stopped before anything was done", file=sys.stderr)
        return 130
    code: int = guard.guarded(command.main, options)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="claimflow",
        description="Evaluate RAG and LLM answers claim by claim.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    reads = (reading, reporting, looking, comparing)
    for group in (running, scheduling, *reads, editing, labelling, keeping):
        group.add(commands)
    commands.add_parser("version", help="print the version")
    return parser


if __name__ == "__main__":
    sys.exit(main())
