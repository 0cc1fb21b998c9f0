"""Tables put aside, to be read again in the same order."""

import io
import tempfile
import threading
import weakref
from collections.abc import Iterator
from typing import IO, Final

import polars as pl

_IN_MEMORY: Final = 32 << 20


class Shelf:
    """Tables in order: in memory while they are small, then in a temporary file.

    The file has no name, so that it is gone with the process however that ends. Several
    threads may read at a time.
    """

    def __init__(self) -> None:
        self._file = _scratch()
        self._sizes: list[int] = []
        self._turn = threading.Lock()
        weakref.finalize(self, self._file.close)

    def add(self, table: pl.DataFrame) -> None:
        """Put `table` behind all others."""
        packed = io.BytesIO()
        table.write_ipc_stream(packed)
        self._sizes.append(self._file.write(packed.getbuffer()))

    def __iter__(self) -> Iterator[pl.DataFrame]:
        position = 0
        for size in self._sizes:
            with self._turn:
                self._file.seek(position)
                packed = self._file.read(size)
            yield pl.read_ipc_stream(packed)
            position += size


def _scratch() -> IO[bytes]:
    return tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)
