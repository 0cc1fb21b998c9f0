"""The store: one DuckDB file, opened late and closed early."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import duckdb
import polars as pl

from claimflow.flows.errors import Fault, InputError, StoreBusyError, StoreFullError
from claimflow.flows.store.arrow import Arrow
from claimflow.flows.store.connection import Alone, Attached, Handover
from claimflow.flows.store.schema import check, prepare, schema_version

# What DuckDB says of a file that has no room or is damaged, in our words.


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
            hint = "make room and run again; what is on file is kept"
            raise StoreFullError(f"{path}: cannot be written ({found}); {hint}") from error
        hint = "put a whole copy in its place, or name another store"
        raise InputError([Fault(str(path), f"is damaged ({found})", hint)]) from error


def trouble(error: duckdb.Error) -> str | None:
    """What says in `error` that there is no room, or that the file is damaged."""
    return next((words for words in (*_FULL, *_DAMAGED) if words in str(error)), None)


# One DuckDB file, opened late and closed early, so that others get their turn.


F = TypeVar("F", Alone, Attached)


class Store:
    """The file at `path`; made, with its folder, by the first write.

    A DuckDB writer shuts out every other process and a reader shuts out the writer, so
    each window is short. A window waits up to `wait` seconds for its turn and then raises
    `StoreBusyError`. Threads of this process take turns, and hand an open file on to each
    other for a moment, since opening and closing it costs CPU. A store of an older
    schema version is brought up to date by the first write. With `copy` what is read is that
    file.
    """

    def __init__(self, path: Path, *, wait: float = 60.0, copy: Path | None = None) -> None:
        self.path = path
        self._copy = copy
        self._wait = wait
        self._file = Handover(self._attach)
        self._ready = self._known = False

    @contextmanager
    def writing(self, *, memory: str | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection in one transaction: committed at the end, rolled back on an error.

        `memory` bounds what DuckDB may hold, as in "128MB"; where that is not enough it
        raises `duckdb.OutOfMemoryException` and nothing is written.

        Raises `InputError` when the file cannot be a store, or not there, or is damaged, and
        `StoreFullError` when there is no room for it.
        """
        with in_our_words(self.path):
            self._make_folder()
            with self._to_write(memory) as connection:
                connection.begin()
                if not self._ready:
                    prepare(connection, self.path, now())
                yield connection
                connection.commit()
                self._ready = True

    @contextmanager
    def reading(
        self, *, any_version: bool = False, alone: bool = False
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection to read by.

        With `alone` nobody else is given it, so that its settings may be changed, and the file
        is all there is: nothing written waits beside it. Raises `InputError` when there is no
        store at the path, or a damaged one, and without `any_version` when its schema version
        is not ours.
        """
        if not self.path.is_file():
            raise InputError(
                [Fault(str(self.path), "there is no store here", "run a pipeline first")]
            )
        window = self._alone(read_only=True) if alone else self._file.turn(read_only=True)
        with in_our_words(self._read_from(True)), window as connection:
            if not (self._known or any_version):
                check(connection, self.path)
                self._known = True
            yield connection

    def _make_folder(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            what = f"its folder cannot be made ({error.strerror})"
            raise InputError(
                [Fault(str(self.path), what, "name a store in a folder of yours")]
            ) from error

    @contextmanager
    def _to_write(self, memory: str | None) -> Iterator[duckdb.DuckDBPyConnection]:
        # With more threads each would have too little of it.
        config = {"memory_limit": memory, "threads": 2}
        window = self._alone(config=config) if memory else self._file.turn(read_only=False)
        with window as connection:
            yield connection

    @contextmanager
    def _alone(
        self, *, read_only: bool = False, config: dict[str, Any] | None = None
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        path = self._read_from(read_only)
        with (
            self._file.alone(),
            closing(self._patiently(path, lambda: Alone(path, read_only, config or {}))) as file,
        ):
            yield file.connection

    def _attach(self, read_only: bool) -> Attached:
        path = self._read_from(read_only)
        return self._patiently(path, lambda: Attached(path, read_only))

    def _read_from(self, read_only: bool) -> Path:
        return self._copy if read_only and self._copy else self.path

    def _patiently(self, path: Path, opened: Callable[[], F]) -> F:
        deadline = time.monotonic() + self._wait
        while True:
            before = _inode(path)
            try:
                file = opened()
                if before in (None, _inode(path)):
                    return file
                # DuckDB opens a file three times: of two files it would take a part each.
                file.close()
            except duckdb.Error as error:
                is_one = before in (None, _inode(path))
                if trouble(error) or (is_one and not isinstance(error, duckdb.IOException)):
                    raise
                if is_one and "Could not set lock" not in str(error):
                    hint = "name a DuckDB file that claimflow made"
                    what = "cannot be opened as a store"
                    raise InputError([Fault(str(self.path), what, hint)]) from error
                if time.monotonic() > deadline:
                    raise StoreBusyError(
                        f"{self.path}: another process has held the store for "
                        f"{self._wait:.0f} s; close it, or try again later"
                    ) from error
            time.sleep(random.uniform(0.02, 0.2))


def _inode(path: Path) -> int | None:
    """Which file it is that lies at `path` now."""
    try:
        return path.stat().st_ino
    except OSError:
        return None


def now() -> datetime:
    """The time in UTC without a zone, as DuckDB's TIMESTAMP holds it."""
    return datetime.now(UTC).replace(tzinfo=None)


def store_version(store: Store) -> int | None:
    """The schema version of a store, whichever it is; None where the file is no store."""
    with store.reading(any_version=True) as connection:
        return schema_version(connection)


def read_table(connection: duckdb.DuckDBPyConnection, query: str, **values: Any) -> pl.DataFrame:
    """What `query` answers, with `values` bound to its `$name` parameters."""
    return pl.DataFrame(Arrow(connection.sql(query, params=values or None)))


def insert(
    connection: duckdb.DuckDBPyConnection, table: str, frame: pl.DataFrame, **constants: Any
) -> None:
    """Append `frame`, each row led by `constants`, to `table` by column name."""
    connection.register("incoming", Arrow(frame))
    names = [f'"{name}"' for name in (*constants, *frame.columns)]
    selected = [f"${name}" for name in constants] + names[len(constants) :]
    connection.execute(
        f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(selected)} FROM incoming",
        constants or None,
    )
    connection.unregister("incoming")
