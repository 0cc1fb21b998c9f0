"""Locks on ledger keys, by which runs that use one store at the same time find each other."""

import fcntl
import os
import secrets
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from struct import Struct
from typing import Final
from uuid import UUID

from claimflow.flows.files import resolved

_RECORD: Final = Struct("<cQ16s")
"""A line of the log: what happened, in which process, and to which key."""

_BEGUN: Final = b"b"
_TAKEN: Final = b"t"
_RELEASED: Final = b"r"

_NO_KEY: Final = bytes(16)

_GUARD: Final = 2**62
"""The byte whose lock a process holds while it reads and writes the log. Bytes below are locked by
the processes that have the log open, one by each."""


class _Log:
    """The log of one store in this process: what its sessions hold, and what others hold.

    Used under `_REGISTRY`.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self.held: set[bytes] = set()
        self.sessions = 0
        self.changes = 0
        self._process = secrets.randbelow(_GUARD)
        self._elsewhere: dict[bytes, int] = {}
        self._others: set[int] = set()
        self._read_bytes = 0
        with self._guarded():
            self.read()
            self._empty_if_alone()
            _lock(self._descriptor, self._process)
            self._write(_BEGUN, [_NO_KEY])

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Let no other process read or write the log meanwhile, where the file system can."""
        with suppress(OSError):
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX, 1, _GUARD)
        try:
            yield
        finally:
            _unlock(self._descriptor, _GUARD)

    def take(self, keys: Collection[bytes]) -> bool:
        """Note that a session here takes all of the keys, or none where another holds one."""
        if not self.held.isdisjoint(keys):
            return False
        with self._guarded():
            self.read()
            for key in keys:
                other = self._elsewhere.get(key)
                if other is not None and self._is_alive(other):
                    return False
            self._write(_TAKEN, keys)
        self.held.update(keys)
        return True

    def note(self, what: bytes, keys: Collection[bytes]) -> None:
        """Note that a session begins, or releases keys. Both are changes for other sessions."""
        with self._guarded():
            self.read()
            self._write(what, keys)
        self.held.difference_update(keys)
        self.changes += len(keys)

    def close(self) -> None:
        """End all locks of this process."""
        with self._guarded():
            self.read()
            self._empty_if_alone()
        os.close(self._descriptor)

    def read(self) -> None:
        """Read what other processes have noted since the last time: each line is read once."""
        start, added = self._read_bytes, b""
        with suppress(OSError):
            size = os.fstat(self._descriptor).st_size
            if size == start:
                return
            # A run that is alone empties the log.
            start = start if start < size else 0
            added = os.pread(self._descriptor, size - start, start)
        whole = len(added) - len(added) % _RECORD.size
        for what, process, key in _RECORD.iter_unpack(added[:whole]):
            # Bytes that no session wrote may name any place.
            if process == self._process or process >= _GUARD:
                continue
            if what == _TAKEN:
                self._elsewhere[key] = process
            elif what == _RELEASED and self._elsewhere.get(key) == process:
                del self._elsewhere[key]
            if what in (_BEGUN, _TAKEN):
                self._others.add(process)
            self.changes += what in (_BEGUN, _RELEASED)
        self._read_bytes = start + whole

    def _write(self, what: bytes, keys: Iterable[bytes]) -> None:
        """Add lines after the last whole one. On a full disk the run goes on without them."""
        lines = b"".join(_RECORD.pack(what, self._process, key) for key in keys)
        with suppress(OSError):
            self._read_bytes += os.pwrite(self._descriptor, lines, self._read_bytes)
            self._read_bytes -= self._read_bytes % _RECORD.size

    def _is_alive(self, process: int) -> bool:
        """Whether a process still has the log open. What one held that has not is forgotten."""
        if process not in self._others:
            return False
        if not _lock(self._descriptor, process):
            return True
        _unlock(self._descriptor, process)
        self._others.discard(process)
        self._elsewhere = {key: of for key, of in self._elsewhere.items() if of != process}
        return False

    def _empty_if_alone(self) -> None:
        """Empty the log where no other process has it open."""
        if not any(self._is_alive(one) for one in list(self._others)):
            with suppress(OSError):
                os.ftruncate(self._descriptor, 0)
            self._read_bytes = 0


_REGISTRY: Final = threading.Lock()

_OPEN: Final[dict[tuple[int, Path], _Log]] = {}
"""By process and path. POSIX drops all locks of a process on a file as soon as the process closes
one descriptor of it, and does not keep apart two users in one process: so each process has the
file open once, and notes itself what its sessions hold. A forked process has no locks."""


class KeyLocks:
    """Locks on ledger keys, held by one session while it asks for their replies.

    They are lines of a log beside the store. Each process locks one byte of the log, by POSIX, so
    that its locks end with it. A lock of POSIX for each key would take quadratic time: at each call
    the kernel looks through all locks of a file. On a file system without locks nothing is locked.
    """

    def __init__(self, store: Path) -> None:
        self._path = resolved(store.with_name(f"{store.name}.asking"))
        self._log: _Log | None = None
        self._held: set[bytes] = set()
        self._own = 0

    def changes(self) -> int:
        """A counter that changes when another session begins or has stored replies."""
        with _REGISTRY:
            log = self._opened()
            if log is None:
                return 0
            log.read()
            return log.changes - self._own

    def take(self, keys: Iterable[str]) -> bool:
        """Lock all keys, or none of them where another session holds one."""
        wanted = {UUID(key).bytes for key in keys}
        with _REGISTRY:
            log = self._opened()
            if log is None:
                return True
            # A session of its own may ask for a key again.
            if not log.take(wanted):
                return False
            self._held |= wanted
        return True

    def release(self, keys: Iterable[str]) -> None:
        """Unlock keys whose replies are in the store, or never will be."""
        released = {UUID(key).bytes for key in keys} & self._held
        if released:
            with _REGISTRY:
                self._note(_RELEASED, released)
            self._held -= released

    def close(self) -> None:
        """Unlock everything."""
        with _REGISTRY:
            log = self._log
            if log is None:
                return
            if self._held:
                self._note(_RELEASED, self._held)
                self._held = set()
            log.sessions -= 1
            if not log.sessions:
                del _OPEN[os.getpid(), self._path]
                log.close()
            self._log = None

    def _opened(self) -> _Log | None:
        """The log, opened or shared with other sessions; None where it cannot be opened."""
        if self._log is None:
            place = os.getpid(), self._path
            self._log = _OPEN.get(place)
            if self._log is None:
                try:
                    self._log = _OPEN[place] = _Log(self._path)
                except OSError:
                    return None
            else:
                self._note(_BEGUN, [_NO_KEY])
            self._log.sessions += 1
        return self._log

    def _note(self, what: bytes, keys: Collection[bytes]) -> None:
        if self._log is not None:
            self._log.note(what, keys)
            self._own += len(keys)


def _lock(descriptor: int, place: int) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return True  # This file system has no locks.
    return True


def _unlock(descriptor: int, place: int) -> None:
    with suppress(OSError):
        fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, place)
