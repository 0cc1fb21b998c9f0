"""Workers that exchange tables with this process by a folder that all of them see.

The samples of a run are written there once, in parts. A message to a worker names the rows that
it reads of them, and the answer names the files that it has written. A range whose worker was
lost is made again under other names.
"""

import os
import secrets
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import polars as pl

from claimflow.flows.errors import Fault, InputError, WorkersError, on_one_line
from claimflow.flows.object_storage import is_remote
from claimflow.flows.runner.workers import Engine, Made
from claimflow.flows.runner.workers.sub_folder import (
    FolderError,
    Rows,
    new_sub_folder,
    open_sub_folder,
    remove_left_behind,
    write_rows,
)

_HERE: Final = "the process that runs the pipeline"


class SharedTables:
    """Tables in a sub-folder, each written when it is first asked for.

    Several threads may go through them at a time; each gets the `Rows` of all tables in order.
    """

    def __init__(self, write: Callable[[pl.DataFrame], Rows], tables: Iterable[pl.DataFrame]):
        self._write = write
        self._tables = iter(tables)
        self._written: list[Rows] = []
        self._error: Exception | None = None
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[Rows]:
        for number in count():
            with self._lock:
                if number == len(self._written) and not self._add_next():
                    return
            yield self._written[number]

    def _add_next(self) -> bool:
        """Write the next table; False where there is none."""
        if self._error is not None:
            # Else the other threads would go on behind the table that is missing.
            raise self._error
        try:
            table = next(self._tables, None)
            if table is not None:
                self._written.append(self._write(table))
        except Exception as error:
            self._error = error
            raise
        return table is not None


class FolderWorkers:
    """The workers of an engine, with tables as files in a sub-folder of `folder`, path or address.

    `place` is the setting of the folder, for messages. Raises `InputError` where this process or
    one of the workers that run now cannot use the folder.
    """

    def __init__(self, engine: Engine, folder: str, place: str) -> None:
        self.shards = engine.shards
        self._engine = engine
        self._path = new_sub_folder(folder)
        if not is_remote(folder) and not Path(folder).is_dir():
            hint = "make it, or mount the disk that it is on"
            raise InputError([Fault(place, f"there is no folder {on_one_line(folder)}", hint)])
        try:
            self._sub_folder = open_sub_folder(self._path)
            try:
                self._sub_folder.begin()
                self._check_workers(place)
                remove_left_behind(folder)
            except BaseException:
                self._sub_folder.end()
                raise
        except FolderError as error:
            hint = "name a folder or an address that this process can read and write"
            raise InputError([Fault(place, f"{_HERE} {error}", hint)]) from None

    def worth(self, chunks: int) -> bool:
        """As `Workers.worth`."""
        return self._engine.worth(chunks)

    def each(
        self, work: Callable[..., Made], chunks: Iterable[tuple[Any, ...]], *, what: str
    ) -> Iterator[Made]:
        """As `Workers.each`.

        Tables in the mappings among the arguments, and those in a list that is returned, travel as
        files; in place of tables the chunks may have `Rows`. Raises `WorkersError` where a file
        cannot be read or written.
        """
        given: deque[list[Rows]] = deque()

        def sent() -> Iterator[tuple[Any, ...]]:
            for arguments in chunks:
                given.append([])
                yield self._path, work, self._written(arguments, given[-1])

        with closing(self._engine.each(_work_in_folder, sent(), what=what)) as results:
            for result in results:
                files = given.popleft()
                with _named(_HERE):
                    made = _map(result, Rows, lambda rows: rows.read())
                    _map(result, Rows, files.append)
                    self._sub_folder.remove(rows.name for rows in files)
                yield made

    def shared(self, tables: Iterable[pl.DataFrame]) -> SharedTables:
        """As `Workers.shared`: each table is written when it is first asked for."""
        return SharedTables(lambda table: self._write(table, "samples"), tables)

    def close(self) -> None:
        """Disconnect the workers, and remove the sub-folder."""
        try:
            self._engine.close()
        finally:
            self._sub_folder.end()

    def _check_workers(self, place: str) -> None:
        """Raise `FolderError` where this process cannot use the folder, as `__init__` for others.

        Each worker copies a file whose content it could not know.
        """
        secret = pl.DataFrame({"token": [secrets.token_hex(16)]})
        probe = write_rows(self._path, secret, "probe")
        probe.read()
        for worker, found in sorted(self._engine.on_each(_copied, probe).items()):
            if problem := _problem(found):
                hint = "let every worker read and write the folder, by the same path"
                raise InputError([Fault(place, f"the worker {worker} {problem}", hint)])

    def _written(self, arguments: tuple[Any, ...], files: list[Rows]) -> tuple[Any, ...]:
        """The arguments with tables as `Rows`, which are added to `files`."""

        def write(table: pl.DataFrame) -> Rows:
            files.append(self._write(table, "given"))
            return files[-1]

        return tuple(_map(one, pl.DataFrame, write) for one in arguments)

    def _write(self, table: pl.DataFrame, kind: str) -> Rows:
        with _named(_HERE):
            return write_rows(self._path, table, kind)


def _work_in_folder(folder: str, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Run on a worker: call a function on tables of a sub-folder, and leave there what it makes."""
    with _named(f"a worker on {socket.gethostname()} (process {os.getpid()})"):
        given = [_map(one, Rows, lambda rows: rows.read()) for one in arguments]
        made = work(*given)
        return _map(made, pl.DataFrame, lambda table: write_rows(folder, table, "made"))


def _copied(given: Rows) -> Rows:
    """Run on a worker: read a file, and write its rows to another one."""
    return write_rows(given.folder, given.read(), "probe")


def _problem(copied: Rows | Exception) -> str:
    """What is wrong with the folder of a worker, by what `_copied` returned there; or ""."""
    if isinstance(copied, FolderError):
        return str(copied)
    if isinstance(copied, Exception):
        return f"cannot use the folder ({type(copied).__name__}: {copied})"
    try:
        copied.read()
    except FolderError:
        return f"wrote {copied.folder}/{copied.name}, which is not here: it has another folder"
    return ""


def _map(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """A mapping or list with each value of a kind changed; any other value as it is."""
    if isinstance(value, dict):
        return {key: change(one) if isinstance(one, kind) else one for key, one in value.items()}
    if isinstance(value, list):
        return [change(one) if isinstance(one, kind) else one for one in value]
    return value


@contextmanager
def _named(process: str) -> Iterator[None]:
    try:
        yield
    except FolderError as error:
        raise WorkersError(f"{process} {error}") from None
