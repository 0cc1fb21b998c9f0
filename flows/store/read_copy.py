"""The read copy: a snapshot of the store beside it, which can be read while a run writes."""

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

_ABANDONED_AFTER: Final = 3600.0
"""Seconds after which an unfinished copy is taken for one that a crash left behind."""

_COPY: Final = "import os, shutil, sys; os.umask(0o077); shutil.copyfile(sys.argv[1], sys.argv[2])"

_LOG: Final = logging.getLogger("claimflow")


def read_copy_path(store: Path) -> Path:
    """The path of the read copy of a store: `evals.read.duckdb` beside `evals.duckdb`."""
    return store.with_name(f"{store.stem}.read{store.suffix}")


def is_current(store: Path) -> bool:
    """Whether nothing was written to the store since its read copy was made."""
    copy = read_copy_path(store)
    return copy.is_file() and _mark(copy) == _mark(store)


def readable_store(path: Path) -> Store:
    """The store at `path`, read from its read copy where there is one, so that no lock is waited
    for; else the store itself."""
    copy = read_copy_path(path)
    return Store(path, copy=copy if copy.is_file() else None)


def write_read_copy(store: Store) -> None:
    """Replace the read copy with a copy of the store, unless nothing has changed.

    A process that has the older copy open goes on reading it. Writers wait while the file is
    copied, readers do not. Raises `StoreFullError` where the disk has no room for it and
    `StoreBusyError` while another process writes.
    """
    copy = read_copy_path(store.path)
    _remove_abandoned(copy)
    part = copy.with_name(f".{copy.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    fold_log(store)
    try:
        with store.reading(exclusive=True):
            if is_current(store.path) or log_path(store.path).exists():
                return
            _copy_file(store.path, part)
            # A log here belongs to an older copy that some process wrote into.
            log_path(copy).unlink(missing_ok=True)
            part.replace(copy)
    except OSError as error:
        raise StoreFullError(f"{copy}: cannot be written ({error.strerror or error})") from error
    finally:
        part.unlink(missing_ok=True)


def update_read_copy(store: Store, *, wanted: bool) -> None:
    """Write the read copy, or remove it where none is `wanted`; a failure is only logged."""
    try:
        if wanted:
            write_read_copy(store)
        else:
            read_copy_path(store.path).unlink(missing_ok=True)
    except (OSError, StoreError, InputError, duckdb.Error) as error:
        _LOG.warning("%s; until it is, queries without --live see an older state", error)


def refresh_read_copy(store: Store) -> None:
    """Write the read copy again after a command wrote to the store, where there is one."""
    if read_copy_path(store.path).is_file():
        update_read_copy(store, wanted=True)


def fold_log(store: Store) -> None:
    """Move into the file what DuckDB's log beside it holds after a crash."""
    if log_path(store.path).exists():
        with store.writing():
            pass


def log_path(store: Path) -> Path:
    """DuckDB's log beside a store, which holds committed rows that are not in the file yet."""
    return store.with_name(f"{store.name}.wal")


def _copy_file(store: Path, part: Path) -> None:
    """Copy a file in another process: closing a file drops all locks of this process on it."""
    mark = store.stat()
    command = [sys.executable, "-I", "-S", "-c", _COPY, str(store), str(part)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise OSError(0, done.stderr.strip().rpartition("\n")[2])
    os.utime(part, ns=(mark.st_atime_ns, mark.st_mtime_ns))
    # Read-only: rows written into the copy would be lost when it is next replaced.
    part.chmod(mark.st_mode & 0o444)


def _remove_abandoned(copy: Path) -> None:
    """Remove unfinished copies of processes that crashed."""
    for part in copy.parent.glob(f".{glob.escape(copy.name)}.*.part"):
        with suppress(OSError):
            if time.time() - part.stat().st_ctime > _ABANDONED_AFTER:
                part.unlink()


def _mark(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size
