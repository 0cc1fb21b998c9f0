"""A store that another process keeps locked."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Final

_HOLD: Final = """
import sys, time, duckdb
while True:
    try:
        connection = duckdb.connect(sys.argv[1])
        break
    except duckdb.IOException:
        time.sleep(0.001)
print("held", flush=True)
sys.stdin.read()
"""


class LockedStore:
    """Waits for the lock of a store, and holds it in another process while it is entered.

    `since` and `until` are the times of the monotonic clock between which it was held.
    """

    def __init__(self, store: Path) -> None:
        self._store = store

    def __enter__(self) -> "LockedStore":
        self._process = subprocess.Popen(
            [sys.executable, "-c", _HOLD, str(self._store)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "held\n"
        self.since = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.until = time.monotonic()
        self._process.communicate()
