"""Saves calls and replies: in a journal file at once, in the store within a second."""

import asyncio
import fcntl
import glob
import logging
import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from claimflow.flows.errors import StoreFullError
from claimflow.flows.judge.calls import (
    NO_ENTRY,
    Call,
    Entry,
    call_table,
    entry_line,
    read_entry,
)
from claimflow.flows.judge.shared_ledger import SharedLedger
from claimflow.flows.store.integrity import UNREADABLE
from claimflow.flows.store.ledger import Ledger
from claimflow.flows.store.store import Store

_LOG: Final = logging.getLogger("claimflow")


class Journal:
    """A file of entries beside the store. An entry is in it when `add` returns.

    A killed process loses no entry; a power failure may. The writer's process holds a lock on the
    file, so a file without a lock was left by a process that ended. Its name says whether the
    entries go to a shared ledger as well. Raises `StoreFullError` where the disk is full.
    """

    def __init__(self, store: Store, *, shared: bool = False) -> None:
        self._store = store
        kind = _SHARED if shared else _JOURNAL
        self._path = store.path.with_name(
            f"{store.path.name}.{time.time_ns()}-{secrets.token_hex(4)}{kind}"
        )
        unfinished = self._path.with_suffix(".new")
        with store_full_errors(store):
            made = os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            self._file: BinaryIO = os.fdopen(made, "wb", buffering=0)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            # Another process looks only for the final name, and finds the file locked.
            unfinished.rename(self._path)

    def add(self, entry: Entry) -> None:
        """Append an entry. Raises `StoreFullError` where the disk is full."""
        append_line(self._file, entry_line(entry), self._store)

    def discard(self) -> None:
        """Delete the file: its entries are in the store."""
        self._path.unlink(missing_ok=True)
        self._file.close()

    def keep(self) -> None:
        """Close the file and keep it for `recover_journals` of a later run."""
        self._file.close()


def append_line(file: BinaryIO, line: bytes, store: Store) -> None:
    """Append a whole line to an unbuffered file beside a store, or nothing.

    Raises `StoreFullError` where the disk is full.
    """
    written = 0
    with store_full_errors(store):
        try:
            # A disk that becomes full takes the beginning of a line, and says so next time.
            while written < len(line):
                written += file.write(line[written:])
        except OSError:
            # Half a line would spoil the next one.
            os.ftruncate(file.fileno(), os.fstat(file.fileno()).st_size - written)
            file.seek(0, os.SEEK_END)
            raise


def recover_journals(ledger: Ledger, shared: SharedLedger | None = None) -> int:
    """Save the entries of journals left by ended processes, also in `shared`; returns their number.

    A journal with lines that are no entries is kept under a name that ends in `.unreadable`, with
    a warning that tells how many they are; its other entries are saved. Without `shared` one that
    goes to a shared ledger is kept as well, under a name that ends in `.unsent`.
    """
    recovered = 0
    # Escaped, since the name of a store may contain a pattern. The oldest first, since a call
    # may close an earlier one.
    name = f"{glob.escape(ledger.store.path.name)}.*{_JOURNAL}"
    found = [
        path
        for pattern in ([name] if shared is None else [name, f"{name}{_UNSENT}"])
        for path in ledger.store.path.parent.glob(pattern)
    ]
    for path in sorted(path for path in found if path.is_file()):
        try:
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                recovered += _recover(ledger, shared, path, file)
        except (FileNotFoundError, BlockingIOError):
            continue
        except OSError as error:
            _LOG.warning("%s: calls of an earlier run cannot be read (%s)", path, error.strerror)
    return recovered


def _recover(ledger: Ledger, shared: SharedLedger | None, path: Path, file: BinaryIO) -> int:
    """Save the entries of a journal and remove it, or set it aside."""

    def save(entries: Sequence[Entry]) -> None:
        if shared is not None and path.name.endswith(_UNSENT):
            shared.send(entries)  # They are in the store; later ones may be, too.
        else:
            write_entries(ledger, entries, shared)

    saved = lost = 0
    entries: list[Entry] = []
    while line := file.readline(_LONGEST_LINE):
        try:
            entries.append(read_entry(line))
        except NO_ENTRY:
            # The last line of a killed process may not be whole.
            lost += line.endswith(b"\n") or not line.startswith(_BEGINNING[: len(line)])
        if len(entries) == _ENTRIES_AT_ONCE:
            save(entries)
            saved, entries = saved + len(entries), []
    save(entries)
    if shared is None and path.name.endswith(_SHARED):
        path.rename(f"{path}{_UNSENT}")
    elif lost:
        aside = path.rename(f"{path}{UNREADABLE}")
        what = "%s: %d of %d lines are no calls of this version of claimflow; they are not saved"
        _LOG.warning(what, aside, lost, lost + saved + len(entries))
    else:
        path.unlink(missing_ok=True)
    return saved + len(entries)


