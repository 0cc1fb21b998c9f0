"""Tables kept aside: in memory while they are small, then in files."""

import io
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from typing import IO, Final

import polars as pl

_SPILL_BYTES: Final = 32 << 20


class TableBuffer:
    """Tables in the order in which they were added: in memory up to 32 MiB, then in a file.

    The file has no name, so that it disappears with the process however that ends. Several
    threads may read at a time.
    """

    def __init__(self) -> None:
        # The finalizer closes it.
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(_SPILL_BYTES)  # noqa: SIM115
        self._sizes: list[int] = []
        self._lock = threading.Lock()
        weakref.finalize(self, self._file.close)

    def add(self, table: pl.DataFrame) -> None:
        """Add a table; not while others are read."""
        packed = io.BytesIO()
        table.write_ipc_stream(packed)
        self._sizes.append(self._file.write(packed.getbuffer()))

    def __len__(self) -> int:
        return len(self._sizes)

    def __iter__(self) -> Iterator[pl.DataFrame]:
        position = 0
        for size in self._sizes:
            with self._lock:
                self._file.seek(position)
                packed = self._file.read(size)
            yield pl.read_ipc_stream(packed)
            position += size


class TableQueue:
    """Tables that one thread adds and another one reads, once: beyond 32 MiB they are in files.

    The files have no names.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[IO[bytes], int]] = deque()
        self._in_memory = 0
        self._closed = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    def add(self, table: pl.DataFrame) -> None:
        """Add a table."""
        size = int(table.estimated_size())
        file: IO[bytes] = io.BytesIO()
        if self._in_memory + size > _SPILL_BYTES:
            # The reader closes it.
            file = tempfile.TemporaryFile()  # noqa: SIM115
            size = 0
        table.write_ipc_stream(file)
        with self._changed:
            self._waiting.append((file, size))
            self._in_memory += size
            self._changed.notify()

    def close(self, error: BaseException | None = None) -> None:
        """Say that no table follows; the reader raises `error` at the end."""
        with self._changed:
            if not self._closed:
                self._closed = True
                self._error = error
                self._changed.notify()

    def __len__(self) -> int:
        """The number of tables that were added and not yet read."""
        return len(self._waiting)

    def __iter__(self) -> Iterator[pl.DataFrame]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    if self._error is not None:
                        raise self._error
                    return
                file, size = self._waiting.popleft()
                self._in_memory -= size
            with closing(file):
                file.seek(0)
                yield pl.read_ipc_stream(file)
