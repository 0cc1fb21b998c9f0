"""A user's mistake becomes one message and an exit code, never a stack trace."""

import os
import sys
from argparse import Namespace
from collections.abc import Callable

from flows.engine.at_exit import hush_at_exit
from flows.engine.errors import (
    Fault,
    InputError,
    JudgeError,
    StoppedError,
    StoreError,
    WorkersError,
)
from flows.pages.words import visible


def guarded(command: Callable[[Namespace], int], options: Namespace) -> int:
    """Run a command and return its exit code."""
    hush_at_exit()
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
        # Whoever read our output has gone, and Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if not isinstance(error.filename, str | os.PathLike):
            raise
        what = f"cannot be used ({error.strerror})"
        right = "look at its name, its folder and who may do what there"
        return _say(Fault(str(error.filename), what, right), 2)


def _say(message: object, code: int) -> int:
    # Names of files and what a file says may hold signs that steer a terminal.
    print(f"claimflow: {visible(message)}", file=sys.stderr)
    return code