def write_entries(
    ledger: Ledger, entries: Sequence[Entry], shared: SharedLedger | None = None
) -> None:
    """Write entries into the store, in one transaction, and then send them to `shared`."""
    replies = {key: reply for entry in entries for key, reply in entry.replies.items()}
    closed = [entry.closes for entry in entries if entry.closes is not None]
    # A request to a shared ledger may have been repeated.
    calls = {entry.call.call_id: entry.call for entry in entries if entry.call is not None}
    call_of = {
        key: entry.call.call_id
        for entry in entries
        if entry.call is not None
        for key in entry.replies
    }
    ledger.remember(
        "judge", replies, calls=call_table([*calls.values()]), closed=closed, call_of=call_of
    )
    if shared is not None:
        shared.send(entries)


@contextmanager
def store_full_errors(store: Store) -> Iterator[None]:
    """Raise `StoreFullError` where a file beside the store cannot be written."""
    try:
        yield
    except OSError as error:
        hint = "make room and run again; what is on file is kept"
        what = f"a file beside it cannot be written ({error.strerror})"
        raise StoreFullError(f"{store.path}: {what}; {hint}") from error


_JOURNAL: Final = ".journal"
_SHARED: Final = f".shared{_JOURNAL}"
_UNSENT: Final = ".unsent"

_BEGINNING: Final = b'[["'
"""The first characters of every line."""

_LONGEST_LINE: Final = 2**28
"""Bytes of a line that are read; what is longer is no entry."""

_ENTRIES_AT_ONCE: Final = 1_000

_PERIOD: Final = 0.8
"""Seconds for which calls are collected before they are written in one transaction."""

_LATE_AFTER: Final = 3.0
"""Seconds after which a write counts as late: another process may hold the store."""


class LedgerWriter:
    """Saves calls for all endpoints of a run. Used by coroutines of one loop.

    A call is in a journal beside the store when `add` returns, and in the store within a second.
    Where runs on other machines share a ledger, it is in that, too, when it counts as saved. When
    one of them cannot be written, journals are kept for the next run to recover, and `saved` and
    `keep_up` raise the error.
    """

    def __init__(self, ledger: Ledger, *, redact: bool, shared: SharedLedger | None = None) -> None:
        self._ledger = ledger
        self._shared = shared
        self._redact = redact
        self._entries: list[Entry] = []
        self._journal: Journal | None = None
        self._oldest_at = 0.0
        self._added = self._written = 0
        self._write_began_at: float | None = None
        self._write_now = asyncio.Event()
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._error: BaseException | None = None
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    def add(self, call: Call, replies: Mapping[str, bytes], *, closes: str | None = None) -> None:
        """Save `call` and its replies by ledger key.

        `closes` is the id of an open call that is not to be resumed. Raises `StoreFullError`
        where the disk is full.
        """
        entry = Entry(call.redacted() if self._redact else call, replies, closes)
        if self._journal is None:
            self._journal = Journal(self._ledger.store, shared=self._shared is not None)
            self._oldest_at = time.monotonic()
        self._journal.add(entry)
        self._entries.append(entry)
        self._added += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write())

    async def saved(self) -> None:
        """Return when all that was added until now is in the store, and in the shared ledger.

        Raises the error of a write that failed; the calls are in a journal then.
        """
        mark = self._added
        self._write_now.set()
        async with self._changed:
            await self._changed.wait_for(lambda: self._written >= mark)
        if self._error is not None:
            raise self._error

    def when_saved(self, call: Callable[[], None]) -> None:
        """Call `call` as soon as all that was added until now is in the store."""
        self._waiting.append((self._added, call))
        self._call_waiting()

    def _call_waiting(self) -> None:
        while self._error is None and self._waiting and self._waiting[0][0] <= self._written:
            self._waiting.popleft()[1]()

    async def keep_up(self) -> None:
        """Wait for a late write, so that few calls are sent while the store is unavailable."""
        while (
            self._write_began_at is not None
            and time.monotonic() - self._write_began_at > _LATE_AFTER
        ):
            async with self._changed:
                await self._changed.wait()
        if self._error is not None:
            raise self._error

    async def _write(self) -> None:
        while self._journal is not None:
            await self._wait_for_more()
            entries, self._entries = self._entries, []
            journal, self._journal = self._journal, None
            self._write_began_at = time.monotonic()
            await asyncio.to_thread(self._save, entries, journal)
            self._write_began_at = None
            self._written += len(entries)
            self._call_waiting()
            async with self._changed:
                self._changed.notify_all()

    def _save(self, entries: list[Entry], journal: Journal) -> None:
        if self._error is None:
            try:
                write_entries(self._ledger, entries, self._shared)
            except BaseException as error:
                # Also a panic of Polars, or whatever waits for this write would wait for ever.
                self._error = error
        if self._error is None:
            journal.discard()
        else:
            journal.keep()

    async def _wait_for_more(self) -> None:
        left = self._oldest_at + _PERIOD - time.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(left, 0)):
                await self._write_now.wait()
        self._write_now.clear()
