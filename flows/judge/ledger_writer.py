"""Calls and replies written to a journal at once and to the store soon after."""

import asyncio
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
from typing import BinaryIO, Final, NamedTuple

from claimflow.flows.errors import StoreFullError
from claimflow.flows.judge.calls import Call, call_table
from claimflow.flows.store.ledger import Ledger
from claimflow.flows.store.store import Store

# Calls as they arrive, written down beside the store until they are in it.


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


def recover_journals(ledger: Ledger) -> int:
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
            write_entries(ledger, entries)
            path.unlink(missing_ok=True)
            taken += len(entries)
    return taken


def write_entries(ledger: Ledger, entries: Sequence[Entry]) -> None:
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
        hint = "make room and run again; what is on file is kept"
        what = f"a file beside it cannot be written ({error.strerror})"
        raise StoreFullError(f"{store.path}: {what}; {hint}") from error


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


# Puts calls and what they brought on file: at once in a journal, soon after in the store.


_PERIOD: Final = 0.8
"""Seconds that a call waits for others to be written into the store with it."""

_LATE: Final = 3.0
"""Seconds that a writing may take before nothing more is asked: somebody holds the store."""


class LedgerWriter:
    """Saves calls for all endpoints of a run. Used by coroutines of one loop.

    What is added is in a journal beside the store before anybody uses it, and within a
    second in the store. When the store cannot be written any more the journals stay, for
    the next run to take in, and every later use raises what went wrong.
    """

    def __init__(self, ledger: Ledger, *, redact: bool) -> None:
        self._ledger = ledger
        self._redact = redact
        self._entries: list[Entry] = []
        self._journal: Journal | None = None
        self._oldest_at = 0.0
        self._added = self._written = 0
        self._began_at: float | None = None
        self._hurry = asyncio.Event()
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._error: Exception | None = None

    def add(self, call: Call, replies: Mapping[str, bytes], *, closes: str | None = None) -> None:
        """Write down `call` and the replies that it brought, by their keys.

        `closes` is the id of an open call that is not to be taken up again. Raises
        `StoreFullError` where there is no room.
        """
        entry = Entry(call.redacted() if self._redact else call, replies, closes)
        if self._journal is None:
            self._journal = Journal(self._ledger.store)
            self._oldest_at = time.monotonic()
        self._journal.add(entry)
        self._entries.append(entry)
        self._added += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write())

    async def saved(self) -> None:
        """Return when all that was added until now is in the store.

        Raises what kept it from getting there; it is in a journal then.
        """
        mark = self._added
        self._hurry.set()
        async with self._changed:
            await self._changed.wait_for(lambda: self._written >= mark)
        if self._error is not None:
            raise self._error

    async def keep_up(self) -> None:
        """Return at once, or when a writing that takes long is done: the store may be lost."""
        while self._began_at is not None and time.monotonic() - self._began_at > _LATE:
            async with self._changed:
                await self._changed.wait()
        if self._error is not None:
            raise self._error

    async def _write(self) -> None:
        while self._journal is not None:
            await self._pause()
            entries, self._entries = self._entries, []
            journal, self._journal = self._journal, None
            self._began_at = time.monotonic()
            await asyncio.to_thread(self._put, entries, journal)
            self._began_at = None
            self._written += len(entries)
            async with self._changed:
                self._changed.notify_all()

    def _put(self, entries: list[Entry], journal: Journal) -> None:
        if self._error is None:
            try:
                write_entries(self._ledger, entries)
            except Exception as error:
                self._error = error
        if self._error is None:
            journal.discard()
        else:
            journal.leave()

    async def _pause(self) -> None:
        left = self._oldest_at + _PERIOD - time.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(left, 0)):
                await self._hurry.wait()
        self._hurry.clear()
