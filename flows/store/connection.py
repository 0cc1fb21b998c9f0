"""An open DuckDB file, and its connections, lent to one thread at a time."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import duckdb

from claimflow.flows.files import path_exists, resolved

MAX_SHARED_SECONDS: Final = 0.5
"""After this long an open file is closed although other threads want it, so that other
processes get their turn."""

_CORRECT_SUMS: Final = "SET disabled_optimizers = 'compressed_materialization'"
"""With this optimizer DuckDB 2.0 may return a sum that is wrong by 256: it takes a sum for no
larger than its parts where rows are selected by a subquery, as in the views of the latest run,
and the result is sorted."""

ATTACHED_AS: Final = "opened"
"""The name of an open file in SQL. DuckDB would take the name of the file, which may be that of a
schema, as in `audit.duckdb`: then `audit.runs` would be ambiguous."""

BLOCK_SIZE: Final = 65_536
"""Bytes of a block of a new file, a quarter of DuckDB's own choice. Each column of a table fills
whole blocks: what a run adds for a few changed samples would take more for them than for its
rows."""

_ROW_GROUP: Final = 16_384
"""Rows of a row group of a table, a seventh of DuckDB's own choice. While a file is closed DuckDB
reads the last row group of a table and compresses it again with the rows that were added: of
samples with their texts it took 1 GB and half of the time of writing them."""

_LOCK: Final = threading.Lock()

_FREE_ENGINES: Final[dict[int, list[duckdb.DuckDBPyConnection]]] = {}
"""The in-memory DuckDBs of each process id that have no file attached. Each open file has one for
itself: a statement that looks at every attached file, as `duckdb_tables()` and each error about an
unknown name do, would keep the file of another thread open after its DETACH. A forked process
needs its own: the threads of its parent's do not exist in it."""

_OPEN_PATHS: Final[set[Path]] = set()
"""Files that this process has open. POSIX drops all locks of a process on a file when the process
closes the file once, and then two DuckDBs would write into it without seeing each other."""


def log_path(store: Path) -> Path:
    """DuckDB's log beside a store, which holds committed rows that are not in the file yet."""
    return store.with_name(f"{store.name}.wal")


