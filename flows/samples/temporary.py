"""Temporary copies of what is read: a full disk is told, and no copy outlives its process for long.

Copies hold texts that are not redacted yet.
"""

import errno
import fcntl
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from claimflow.flows.errors import StoreFullError

_PREFIX: Final = "claimflow-copies-"
_MIN_AGE: Final = 60.0
"""Seconds after which a folder without a lock belongs to no process that is about to lock it."""

_DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DATABASE_FULL: Final = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE)
_OPEN_FILES: Final = Path("/proc/self/fd")
"""Where Linux has the files that a process has open, also those without a name."""


@contextmanager
def room_for_temporary_files() -> Iterator[None]:
    """Raise `StoreFullError` with the folder of temporary files where its disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in _DISK_FULL:
            raise
        raise _full(tempfile.gettempdir(), str(error.strerror)) from error
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode not in _DATABASE_FULL:
            raise
        raise _full(_database_folder(), str(error)) from error


def _full(folder: str, reason: str) -> StoreFullError:
    hint = "make room there, or set TMPDIR to a folder on another disk, and run again"
    return StoreFullError(f"{folder}: no room for temporary files ({reason}); {hint}")


def _database_folder() -> str:
    """Where SQLite keeps databases without a name, which is not always where Python keeps files."""
    folders = [os.environ.get("SQLITE_TMPDIR"), os.environ.get("TMPDIR"), "/var/tmp"]  # noqa: S108
    usable = (one for one in folders if one and Path(one).is_dir() and os.access(one, os.W_OK))
    return next(usable, tempfile.gettempdir())


@contextmanager
def copies_folder() -> Iterator[Path]:
    """A temporary folder for copies; those of processes that were killed are removed before."""
    _remove_left_behind()
    with (
        room_for_temporary_files(),
        tempfile.TemporaryDirectory(prefix=_PREFIX) as folder,
        _locked(Path(folder)),
    ):
        yield Path(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Lock a folder where no other process has; however this one ends, the lock ends with it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_ours = True
    except OSError:
        # Some network file systems have no locks; no folder is removed there.
        is_ours = False
    try:
        yield is_ours
    finally:
        os.close(descriptor)


def _remove_left_behind() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        # Another process may remove it at the same time; other users' folders are theirs.
        with suppress(OSError):
            if folder.is_symlink() or time.time() - folder.stat().st_mtime < _MIN_AGE:
                continue
            with _locked(folder) as is_ours:
                if is_ours:
                    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def without_name(copy: Path) -> Iterator[Path]:
    """A path of a copy whose name is removed, so that a killed process leaves no copy behind.

    Where the system has no such path, the copy keeps its name.
    """
    if not _OPEN_FILES.is_dir():
        yield copy
        return
    with copy.open("rb") as file:
        copy.unlink()
        yield _OPEN_FILES / str(file.fileno())
