"""A DuckDB file that this process has open: attached to the DuckDB of the process, or alone.

By its name alone DuckDB would attach a file of samples as a database, too: its kind is said.
A DuckDB of its own takes 20 ms of CPU to open, a file attached to one that is there takes 2.
"""

import itertools
import os
import threading
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import duckdb

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
