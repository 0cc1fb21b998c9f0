"""The `claimflow` command: its parser, and how errors become messages and exit codes."""

import argparse
import errno
import importlib
import io
import os
import sys
from argparse import Namespace
from collections.abc import Callable
from functools import cache
from typing import Final

from claimflow.flows import __version__
from claimflow.flows.cli import (
    check,
    compare,
    correct,
    init,
    inspect,
    label,
    ledger,
    maintain,
    noise,
    plan,
    receive,
    report,
    run,
    schedule,
    send,
    traces,
)
from claimflow.flows.cli.options import Parser, add_command, file_first
from claimflow.flows.cli.output import write_message
from claimflow.flows.errors import (
    Fault,
    InputError,
    JudgeError,
    PendingError,
    RunTimeoutError,
    StoppedError,
    StoreError,
    WorkersError,
)
from claimflow.flows.process import silence_stderr_at_exit
from claimflow.flows.report.formatting import escape_controls

EXIT_CODES: Final = """\
exit codes:
  0    done
  1    done, with failures (they are in the tables as rows)
  2    wrong input (nothing was written)
  3    the store is busy, or a disk is full
  4    a gate failed
  5    a gate is inconclusive or was not checked
  6    a judge, or the shared ledger, cannot be used (finished work is kept)
  7    the workers cannot continue (finished work is kept)
  8    the run failed: more failed rows than fail_when allows, or its timeout was reached
       (finished work is kept)
  9    a provider's batch has not ended: run again to collect its replies
  130  stopped by Ctrl-C"""

_CODES: Final[dict[type[Exception], int]] = {
    InputError: 2,
    StoreError: 3,
    JudgeError: 6,
    WorkersError: 7,
    PendingError: 9,
}
"""The exit codes of errors whose message is shown as it is."""


def main(arguments: list[str] | None = None, *, ready: Callable[[], object] = lambda: None) -> int:
    """Run one command; returns its exit code.

    `ready` is called when the modules are imported: from then on Ctrl-C is handled here.
    """
    _prepare_output()
    given = sys.argv[1:] if arguments is None else arguments
    for place, argument in enumerate(given, start=1):
        if fault := _argument_fault(place, argument):
            return _report(fault, 2)
    options, unknown = command_line().parse_known_args(file_first(given))
    if unknown:
        options.parser.refuse(unknown)
    if options.handler is not _version:
        # Most of the import time of every command.
        importlib.import_module("claimflow.flows.report.terminal")
    return run_command(options.handler, options, ready)


def _argument_fault(place: int, argument: str) -> Fault | None:
    """What is wrong with an argument that is no text: stores and messages hold UTF-8 only."""
    if "\0" in argument:
        return Fault(f"argument {place}", "has a null character", "leave it out")
    try:
        argument.encode()
    except UnicodeEncodeError:
        shown = argument.encode(errors="backslashreplace").decode()
        hint = "rename the file, or write the text as UTF-8"
        return Fault(f"argument {place}", f"{shown} is not UTF-8", hint)
    return None


@cache
def command_line() -> argparse.ArgumentParser:
    """The parser of the command line, with every command; made once in a process."""
    parser = Parser(
        prog="claimflow",
        description="Evaluate RAG and LLM answers claim by claim.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "-V",
        "--version",
        action="version",
        version=f"claimflow {__version__}",
        help="print the version",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    groups = (
        init,
        run,
        plan,
        check,
        traces,
        receive,
        ledger,
        noise,
        schedule,
        inspect,
        report,
        send,
        compare,
        correct,
        label,
    )
    for group in (*groups, maintain):
        group.add(commands)
    completion = add_command(
        commands,
        "completion",
        _completion,
        "print a script that completes commands, options and files in a shell",
        example="bash > ~/.local/share/bash-completion/completions/claimflow",
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")
    add_command(commands, "version", _version, "print the version", example="")
    return parser


def _version(_options: Namespace) -> int:
    print(f"claimflow {__version__}")
    return 0


def _completion(options: Namespace) -> int:
    import shtab

    parser = command_line()
    _complete_files(parser)
    print(shtab.complete(parser, options.shell))
    return 0


def _complete_files(parser: argparse.ArgumentParser) -> None:
    """Let shells propose files for every argument that is not one of a few words."""
    import shtab

    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _complete_files(command)
        elif action.choices is None and action.nargs != 0:
            action.complete = shtab.FILE  # type: ignore[attr-defined]


def run_command(
    handler: Callable[[Namespace], int],
    options: Namespace,
    ready: Callable[[], object] = lambda: None,
) -> int:
    """Call a command and return its exit code; errors of the user become one message."""
    silence_stderr_at_exit()
    try:
        ready()
        return handler(options)
    except tuple(_CODES) as error:
        return _report(
            error, next(code for kind, code in _CODES.items() if isinstance(error, kind))
        )
    except RunTimeoutError as error:
        return _report(f"failed: {error}; run again to continue", 8)
    except (KeyboardInterrupt, StoppedError):
        return _report("stopped; finished work is kept; run again to continue", 130)
    except BrokenPipeError:
        _discard_output()
        return 0
    except OSError as error:
        return _report_os_error(error)


def _prepare_output() -> None:
    """Open streams that the shell closed, and escape what the output encoding cannot hold."""
    # At once, since the next file to be opened would get the number of a closed stream.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    # The reader is gone; flushing at exit would raise once more.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report_os_error(error: OSError) -> int:
    """Report a file that cannot be used or output that does not fit on the disk; else raise."""
    what = f"cannot be used ({error.strerror})"
    if isinstance(error.filename, str | os.PathLike):
        hint = "check its name, its folder and its permissions"
        return _report(Fault(str(error.filename), what, hint), 2)
    if error.errno == errno.ENOSPC:
        _discard_output()
        return _report(Fault("standard output", what, "make room and run it again"), 3)
    raise error


def _report(message: object, code: int) -> int:
    # File names and file contents may hold control characters.
    write_message(f"claimflow: {escape_controls(message)}")
    return code


if __name__ == "__main__":
    sys.exit(main())
