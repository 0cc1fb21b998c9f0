"""Puts calls and what they brought on file: at once in a journal, soon after in the store."""

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from claimflow.flows.engine.llm.calls import Call
from claimflow.flows.engine.llm.journal import Entry, Journal, file_away
from claimflow.flows.engine.storage.ledger import Ledger

_PERIOD: Final = 0.8
"""Seconds that a call waits for others to be written into the store with it."""

_LATE: Final = 3.0
"""Seconds that a writing may take before nothing more is asked: somebody holds the store."""


class Saver:
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
                file_away(self._ledger, entries)
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
