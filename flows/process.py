"""Settings of processes: garbage collection, and a quiet end."""

import atexit
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

_LIBRARIES: Final = frozenset({"litellm", "prefect"})
"""Libraries that keep references to our modules until the interpreter ends."""

_ALLOCATIONS: Final = 50_000
"""Objects made, less those freed, between two searches of the youngest ones; Python has 700."""


@cache
def silence_stderr_at_exit() -> None:
    """Discard what is written to stderr after exit, where litellm or prefect was imported.

    DuckDB takes the references that they keep for a leak and prints pages about it.
    """
    atexit.register(_silence_stderr)


@contextmanager
def less_garbage_collected() -> Iterator[None]:
    """As `collect_less_garbage` within the block, in a process that others use as well."""
    before = gc.get_threshold()
    # Not where another thread did so, which sets it back, nor where nothing is collected.
    changes = 0 < before[0] < _ALLOCATIONS
    if changes:
        gc.set_threshold(_ALLOCATIONS)
    try:
        yield
    finally:
        if changes:
            gc.set_threshold(*before)


def collect_less_garbage() -> None:
    """Look for reference cycles less often than Python does, and not at the end of this process.

    With litellm imported a full search takes 0.3 seconds, in which nothing else is done, and came
    after every 600 calls. For processes that are claimflow's own.
    """
    gc.set_threshold(_ALLOCATIONS)
    atexit.register(gc.freeze)


def _silence_stderr() -> None:
    if _LIBRARIES & set(sys.modules):
        sys.stderr.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
