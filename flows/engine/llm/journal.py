"""Calls as they arrive, written down beside the store until they are in it."""

import base64
import fcntl
import glob
import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from decimal import Decimal
from typing import BinaryIO, NamedTuple

from claimflow.flows.engine.errors import StoreFullError
from claimflow.flows.engine.llm.calls import Call, call_table
from claimflow.flows.engine.storage.ledger import Ledger
from claimflow.flows.engine.storage.store import Store


class Entry(NamedTuple):
    """A call, the replies that it brought by their keys, and the open call that it closes."""

    call: Call
    replies: Mapping[str, bytes]
    closes: str | None


class Journal:
    """A file of entries, each in it as soon as `add` returns: a kill loses none.

    A cut of the power may. The file is locked as long as its writer lives, which tells it
    from one that was left behind. Raises `StoreFullError` where there is no room for it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._path = store.path.with_name(
            f"{store.path.name}.{time.time_ns()}-{secrets.token_hex(4)}.journal"
        )
        unfinished = self._path.with_suffix(".new")
        with _room_for(store):
            self._file: BinaryIO = unfinished.open("xb", buffering=0)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            # Nobody takes it for left behind before it is locked.
            unfinished.rename(self._path)

    def add(self, entry: Entry) -> None:
        """Write an entry down. Raises `StoreFullError` where there is no room for it."""
        with _room_for(self._store):
            self._file.write(_line(entry))

    def discard(self) -> None:
        """Delete the file: its entries are in the store."""
        self._path.unlink(missing_ok=True)
        self._file.close()

    def leave(self) -> None:
        """Leave the file to whoever takes it in."""
        self._file.close()


def take_in_journals(ledger: Ledger) -> int:
    """Write what was left behind beside the store into it; returns how many calls."""
    taken = 0
    # The name of a store may hold what would be a pattern. The oldest first: a call may
    # close an earlier one.
    found = ledger.store.path.parent.glob(f"{glob.escape(ledger.store.path.name)}.*.journal")
    for path in sorted(found):
        with suppress(FileNotFoundError), path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            entries = list(_entries(file.read()))
            file_away(ledger, entries)
            path.unlink(missing_ok=True)
            taken += len(entries)
    return taken


def file_away(ledger: Ledger, entries: Sequence[Entry]) -> None:
    """Write entries into the store, in one transaction."""
    replies = {key: reply for entry in entries for key, reply in entry.replies.items()}
    closed = [entry.closes for entry in entries if entry.closes is not None]
    calls = call_table([entry.call for entry in entries])
    ledger.remember("judge", replies, calls=calls, closed=closed)


@contextmanager
def _room_for(store: Store) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        right = "make room and run again; what is on file is kept"
        what = f"a file beside it cannot be written ({error.strerror})"
        raise StoreFullError(f"{store.path}: {what}; {right}") from error


def _line(entry: Entry) -> bytes:
    replies = {key: base64.b64encode(reply).decode() for key, reply in entry.replies.items()}
    said = json.dumps([entry.call, replies, entry.closes], default=str, ensure_ascii=False)
    return said.encode("utf-8", "replace") + b"\n"


def _entries(lines: bytes) -> Iterator[Entry]:
    """The entries of a file; the last line may lack its end."""
    for line in lines.splitlines():
        with suppress(ValueError):
            call, replies, closes = json.loads(line)
            said = Call(*call)
            cost = None if said.cost is None else Decimal(said.cost)
            yield Entry(
                said._replace(asked_at=datetime.fromisoformat(str(said.asked_at)), cost=cost),
                {key: base64.b64decode(reply) for key, reply in replies.items()},
                closes,
            )
