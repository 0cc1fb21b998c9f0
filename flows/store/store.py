"""The store: one DuckDB file, opened late and closed early."""

import random
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NoReturn

import duckdb

from claimflow.flows.errors import Fault, InputError, StoreBusyError, StoreFullError
from claimflow.flows.files import is_file, path_exists, similar_file
from claimflow.flows.store.connection import OpenFile, SharedFile, log_path
from claimflow.flows.store.schema import check, is_current, prepare, schema_version

_DISK_FULL: Final = ("No space left on device", "File too large", "Disk quota exceeded")
_DAMAGED: Final = ("Corrupt database file", "Could not read enough bytes")

_REFUSED: Final = re.compile(r'Cannot open file "(?P<file>[^"]*)": (?P<reason>\w[\w -]*)')
"""DuckDB's message where the operating system refuses to open the file, with its reason."""


class Store:
    """The file at `path`; made, with its folder, by the first write.

    A process that writes locks the file against every other process, and one that reads locks
    it against writers, so each use is short: open, work, close. Opening waits up to `wait`
    seconds for other processes and then raises `StoreBusyError`. Threads of this process take
    turns and pass the open file on to each other for a moment, since opening and closing cost
    CPU. The first write migrates a store of an older schema version. With `copy`, reads
    open that file instead.

    The way to the file: `writing` and `reading` borrow a connection from a `SharedFile`,
    which opens the file with `Store._open` where no thread has passed it on.
    """

    def __init__(self, path: Path, *, wait: float = 60.0, copy: Path | None = None) -> None:
        self.path = path
        self.read_path = copy or path
        self.wait = wait
        self._file = SharedFile(self._open)
        self._prepared = self._checked = False

    def __reduce__(self) -> NoReturn:
        # Of `pickle` and `copy.deepcopy`, whose own message is about a lock.
        raise TypeError(
            "a store, and a result that reads one, belongs to its process: pass the `store` and "
            "`run_id` of the result and open claimflow.connect(store).result(run_id), or pass its "
            "tables"
        )

    @contextmanager
    def writing(self, *, memory: str | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection in one transaction: committed at the end, rolled back on an error.

        `memory` limits the memory of DuckDB, as in "128MB"; where that is not enough it raises
        `duckdb.OutOfMemoryException` and nothing is written.

        Raises `InputError` when the file cannot be made, is damaged or is no store, and
        `StoreFullError` when the disk is full.
        """
        # Two threads: more would each have too little of the memory.
        config = {"memory_limit": memory, "threads": 2} if memory else None
        _make_folder(self.path)
        if not path_exists(self.path):
            self._prepared = False
        elif not is_file(self.path):
            # DuckDB would wait for the other end of a pipe.
            hint = "name a file, which may be new"
            raise InputError([Fault(str(self.path), "is no regular file", hint)])
        with (
            _translated_errors(self.path),
            self._file.connection(read_only=False, config=config) as connection,
        ):
            connection.begin()
            if not self._prepared:
                prepare(connection, self.path, now())
            yield connection
            connection.commit()
            self._prepared = True

    @contextmanager
    def reading(
        self, *, any_version: bool = False, config: Mapping[str, Any] | None = None
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection to read with.

        With `config` the file is opened for this connection alone, with these settings of DuckDB,
        which may be changed, and what other threads wrote is in the file itself, not in a log
        beside it. Raises `InputError` when there is no store at the path, when it is damaged, and,
        without `any_version`, when it has another schema version.
        """
        if not is_file(self.path):
            raise InputError(
                [
                    Fault(
                        str(self.path),
                        "there is no store here",
                        similar_file(self.path, "run a pipeline first"),
                    )
                ]
            )
        with (
            _translated_errors(self.read_path),
            self._file.connection(read_only=True, config=config) as connection,
        ):
            if not (self._checked or any_version):
                check(connection, self.path)
                self._checked = True
            yield connection

    def _open(self, read_only: bool, config: Mapping[str, Any] | None) -> OpenFile:
        """Open the file, once no other process has it locked."""
        path = self.read_path if read_only else self.path
        deadline = time.monotonic() + self.wait
        while True:
            inode = _inode(path)
            try:
                file = OpenFile(path, read_only=read_only, config=config)
                if inode in (None, _inode(path)):
                    return file
                # The file was replaced. DuckDB opens a file three times: it may have a part of
                # the old one and a part of the new one.
                file.close()
            except duckdb.Error as error:
                replaced = inode not in (None, _inode(path))
                if _cause(error) or not (replaced or isinstance(error, duckdb.IOException)):
                    raise
                if not replaced and "Could not set lock" not in str(error):
                    what, hint = (
                        "cannot be opened as a store",
                        "name a DuckDB file that claimflow made",
                    )
                    if reason := _REFUSED.search(str(error)):
                        what, hint = (
                            f"cannot be opened ({reason['reason']})",
                            "name a file of yours",
                        )
                        if path != self.path:
                            hint = "make it readable, or delete it: the next run writes it again"
                    raise InputError([Fault(str(path), what, hint)]) from error
                if time.monotonic() > deadline:
                    raise StoreBusyError(
                        f"{self.path}: another process has held the store for "
                        f"{self.wait:.0f} s; close it, or try again later"
                    ) from error
            time.sleep(random.uniform(0.02, 0.2))


@contextmanager
def _translated_errors(path: Path) -> Iterator[None]:
    """Raise `StoreFullError` for a full disk and `InputError` for a damaged file at `path`.

    `InputError` also where no log can be made beside the file. Other errors of DuckDB pass as they
    are, except that Ctrl-C is `KeyboardInterrupt` again.
    """
    try:
        yield
    except RuntimeError as error:
        # What DuckDB makes of a handler of signals that raises during a query.
        if str(error) == "Query interrupted":
            raise KeyboardInterrupt from error
        raise
    except duckdb.Error as error:
        cause = _cause(error)
        refused = _REFUSED.search(str(error))
        if refused and refused["file"] == str(log_path(path)):
            what = f"no file can be made beside it ({refused['reason']})"
            hint = "name a store in a folder that you can write to"
            raise InputError([Fault(str(path), what, hint)]) from error
        if cause is None:
            raise
        if cause in _DISK_FULL:
            hint = "make room and run again; what is on file is kept"
            raise StoreFullError(f"{path}: cannot be written ({cause}); {hint}") from error
        hint = "put a whole copy in its place, or name another store"
        raise InputError([Fault(str(path), f"is damaged ({cause})", hint)]) from error


def _cause(error: duckdb.Error) -> str | None:
    """The part of the message that says that the disk is full or the file damaged, if any."""
    return next((cause for cause in (*_DISK_FULL, *_DAMAGED) if cause in str(error)), None)


def _make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"its folder cannot be made ({error.strerror})"
        raise InputError(
            [Fault(str(path), what, "name a store in a folder that you can write to")]
        ) from error


def _inode(path: Path) -> int | None:
    """The inode number of the file at `path`, which changes when the file is replaced."""
    try:
        return path.stat().st_ino
    except OSError:
        return None


def now() -> datetime:
    """The time in UTC without a zone, as DuckDB's TIMESTAMP holds it."""
    return datetime.now(UTC).replace(tzinfo=None)


def store_version(store: Store) -> int | None:
    """The schema version of a store, of any version; None where the file is no store."""
    with store.reading(any_version=True) as connection:
        return schema_version(connection)


def migrate(store: Store) -> None:
    """Bring an existing store to the newest schema version, so that it can be read."""
    if not is_file(store.path):
        return
    with store.reading(any_version=True) as connection:
        current = is_current(connection)
    if not current:
        with store.writing():
            pass
