"""The end of the interpreter: quick, and without the warnings of libraries."""

import atexit
import gc
import os
import sys
from functools import cache
from typing import Final

_LIBRARIES: Final = frozenset({"litellm", "prefect"})
"""Libraries that keep references to our modules until the interpreter ends."""


@cache
def silence_stderr_at_exit() -> None:
    """Discard what is written to stderr after exit, where litellm or prefect was imported.

    DuckDB takes the references that they keep for a leak and prints pages about it.
    """
    atexit.register(_silence_stderr)


def skip_last_collection() -> None:
    """End this process without collecting garbage: it takes a second where litellm was imported.

    For processes that are claimflow's own.
    """
    atexit.register(gc.freeze)


def _silence_stderr() -> None:
    if _LIBRARIES & set(sys.modules):
        sys.stderr.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
