"""Suppress library warnings during interpreter shutdown."""

import atexit
import os
import sys
from functools import cache
from typing import Final

_KEEPERS: Final = frozenset({"litellm", "prefect"})


@cache
def hush_at_exit() -> None:
    """Send what is said after exit to nowhere, where a library keeps our modules until then.

    DuckDB's binding takes that for a leak and prints pages about it.
    """
    atexit.register(_hush)


def _hush() -> None:
    if _KEEPERS & set(sys.modules):
        sys.stderr.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
