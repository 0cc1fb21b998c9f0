"""Checks of paths and of writing, bounded reading, and SHA-256 digests of files."""

import csv
import hashlib
import io
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from claimflow.flows.errors import Fault, InputError, nearest

_MIN_AGE: Final = 2.0
"""Seconds since a file's last change, after which its next change surely has another time."""


def path_exists(path: Path) -> bool:
    """Whether there is a file or folder; False for a name that no file can have.

    `pathlib` raises for some of those, such as a name that is too long.
    """
    with suppress(OSError):
        return path.exists()
    return False


def is_file(path: Path) -> bool:
    """Whether `path` is a file; False for a name that no file can have."""
    return path_exists(path) and path.is_file()


def resolved(path: Path) -> Path:
    """The absolute path without links; one in a loop of links stays as it is.

    `Path.resolve` raises there.
    """
    return Path(os.path.realpath(path))


def is_folder(path: Path) -> bool:
    """Whether `path` is a folder; False for a name that no folder can have."""
    return path_exists(path) and path.is_dir()


@contextmanager
def large_csv_cells(characters: int) -> Iterator[None]:
    """Let Python's CSV readers take cells of so many characters inside.

    The limit belongs to the process, which may be another program's: it is as before afterwards.
    """
    before = csv.field_size_limit(characters)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def path_fault(place: str, value: Any, hint: str) -> Fault | None:
    """What is wrong with an argument that should be a path; None where there may be such a file.

    A file that is missing, or in a folder that cannot be searched, is no fault.
    """
    try:
        path = Path(value)
        # DuckDB and a pipeline's YAML take names in UTF-8 only.
        str(path).encode()
        path.stat()
    except TypeError:
        return Fault(place, f"is of type {type(value).__name__}", hint)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except OSError as error:
        return Fault(place, f"cannot be used ({error.strerror})", hint)
    except ValueError:
        return Fault(place, "holds a character that no file name in UTF-8 has", hint)
    return None if path.absolute().name else Fault(place, "is the root of all folders", hint)


def checked_path(place: str, value: Any, hint: str) -> Path:
    """An argument as a path. Raises `InputError` for what `path_fault` finds."""
    if fault := path_fault(place, value, hint):
        raise InputError([fault])
    return Path(value)


@contextmanager
def faults_of_writing(path: Path) -> Iterator[None]:
    """Raise `InputError` where `path` cannot be written."""
    try:
        yield
    except OSError as error:
        what = f"cannot be written ({error.strerror})"
        hint = "name a file in a folder that you can write to"
        raise InputError([Fault(str(path), what, hint)]) from error


def refuse_special(path: Path) -> None:
    """Raise `InputError` where a file that another is to replace is no regular file.

    A rename would remove a device, a pipe or a link instead of writing to it. Raises `OSError`
    where the folder cannot be searched.
    """
    with suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if not stat.S_ISREG(mode):
            kinds = (
                (stat.S_ISDIR(mode), "a folder"),
                (stat.S_ISLNK(mode), "a symbolic link"),
                (True, "a device, pipe or socket"),
            )
            kind = next(name for found, name in kinds if found)
            hint = "name a new file, or a regular file that may be replaced"
            raise InputError([Fault(str(path), f"is {kind}, which is not replaced", hint)])


def open_private(path: str | Path, flags: int) -> int:
    """An opener for `open`: no other user may read what is made, and no pipe is waited for.

    Raises `OSError` for a link, which may lead to a file of others.
    """
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)


def similar_file(path: Path, hint: str, *, any_ending: bool = False) -> str:
    """A hint for a missing file: the file of its folder with the nearest name, or else `hint`.

    A file of the same name with another ending counts where `any_ending` is true.
    """
    if path_exists(path) or not is_folder(path.parent):
        return hint
    with suppress(OSError):
        others = [one for one in path.parent.iterdir() if one.name != path.name]
        # Names with the same ending are compared without it: it is no likeness.
        stem = nearest(path.stem, (one.stem for one in others if one.suffix == path.suffix))
        same = sorted(one.name for one in others if any_ending and one.stem == path.stem)
        near = f"{stem}{path.suffix}" if stem else next(iter(same), None)
        return f"did you mean {near!r}?" if near else hint
    return hint


def read_text(path: Path, limit: int) -> str | None:
    """The text of a UTF-8 file, or None where it has more than `limit` bytes.

    No more than that is read, so that a device without an end does no harm. Raises `OSError`,
    and `ValueError` for a name that no file can have and for what is not UTF-8.
    """
    with path.open("rb") as file:
        content = file.read(limit + 1)
    return None if len(content) > limit else io.TextIOWrapper(io.BytesIO(content), "utf-8").read()


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal; files of any size are read in blocks.

    One run asks for the digest of a model several times, so the digest is cached for this
    process until the file changes. A file that changed within the last two seconds is not
    cached, since its next change could have the same time. Raises `OSError` for a file that
    cannot be read.
    """
    status = path.stat()
    if abs(time.time() - status.st_ctime) < _MIN_AGE:
        return _read_sha256(path)
    # Any program can set the modification time; none can set the change time (ctime).
    version = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    return _cached_sha256(path.absolute(), version)


@lru_cache(maxsize=64)
def _cached_sha256(path: Path, _version: tuple[int, ...]) -> str:
    return _read_sha256(path)


def _read_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