class OpenFile:
    """A DuckDB file, open in this process until `close`; raises as `duckdb.connect` does.

    The file is attached to an in-memory DuckDB. Without `config` later files of the process use
    that DuckDB again, so it takes 2 ms of CPU. With `config` the file gets a DuckDB of its own,
    whose settings may be changed, which takes 20 ms.
    """

    def __init__(
        self, path: Path, *, read_only: bool, config: Mapping[str, Any] | None = None
    ) -> None:
        self.read_only = read_only
        self.opened_at = time.monotonic()
        self._path = resolved(path)
        self._log = log_path(path)
        new = not read_only and not path_exists(path)
        self._own_engine = config is not None
        with _LOCK:
            if self._path in _OPEN_PATHS:
                raise duckdb.IOException("Could not set lock on file: this process has it open")
            _OPEN_PATHS.add(self._path)
        try:
            spill_folder = f"{path}.tmp"
            self._duckdb = _engine(spill_folder) if config is None else _new(spill_folder, config)
            # Without TYPE DuckDB would attach a file of samples, going by its suffix.
            options = "READ_ONLY" if read_only else f"ROW_GROUP_SIZE {_ROW_GROUP}"
            options = f"TYPE duckdb, {options}"
            if new:
                options += f", BLOCK_SIZE {BLOCK_SIZE}"
            try:
                with closing(self._duckdb.cursor()) as connection:
                    attach = f"ATTACH $path AS {ATTACHED_AS} ({options})"
                    connection.execute(attach, {"path": str(path)})
            except duckdb.IOException:
                self._release()
                raise
            if new:
                # A store holds texts and replies. Who may read it besides is for its owner to say.
                path.chmod(0o600)
        except BaseException:
            _OPEN_PATHS.discard(self._path)
            raise

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection in which names refer to the tables of the file."""
        if not self.read_only:
            self._make_log()
        connection = self._duckdb.cursor()
        connection.execute(f"USE {ATTACHED_AS}")
        return connection

    def _make_log(self) -> None:
        """Make DuckDB's log with the mode of the file: DuckDB itself would go by the umask.

        The first commit writes the log, and any commit may remove it. So each connection, which is
        for one transaction, needs this again. No other process has the file open meanwhile.
        """
        # Where the disk is full DuckDB says so.
        with suppress(OSError):
            mode = self._path.stat().st_mode & 0o666
            os.close(os.open(self._log, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))

    def close(self) -> None:
        """Close the file, so that other processes may open it.

        Committed rows are in the file or in DuckDB's log beside it by then. Where the disk has no
        room to move the log into the file, the next process that opens the file does so.
        """
        if not self.read_only:
            with suppress(OSError):
                if not self._log.stat().st_size:
                    self._log.unlink()
        try:
            with closing(self._duckdb.cursor()) as connection:
                connection.execute(f"DETACH {ATTACHED_AS}")
            self._release()
        except duckdb.Error:
            # This DuckDB may be unusable; the next file gets another one.
            self._duckdb.close()
        del self._duckdb
        _OPEN_PATHS.discard(self._path)

    def _release(self) -> None:
        if self._own_engine:
            self._duckdb.close()
        else:
            _free_engines().append(self._duckdb)


def _engine(spill_folder: str) -> duckdb.DuckDBPyConnection:
    """An in-memory DuckDB without a file; a new one spills to `spill_folder`."""
    try:
        return _free_engines().pop()
    except IndexError:
        return _new(spill_folder, {})


def _new(spill_folder: str, config: Mapping[str, Any]) -> duckdb.DuckDBPyConnection:
    engine = duckdb.connect(config={"temp_directory": spill_folder, **config})
    engine.execute(_CORRECT_SUMS)
    return engine


def _free_engines() -> list[duckdb.DuckDBPyConnection]:
    return _FREE_ENGINES.setdefault(os.getpid(), [])


Open = Callable[[bool, Mapping[str, Any] | None], OpenFile]
"""Opens the file: `open_file(read_only, config)`, as `OpenFile` takes them."""


class SharedFile:
    """Lends connections to a file, one thread at a time; `open_file` opens it where needed.

    Opening and closing a file costs CPU, and DuckDB reads its tables again each time, so a
    thread that is done passes the open file on to a thread that waits and can use it.
    """

    def __init__(self, open_file: Open) -> None:
        self._open_file = open_file
        self._turn = threading.Lock()
        self._counting = threading.Lock()
        self._waiting = 0
        self._owner: int | None = None
        self._passed_on: OpenFile | None = None

    @contextmanager
    def connection(
        self, *, read_only: bool, config: Mapping[str, Any] | None = None
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        """Lend a connection; what is not committed is rolled back, and temporary tables go.

        With `config` the file is opened for this one use, with these settings of DuckDB.
        """
        if self._owner == threading.get_ident():
            raise RuntimeError("this thread has the store open already")
        with self._counting:
            self._waiting += 1
        try:
            self._turn.acquire()
        finally:
            with self._counting:
                self._waiting -= 1
        self._owner = threading.get_ident()
        try:
            file, self._passed_on = self._passed_on, None
            # A file that is open for writing serves readers as well.
            if file and (config is not None or (file.read_only and not read_only)):
                file.close()
                file = None
            file = file or self._open_file(read_only, config)
            try:
                with closing(file.cursor()) as connection:
                    yield connection
                fresh = time.monotonic() < file.opened_at + MAX_SHARED_SECONDS
                if self._waiting and fresh and config is None:
                    self._passed_on = file
            finally:
                if self._passed_on is None:
                    file.close()
        finally:
            self._owner = None
            self._turn.release()
