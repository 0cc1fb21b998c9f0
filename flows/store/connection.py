"""DuckDB connections: attached in one process, handed over between threads."""

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import duckdb

# A DuckDB file that this process has open: attached to the DuckDB of the process, or alone.
#
# By its name alone DuckDB would attach a file of samples as a database, too: its kind is said.
# A DuckDB of its own takes 20 ms of CPU to open, a file attached to one that is there takes 2.


_SOUND: Final = "SET disabled_optimizers = 'compressed_materialization'"
"""With that one DuckDB 2.0 takes a sum for no larger than its parts, where rows are chosen by a
subquery, as in the views of the latest run, and the result is sorted: it may be wrong by 256."""

_NAMES: Final = itertools.count(1)
_OPENING: Final = threading.Lock()
_DUCKDBS: Final[dict[int, duckdb.DuckDBPyConnection]] = {}
"""By process: one that was made before a fork would lack its threads."""

_OPEN: Final[set[Path]] = set()
"""Files that this process has open. Closing one a second time would take the locks of the first,
and two DuckDBs would write into it without seeing each other."""


class _Opened:
    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        with _OPENING:
            if self._path in _OPEN:
                raise duckdb.IOException("Could not set lock on file: this process has it open")
            _OPEN.add(self._path)

    def _closed(self) -> None:
        _OPEN.discard(self._path)


class Attached(_Opened):
    """A file for as many connections as are asked for, until it is closed.

    Raises as `duckdb.connect` does.
    """

    def __init__(self, path: Path, read_only: bool) -> None:
        super().__init__(path)
        self._duckdb = _duckdb(f"{path}.tmp")
        self._name = f"store_{next(_NAMES)}"
        how = "TYPE duckdb, READ_ONLY" if read_only else "TYPE duckdb"
        try:
            self._do(f"ATTACH $path AS {self._name} ({how})", path=str(path))
        except BaseException:
            self._closed()
            raise

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection in which names are those of the file."""
        connection = self._duckdb.cursor()
        connection.execute(f"USE {self._name}")
        return connection

    def close(self) -> None:
        """Leave the file to others.

        What was committed is in DuckDB's log by now: where there is no room to move it into
        the file, whoever opens that next does so.
        """
        try:
            self._do(f"DETACH {self._name}")
        except duckdb.Error:
            # It may be of no more use, and keep the file: the next one is attached to another.
            _DUCKDBS.pop(os.getpid(), None)
        del self._duckdb
        self._closed()

    def _do(self, statement: str, **values: str) -> None:
        with closing(self._duckdb.cursor()) as connection:
            connection.execute(statement, values or None)


class Alone(_Opened):
    """A file in a DuckDB of its own, whose settings may be changed: `connection`."""

    def __init__(self, path: Path, read_only: bool, config: dict[str, Any]) -> None:
        super().__init__(path)
        try:
            # Said of the path here, as for ATTACH, its kind would keep DuckDB from finding that
            # somebody in this process has the file open, whose locks `close` would take.
            self.connection = duckdb.connect(path, read_only, config)
            self.connection.execute(_SOUND)
        except duckdb.CatalogException as error:
            self._closed()
            raise duckdb.IOException(f"not a valid DuckDB database file: {error}") from error
        except BaseException:
            self._closed()
            raise

    def close(self) -> None:
        """Leave the file to others."""
        self.connection.close()
        self._closed()


def _duckdb(spill: str) -> duckdb.DuckDBPyConnection:
    """The DuckDB of this process. What does not fit into memory goes where the first call says."""
    with _OPENING:
        made = _DUCKDBS.get(os.getpid())
        if made is None:
            made = _DUCKDBS[os.getpid()] = duckdb.connect(config={"temp_directory": spill})
            made.execute(_SOUND)
        return made


# One open DuckDB file, handed on from thread to thread before it is closed.


_HELD: Final = 0.5
"""Seconds after which an open file is closed although others of us want it: so that other
processes get their turn."""


class File(Protocol):
    """An open DuckDB file."""

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection to it."""
        ...

    def close(self) -> None:
        """Leave it to others."""
        ...


class _Open(NamedTuple):
    file: File
    read_only: bool
    since: float


class Handover:
    """Gives threads one connection at a time, to a file that `connect(read_only)` opens.

    Opening and closing a file costs CPU, and its tables are read anew, so a thread that is
    done hands the open file on to one that waits, if that one can use it.
    """

    def __init__(self, connect: Callable[[bool], File]) -> None:
        self._connect = connect
        self._turn = threading.Lock()
        self._counting = threading.Lock()
        self._waiting = 0
        self._owner: int | None = None
        self._open: _Open | None = None

    @contextmanager
    def turn(self, *, read_only: bool) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection to oneself, temporary tables and all; closed, and so rolled back, after."""
        with self._queued():
            mine = self._taken(read_only)
            self._open = None
            try:
                with closing(mine.file.cursor()) as own:
                    yield own
                if self._waiting and time.monotonic() < mine.since + _HELD:
                    self._open = mine
            finally:
                if self._open is None:
                    mine.file.close()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody has a connection meanwhile: for one of other settings."""
        with self._queued():
            self._close()
            yield

    @contextmanager
    def _queued(self) -> Iterator[None]:
        if self._owner == threading.get_ident():
            raise RuntimeError("this thread has the store open already")
        self._count(1)
        try:
            self._turn.acquire()
        finally:
            self._count(-1)
        self._owner = threading.get_ident()
        try:
            yield
        finally:
            self._owner = None
            self._turn.release()

    def _count(self, one: int) -> None:
        with self._counting:
            self._waiting += one

    def _taken(self, read_only: bool) -> _Open:
        # A connection that may write serves readers as well.
        if self._open and (read_only or not self._open.read_only):
            return self._open
        self._close()
        return _Open(self._connect(read_only), read_only, time.monotonic())

    def _close(self) -> None:
        if self._open:
            self._open.file.close()
            self._open = None
