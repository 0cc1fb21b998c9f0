"""A user's mistake becomes one message and an exit code, never a stack trace."""

import atexit
import os
import sys
from argparse import Namespace
from collections.abc import Callable
from typing import Final

from flows.engine.errors import InputError, JudgeError, StoppedError, StoreError

_KEEPERS: Final = frozenset({"litellm", "prefect"})


def guarded(command: Callable[[Namespace], int], options: Namespace) -> int:
    """Run a command and return its exit code."""
    atexit.register(_hush)
    try:
        return command(options)
    except InputError as error:
        return _say(error, 2)
    except StoreError as error:
        return _say(error, 3)
    except JudgeError as error:
        return _say(error, 6)
    except (KeyboardInterrupt, StoppedError):
        return _say("stopped; what was done is kept, run again to go on", 130)
    except BrokenPipeError:
        # Whoever read our output has gone, and Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _hush() -> None:
    """Send what is said after exit to nowhere, where a library keeps our modules until then.

    DuckDB's binding takes that for a leak and prints pages about it.
    """
    if _KEEPERS & set(sys.modules):
        sys.stderr.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _say(message: object, code: int) -> int:
    print(f"claimflow: {message}", file=sys.stderr)
    return code
