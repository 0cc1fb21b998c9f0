"""The read copy: a snapshot of the store that readers open without waiting."""

import glob
import logging
import os
import secrets
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import duckdb

from claimflow.flows.errors import InputError, StoreError, StoreFullError
from claimflow.flows.store.store import Store

# The log beside a store, where DuckDB keeps what a process wrote that did not live to close it.


def fold_log(store: Store) -> None:
    """Bring into the file what the log beside it, left by a crash, holds."""
    if log_path(store.path).exists():
        with store.writing():
            pass


def log_path(store: Path) -> Path:
    """Where DuckDB keeps what is not in the file yet."""
    return store.with_name(f"{store.name}.wal")


# The read copy: the store as it last was, in a file beside it that nobody waits for.


_LEFT: Final = 3600.0
"""Seconds after which an unfinished copy is one that a crash left behind."""

_COPY: Final = "import shutil, sys; shutil.copyfile(sys.argv[1], sys.argv[2])"

_LOG: Final = logging.getLogger("claimflow")


def read_copy_path(store: Path) -> Path:
    """Where the read copy of a store is: `evals.read.duckdb` beside `evals.duckdb`."""
    return store.with_name(f"{store.stem}.read{store.suffix}")


def is_current(store: Path) -> bool:
    """Whether nothing was written to the store since its read copy was made of it."""
    copy = read_copy_path(store)
    return copy.is_file() and _mark(copy) == _mark(store)


def write_read_copy(store: Store) -> None:
    """Put a copy of the store beside it, in place of an older one, unless nothing has changed.

    Who has the older one open keeps it as it is; who opens the file next reads the new one.
    Writers wait while the file is copied, readers do not. Raises `StoreFullError` where there
    is no room for it and `StoreBusyError` where a writer does not let go.
    """
    copy = read_copy_path(store.path)
    _sweep(copy)
    part = copy.with_name(f".{copy.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    fold_log(store)
    try:
        with store.reading(exclusive=True):
            if is_current(store.path) or log_path(store.path).exists():
                return
            _copy_file(store.path, part)
            # A log beside it would be one that somebody's writing into an older copy left.
            log_path(copy).unlink(missing_ok=True)
            part.replace(copy)
    except OSError as error:
        raise StoreFullError(f"{copy}: cannot be written ({error.strerror or error})") from error
    finally:
        part.unlink(missing_ok=True)


def update_read_copy(store: Store, *, wanted: bool) -> None:
    """Publish, or where no read copy is `wanted` remove it; a failure costs the run nothing."""
    try:
        if wanted:
            write_read_copy(store)
        else:
            read_copy_path(store.path).unlink(missing_ok=True)
    except (OSError, StoreError, InputError, duckdb.Error) as error:
        _LOG.warning("%s; until it is, queries without --live see an older state", error)


def refresh_read_copy(store: Store) -> None:
    """Publish what a command has written, where the store has a read copy."""
    if read_copy_path(store.path).is_file():
        update_read_copy(store, wanted=True)


def _copy_file(store: Path, part: Path) -> None:
    """Copy a file in another process.

    Closing a file would take from this process its locks on it, those of DuckDB included.
    """
    mark = store.stat()
    command = [sys.executable, "-I", "-S", "-c", _COPY, str(store), str(part)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise OSError(0, done.stderr.strip().rpartition("\n")[2])
    os.utime(part, ns=(mark.st_atime_ns, mark.st_mtime_ns))
    # What somebody wrote into it would be lost at the next publishing: they are told at once.
    part.chmod(mark.st_mode & 0o444)


def _sweep(copy: Path) -> None:
    """Remove the unfinished copies of those who did not live to finish them."""
    for part in copy.parent.glob(f".{glob.escape(copy.name)}.*.part"):
        with suppress(OSError):
            if time.time() - part.stat().st_ctime > _LEFT:
                part.unlink()


def _mark(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size
