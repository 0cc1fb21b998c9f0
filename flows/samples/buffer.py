"""Tables kept aside: in memory while they are small, then in a file."""

import io
import tempfile
import threading
import weakref
from collections.abc import Iterator
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
