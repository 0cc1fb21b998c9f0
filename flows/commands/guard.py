"""A user's mistake becomes one message and an exit code, never a stack trace."""

import errno
import io
import os
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from claimflow.flows.errors import (
    Fault,
    InputError,
    JudgeError,
    StoppedError,
    StoreError,
    WorkersError,
)
from claimflow.flows.report.text import visible
from claimflow.flows.shutdown import silence_stderr_at_exit


def guarded(command: Callable[[Namespace], int], options: Namespace) -> int:
    """Run a command and return its exit code."""
    silence_stderr_at_exit()
    _make_ready()
    try:
        return command(options)
    except InputError as error:
        return _say(error, 2)
    except StoreError as error:
        return _say(error, 3)
    except JudgeError as error:
        return _say(error, 6)
    except WorkersError as error:
        return _say(error, 7)
    except (KeyboardInterrupt, StoppedError):
        return _say("stopped; what was done is kept, run again to go on", 130)
    except BrokenPipeError:
        _leave_output()
        return 0
    except OSError as error:
        return _of_the_system(error)


def _make_ready() -> None:
    """Have something to write to, whatever the shell gave us, and signs for what it cannot show."""
    # Opened at once, since the next file would take the number of the stream that is closed.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _leave_output() -> None:
    # Whoever takes our output takes no more, and Python would complain once more at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _of_the_system(error: OSError) -> int:
    """Tell of a file that cannot be used, or of output that nobody has room for; else raise."""
    what = f"cannot be used ({error.strerror})"
    if isinstance(error.filename, str | os.PathLike):
        hint = "look at its name, its folder and who may do what there"
        return _say(Fault(str(error.filename), what, hint), 2)
    if error.errno == errno.ENOSPC:
        _leave_output()
        return _say(Fault("standard output", what, "make room and say it again"), 3)
    raise error


def _say(message: object, code: int) -> int:
    # Names of files and what a file says may hold signs that steer a terminal.
    print(f"claimflow: {visible(message)}", file=sys.stderr)
    return code
