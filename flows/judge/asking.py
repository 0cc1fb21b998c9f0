"""Runs that use one store at the same time share their requests: each is sent by one run only."""

import asyncio
import fcntl
import logging
import os
import random
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar
from uuid import UUID

from claimflow.flows.judge.ledger_writer import LedgerWriter, recover_journals
from claimflow.flows.judge.worker_pool import WorkerPool
from claimflow.flows.store.ledger import Ledger

_LOG: Final = logging.getLogger("claimflow")

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
"""Seconds between two looks at what another run is asking."""

_OFFSETS: Final = 2**62

Item = TypeVar("Item")


class _LockFile:
    """The open file of one store in this process, and the offsets that its sessions hold."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self.held: set[int] = set()
        self.sessions = 0


_REGISTRY: Final = threading.Lock()

_OPEN: Final[dict[tuple[int, Path], _LockFile]] = {}
"""By process and path. POSIX drops all locks of a process on a file as soon as the process closes
one descriptor of it, and does not keep apart two users in one process: so each process has the
file open once, and notes itself what its sessions hold. A forked process has no locks."""


class KeyLocks:
    """Locks on ledger keys, held by one session while it asks for their replies.

    A lock is a POSIX lock on one byte of a file beside the store, so that it ends with its process.
    The size of the file is a counter: it grows when a session begins, and when replies of a session
    have come into the store. On a file system without locks nothing is locked.
    """

    def __init__(self, store: Path) -> None:
        self._path = store.with_name(f"{store.name}.asking").resolve()
        self._file: _LockFile | None = None
        self._held: set[int] = set()
        self._own = 0

    def changes(self) -> int:
        """A counter that changes when another session begins or has stored replies."""
        try:
            size = os.fstat(self._file.descriptor) if self._file else self._path.stat()
        except OSError:
            return 0
        return size.st_size - self._own

    def take(self, keys: Iterable[str]) -> bool:
        """Lock all keys, or none of them where another session holds one."""
        # In one order for all: of two sessions that want the same keys one gets them.
        wanted = sorted({UUID(key).int % _OFFSETS for key in keys})
        taken: list[int] = []
        with _REGISTRY:
            file = self._file or self._open()
            if file is None:
                return True
            for offset in wanted:
                if offset in file.held or not _lock(file.descriptor, offset):
                    self._unlock(taken)
                    return False
                file.held.add(offset)
                self._held.add(offset)
                taken.append(offset)
        return True

    def release(self, keys: Iterable[str]) -> None:
        """Unlock keys whose replies are in the store, or never will be."""
        offsets = {UUID(key).int % _OFFSETS for key in keys} & self._held
        if offsets:
            # The counter first: who finds a key unlocked must see that there may be a reply.
            self._count()
            with _REGISTRY:
                self._unlock(offsets)

    def close(self) -> None:
        """Unlock everything."""
        with _REGISTRY:
            if self._file is None:
                return
            self._unlock(set(self._held))
            self._file.sessions -= 1
            if not self._file.sessions:
                del _OPEN[os.getpid(), self._path]
                os.close(self._file.descriptor)
            self._file = None

    def _open(self) -> _LockFile | None:
        """The lock file, opened or shared with other sessions; None where it cannot be opened."""
        place = os.getpid(), self._path
        try:
            file = _OPEN.get(place) or _LockFile(self._path)
        except OSError:
            return None
        _OPEN[place] = file
        file.sessions += 1
        self._file = file
        self._count()
        return file

    def _count(self) -> None:
        # On a full disk the run ends without this.
        with suppress(OSError):
            if self._file is not None:
                self._own += os.write(self._file.descriptor, b".")

    def _unlock(self, offsets: Collection[int]) -> None:
        for offset in offsets:
            self._held.discard(offset)
            if self._file is not None:
                self._file.held.discard(offset)
                with suppress(OSError):
                    fcntl.lockf(self._file.descriptor, fcntl.LOCK_UN, 1, offset)


def _lock(descriptor: int, offset: int) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, offset)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return True  # This file system has no locks.
    return True


class Asking:
    """Asks for what is missing in the ledger, and waits for what another run is asking.

    Used by the coroutines of one loop.
    """

    def __init__(self, ledger: Ledger, writer: LedgerWriter) -> None:
        self._ledger = ledger
        self._writer = writer
        self._locks = KeyLocks(ledger.store.path)
        self._other_runs_seen = False
        self._wait_reported = False

    def changes(self) -> int:
        """The counter of other runs' changes, which `ask` needs from before the ledger is read."""
        return self._locks.changes()

    async def ask(
        self,
        missing: Mapping[Item, str],
        pool: WorkerPool,
        *,
        changes: int,
        fresh: bool,
        batches: Callable[[Mapping[Item, str]], Iterator[Sequence[Item]]],
        ask: Callable[[Sequence[Item]], Awaitable[None]],
        recall: Callable[[Mapping[Item, str]], Awaitable[Collection[Item]]],
    ) -> None:
        """Call `ask` with each of `batches` of the items that are `missing` (item -> ledger key).

        A batch that another run is asking at the moment is put off. Its replies are in the ledger
        when that run has them: `recall` takes over those of some items, and returns the items that
        had one. What then is still missing, because that run failed or was killed, is asked. With
        `fresh` no reply of another run is used. `changes` is what `changes()` returned before the
        ledger was read. Raises what `WorkerPool.work_through` raises.
        """
        left = dict(missing)
        put_off: dict[Item, str] = {}
        reading = asyncio.Lock()

        async def read_ledger(*, after_wait: bool) -> None:
            nonlocal changes
            async with reading:
                found = self._locks.changes()
                self._other_runs_seen |= after_wait or found != changes
                recovered = await self._recover_journals()
                if after_wait or recovered or found != changes:
                    changes = found
                    for item in await recall(dict(left)):
                        del left[item]

        async def ask_batch(batch: Sequence[Item], *, waited: bool) -> None:
            keys = [missing[item] for item in batch]
            if not self._locks.take(keys) and not fresh:
                self._other_runs_seen = True
                put_off.update(zip(batch, keys, strict=True))
                return
            try:
                if not fresh and not left.keys().isdisjoint(batch):
                    await read_ledger(after_wait=waited)
                # What this run is asking itself must not be recalled as well.
                unanswered = [item for item in batch if left.pop(item, None) is not None]
                if unanswered:
                    await ask(unanswered)
            finally:
                self._writer.when_saved(lambda: self._locks.release(keys))

        todo, pause, waited = dict(missing), _FIRST_PAUSE, False
        while todo:
            before = len(todo)
            put_off.clear()
            await pool.work_through(batches(todo), partial(ask_batch, waited=waited))
            todo = {item: key for item, key in put_off.items() if item in left}
            pause = _FIRST_PAUSE if len(todo) < before else min(2 * pause, _LONGEST_PAUSE)
            if todo:
                self._report_wait(pause)
                await pool.wait_for(asyncio.sleep(random.uniform(pause / 2, pause)))
                waited = True

    def _report_wait(self, pause: float) -> None:
        """Log a warning, once, when the wait for another run has become long."""
        if pause == _LONGEST_PAUSE and not self._wait_reported:
            self._wait_reported = True
            what = "%s: waiting for answers that another run on this store is asking for"
            _LOG.warning(what, self._ledger.store.path)

    async def _recover_journals(self) -> int:
        """Save what a killed run left in a journal, where there is or was another run at all."""
        if not self._other_runs_seen:
            return 0
        return await asyncio.to_thread(recover_journals, self._ledger)

    def close(self) -> None:
        """Let other runs ask for everything that this one was asking for."""
        self._locks.close()
