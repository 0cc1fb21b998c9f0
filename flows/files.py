"""Files: paths checked safely, and content digests."""

import hashlib
import os
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

# What lies at a path, asked of whatever somebody wrote as one.
#
# Nothing does where no file could have such a name, of which `pathlib` makes an error.


def exists(path: Path) -> bool:
    """Whether anything lies there."""
    with suppress(OSError):
        return path.exists()
    return False


def is_file(path: Path) -> bool:
    """Whether a file lies there."""
    return exists(path) and path.is_file()


def is_folder(path: Path) -> bool:
    """Whether a folder lies there."""
    return exists(path) and path.is_dir()


# What a file holds, as one number: models count by their content, not by their place.


_SETTLED: Final = 2.0
"""Seconds since the last change, after which the next one is sure to have another time."""


def sha256_of(path: Path) -> str:
    """SHA-256 of the bytes in a file, in hexadecimal; read in pieces, however long it is.

    A run asks for that of a model several times: what this process has read before is not
    read again, as long as nobody has touched the file.
    """
    found = path.stat()
    if abs(time.time() - found.st_ctime) < _SETTLED:
        return _read(path)
    return _remembered(path.absolute(), _touched(found))


def _touched(found: os.stat_result) -> tuple[int, ...]:
    """What is another with every change; the time of writing alone anybody may set."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


@lru_cache(maxsize=64)
def _remembered(path: Path, _as_of: tuple[int, ...]) -> str:
    return _read(path)


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
