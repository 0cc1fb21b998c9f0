"""Tables as Parquet files in a sub-folder, on a disk or in object storage, that belongs to a run.

Several processes write there, and read what others have written: a table appears whole, under a
name of its own. A sub-folder that a killed process left is removed by a later run.
"""

import fcntl
import io
import os
import re
import secrets
import shutil
import socket
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Final

import polars as pl

from claimflow.flows.errors import InputError, WorkersError
from claimflow.flows.files import open_private
from claimflow.flows.object_storage import Bucket, is_remote, parse_address

_PREFIX: Final = "claimflow-workers"
_LOCK: Final = "lock"
_NAME: Final = re.compile(r"(\d{8}T\d{6}Z)-[0-9a-f]{8}")
_TIME: Final = "%Y%m%dT%H%M%SZ"

_UNLOCKED: Final = timedelta(minutes=1)
"""The age from which a sub-folder that is not locked belongs to no run that is about to lock it."""

_LEFT: Final = timedelta(days=7)
"""The age from which a sub-folder belongs to no run where locks cannot say so."""

_TRIES: Final = 5
"""Times that a sub-folder is emptied: a worker that still runs may write into it meanwhile."""


class FolderError(WorkersError):
    """A folder cannot be used; the message goes on after the name of the process."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table that is a file in the sub-folder `folder`; this travels in their place.

    They are `height` rows from the row `first` on, of `of` rows. `sizes` has the bytes in memory of
    each column that is read, for all rows of the file; `checksum` is that of the file.
    """

    folder: str
    name: str
    checksum: int
    sizes: Mapping[str, int]
    of: int
    height: int
    first: int = 0

    def select(self, columns: Iterable[str]) -> "Rows":
        """The same rows with these columns."""
        return replace(self, sizes={column: self.sizes[column] for column in columns})

    def slice(self, offset: int, length: int) -> "Rows":
        """At most `length` of these rows, from the row `offset` of them on."""
        height = max(0, min(length, self.height - offset))
        return replace(self, first=self.first + offset, height=height)

    def estimated_size(self) -> int:
        """About the bytes that the rows take in memory."""
        return sum(self.sizes.values()) * self.height // max(self.of, 1)

    def read(self) -> pl.DataFrame:
        """The rows; raises `FolderError` where the file is lost or damaged."""
        content = open_sub_folder(self.folder).read(self.name)
        if zlib.crc32(content) == self.checksum:
            with suppress(pl.exceptions.PolarsError):
                table = pl.read_parquet(io.BytesIO(content), columns=list(self.sizes))
                if table.height == self.of:
                    return table.slice(self.first, self.height)
        raise FolderError(f"finds {self.folder}/{self.name} damaged")


def write_rows(folder: str, table: pl.DataFrame, kind: str) -> Rows:
    """Write a table into a sub-folder, under a name of its own that begins with `kind`.

    Raises `FolderError`.
    """
    name = f"{kind}-{secrets.token_hex(8)}.parquet"
    file = io.BytesIO()
    # As fast as without compression, once the bytes are sent; statistics are asked by no reader.
    table.write_parquet(file, compression="zstd", compression_level=1, statistics=False)
    content = file.getvalue()
    open_sub_folder(folder).write(name, content)
    sizes = {column.name: int(column.estimated_size()) for column in table}
    return Rows(folder, name, zlib.crc32(content), sizes, table.height, table.height)


