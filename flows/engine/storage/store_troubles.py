"""What DuckDB says of a file that has no room or is damaged, in our words."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb

from claimflow.flows.engine.errors import Fault, InputError, StoreFullError

_FULL: Final = ("No space left on device", "File too large", "Disk quota exceeded")
_DAMAGED: Final = ("Corrupt database file", "Could not read enough bytes")


@contextmanager
def in_our_words(path: Path) -> Iterator[None]:
    """Tell what is wrong with the file at `path` as we do; other errors pass.

    Raises `StoreFullError` when there is no room to write, `InputError` when it is damaged.
    """
    try:
        yield
    except duckdb.Error as error:
        found = trouble(error)
        if found is None:
            raise
        if found in _FULL:
            right = "make room and run again; what is on file is kept"
            raise StoreFullError(f"{path}: cannot be written ({found}); {right}") from error
        right = "put a whole copy in its place, or name another store"
        raise InputError([Fault(str(path), f"is damaged ({found})", right)]) from error


def trouble(error: duckdb.Error) -> str | None:
    """What says in `error` that there is no room, or that the file is damaged."""
    return next((words for words in (*_FULL, *_DAMAGED) if words in str(error)), None)
