"""Hypothesis: the same examples on every machine, and no judgement of how fast it is."""

import atexit
import os

from hypothesis import settings

settings.register_profile("everywhere", deadline=None, derandomize=True, database=None)
settings.load_profile("everywhere")


@atexit.register
def _hush() -> None:
    """Pytest keeps our modules until the very end, which DuckDB's binding takes for a leak.

    It would print pages about it below the result of the tests.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
