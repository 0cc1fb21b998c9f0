"""One open DuckDB file, handed on from thread to thread before it is closed."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Final, NamedTuple, Protocol

import duckdb

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