class _Disk:
    """A sub-folder on a disk; all methods but `end` raise `FolderError`."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._lock: int | None = None

    def begin(self) -> None:
        """Make the sub-folder, with a lock that says that its run lives."""
        with self._told("make"):
            self._folder.mkdir(mode=0o700)
            path = self._folder / _LOCK
            self._lock = open_private(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            os.write(self._lock, socket.gethostname().encode())
        # Without locks the age says whether the run lives.
        with suppress(OSError):
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def read(self, name: str) -> bytes:
        path = self._folder / name
        with self._told("read", name), open(path, "rb", opener=open_private) as file:
            return file.read()

    def write(self, name: str, content: bytes) -> None:
        """Write a file, which appears whole or not at all."""
        partial = self._folder / f".{name}"
        with self._told("write", name):
            with open(partial, "xb", opener=open_private) as file:
                file.write(content)
            partial.replace(self._folder / name)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            with self._told("remove", name):
                (self._folder / name).unlink(missing_ok=True)

    def end(self) -> None:
        """Remove the sub-folder with all its files, as far as that is possible."""
        if self._lock is not None:
            # Before the files: some network disks keep a file that is open.
            os.close(self._lock)
            self._lock = None
        _remove_folder(self._folder)

    @contextmanager
    def _told(self, what: str, name: str = "") -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if what != "make" and not self._folder.is_dir():
                there = f"does not see the folder {self._folder}"
                raise FolderError(f"{there}, which every worker needs at that path") from None
            reason = error.strerror or type(error).__name__
            raise FolderError(f"cannot {what} {self._folder / name} ({reason})") from None


class _Objects:
    """A sub-folder in object storage, as `_Disk`."""

    def __init__(self, folder: str) -> None:
        self._at = parse_address(folder)
        with self._told():
            self._bucket = Bucket(self._at)

    def begin(self) -> None:
        """Nothing: it begins with its first file."""

    def read(self, name: str) -> bytes:
        with self._told():
            return self._bucket.read(self._at.below(name).key)

    def write(self, name: str, content: bytes) -> None:
        with self._told():
            self._bucket.put(self._at.below(name).key, content)

    def remove(self, names: Iterable[str]) -> None:
        with self._told():
            self._bucket.remove(*(self._at.below(name).key for name in names))

    def end(self) -> None:
        with suppress(InputError):
            self._bucket.remove(*self._bucket.versions(self._at.key))

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except InputError as error:
            raise FolderError(f"cannot use {error}") from None


@lru_cache(maxsize=8)
def open_sub_folder(folder: str) -> _Disk | _Objects:
    """The sub-folder at a path or an address. Raises `FolderError`."""
    return _Objects(folder) if is_remote(folder) else _Disk(folder)


def new_sub_folder(folder: str) -> str:
    """The path or address of a new sub-folder, whose name begins with the time."""
    name = f"{datetime.now(UTC):{_TIME}}-{secrets.token_hex(4)}"
    # Below one key, so that leftovers are found without the names of all other objects.
    return (
        str(parse_address(folder).below(_PREFIX, name))
        if is_remote(folder)
        else str(Path(folder, f"{_PREFIX}-{name}"))
    )


def remove_left_behind(folder: str) -> None:
    """Remove the sub-folders of runs that were killed; one whose run may live is left alone."""
    if is_remote(folder):
        above = parse_address(folder).below(_PREFIX)
        with suppress(InputError):
            bucket = Bucket(above)
            keys = bucket.versions(above.key)
            at = len(above.key) + 1
            bucket.remove(*(key for key in keys if _age(key[at:].partition("/")[0]) > _LEFT))
        return
    for found in Path(folder).glob(f"{_PREFIX}-*"):
        age = _age(found.name.removeprefix(f"{_PREFIX}-"))
        if age > _UNLOCKED and not found.is_symlink() and _has_ended(found, age):
            _remove_folder(found)


def _age(name: str) -> timedelta:
    """The time since a sub-folder was made; none where the name is not that of a sub-folder."""
    written = _NAME.fullmatch(name)
    with suppress(ValueError):
        if written is not None:
            return datetime.now(UTC) - datetime.strptime(written[1], _TIME).replace(tzinfo=UTC)
    return timedelta(0)


def _has_ended(folder: Path, age: timedelta) -> bool:
    """Whether the run of a sub-folder has ended, by its lock, or by its age where that is unsure.

    Some network disks have locks that other machines do not see.
    """
    try:
        with open(folder / _LOCK, "r+b", buffering=0, opener=open_private) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            here = socket.gethostname().encode()
            return age > _LEFT or lock.read(len(here) + 1) == here
    except BlockingIOError:
        return False
    except OSError:
        return age > _LEFT


def _remove_folder(folder: Path) -> None:
    for _ in range(_TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
