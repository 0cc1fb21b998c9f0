"""The folder of `claimflow receive`: what was accepted is on the disk, and stays readable.

Exports are appended to a segment, one line of OTLP JSON each. Many threads that append at once wait
for one write and one fsync. A full or old segment becomes a part, a Parquet file of the same lines,
and stays beside it for a while, so that who has listed the folder finds both: readers take equal
spans once. A segment that an earlier process left behind becomes a part likewise.
"""

import errno
import fcntl
import os
import re
import stat
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Final

from pydantic_core import from_json

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.files import open_private
from claimflow.flows.pipeline.limits import RECORD_BYTES
from claimflow.flows.traces.otlp import RECEIVED

SEGMENT_BYTES: Final = 32 << 20
"""Bytes of a segment after which the next one begins, and so the size of a part before it is
compressed."""

SEGMENT_SECONDS: Final = 3_600.0
"""Age of a segment at which it becomes a part even if it is small."""

WAITING_BYTES: Final = 64 << 20
"""Bytes of requests that may be in progress; more are told to come back later."""

_KEPT_SECONDS: Final = 600.0
"""How long a segment stays beside its part."""

_PREFIX: Final = "received-"
_SEGMENT: Final = ".jsonl"
_PART: Final = ".parquet"
_OWN: Final = re.compile(r"received-\d{8}T\d{6}\.\d{6}-\d{4,}")
"""The names that a receiver gives, without their endings; files of other names are the user's."""

_LOCK: Final = ".receiving"
_UNFINISHED: Final = ".unfinished"
_LOST: Final = "the folder or its lock was removed: start the receiver again"
_AGAIN: Final = "requests are taken again"
_PAUSE: Final = 1.0
_PAUSE_AFTER_ERROR: Final = 60.0
_BATCH_LINES: Final = 256


class BusyError(Exception):
    """There is no room for a further request now."""


class NotStoredError(Exception):
    """The disk did not take what was given; the message says why."""


class _Waiting:
    """A line that waits for its write; `failure` says why there was none."""

    def __init__(self, line: bytes) -> None:
        self.line = line
        self.failure: str | None = None
        self.done = threading.Event()


class ReceivedFolder:
    """Stores exports in a folder, of which one process at a time may be the receiver.

    Raises `InputError` where the folder cannot be used, or another receiver uses it. `keep` is the
    age at which parts are removed.
    """

    def __init__(self, folder: Path, *, keep: timedelta | None = None) -> None:
        self.folder = folder
        self._keep = keep
        self._lock = _locked(folder)
        self._changed = threading.Condition()
        self._queue: list[_Waiting] = []
        self._reserved = 0
        self._ended = False
        self._lost = False
        self._refuses = False
        self._told: set[Path] = set()
        self._segment: IO[bytes] | None = None
        self._size = 0
        self._begun = 0.0
        self._number = 0
        # What an earlier process left is finished; a segment of this one is when it ends.
        self._finished = self._own(_SEGMENT)
        for file in self._own(_PART + _UNFINISHED, "."):
            with self._told_once(file):
                file.unlink()
        self._writer = threading.Thread(target=self._write, name="received-segments")
        self._converter = threading.Thread(target=self._convert, name="received-parts")
        self._writer.start()
        self._converter.start()

    def reserve(self, size: int) -> None:
        """Take room for a request of `size` bytes; raises `BusyError` where there is none."""
        with self._changed:
            # One request alone always has room.
            if self._ended or (self._reserved and self._reserved + size > WAITING_BYTES):
                raise BusyError
            self._reserved += size

    def release(self, size: int) -> None:
        """Give room back that was reserved."""
        with self._changed:
            self._reserved -= size

    def append(self, line: bytes) -> None:
        """Return when `line` is on the disk; raises `NotStoredError` where it is not."""
        waiting = _Waiting(line)
        with self._changed:
            if self._ended:
                raise NotStoredError("the receiver ends")
            self._queue.append(waiting)
            self._changed.notify_all()
        waiting.done.wait()
        if waiting.failure is not None:
            raise NotStoredError(waiting.failure)

    def close(self) -> None:
        """Write what is waiting, and give the folder free."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._writer.join()
        self._converter.join()
        self._lock.close()

    def _write(self) -> None:
        """The thread that writes: all lines that wait, then one fsync for them."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._ended, _PAUSE)
                batch, self._queue = self._queue, []
                ended = self._ended
            failure = self._store([one.line for one in batch]) if batch else None
            if batch:
                self._tell_whether_it_refuses(failure)
            for one in batch:
                one.failure = failure
                one.done.set()
            old = time.monotonic() - self._begun > SEGMENT_SECONDS
            if self._segment and (self._size >= SEGMENT_BYTES or old or (ended and not batch)):
                self._end_segment()
            if ended and not batch:
                return

    def _store(self, lines: Sequence[bytes]) -> str | None:
        """Append lines to a segment; why they are not on the disk, or None."""
        content = b"".join(line + b"\n" for line in lines)
        try:
            # A segment that another process changed is given up for a new one, once.
            stored = self._is_ours() and (self._written(content) or self._written(content))
        except OSError as error:
            if not self._is_ours():
                return _LOST
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            return "the disk is full" if full else f"the disk fails ({error.strerror})"
        if not self._is_ours():
            return _LOST
        return None if stored else "another process changes the segments: end it"

    def _tell_whether_it_refuses(self, failure: str | None) -> None:
        """Tell the operator when requests begin to be refused, and when they are taken again."""
        if failure == _LOST or (failure is not None) == self._refuses:
            return
        self._refuses = failure is not None
        what = f"requests are refused until this is mended: {failure}" if failure else _AGAIN
        print(f"claimflow: {self.folder}: {what}", file=sys.stderr)

    def _written(self, content: bytes) -> bool:
        """Append to the segment; False where it was removed, truncated or written to meanwhile."""
        segment = self._segment
        if segment is None or not _stands(segment, self._size):
            self._end_segment()
            segment = self._begin_segment()
        try:
            _write_all(segment, content)
            os.fsync(segment.fileno())
        except OSError:
            # Half a line would spoil the next one. After a failed fsync it is unknown what is
            # on the disk, so that no further line goes into this segment.
            with suppress(OSError):
                segment.truncate(min(self._size, os.fstat(segment.fileno()).st_size))
            self._end_segment()
            raise
        self._size += len(content)
        return _stands(segment, self._size)

    def _is_ours(self) -> bool:
        """Whether the lock is in the folder; without it another receiver may write there."""
        if not self._lost and not _stands(self._lock):
            self._lost = True
            print(f"claimflow: {self.folder}: {_LOST}", file=sys.stderr)
        return not self._lost

    def _begin_segment(self) -> IO[bytes]:
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
        self._number += 1
        path = self.folder / f"{_PREFIX}{moment}-{self._number:04}{_SEGMENT}"
        # Unbuffered, so that an error comes with the write that caused it; at the end, so that a
        # segment that is truncated has no hole.
        self._segment = segment = open(  # noqa: SIM115
            path, "xb", buffering=0, opener=_open_to_append
        )
        self._size, self._begun = 0, time.monotonic()
        try:
            _sync_folder(self.folder)
        except OSError:
            # Its name may not survive.
            self._end_segment()
            raise
        return segment

    def _end_segment(self) -> None:
        segment, self._segment = self._segment, None
        if segment is not None:
            stands, path = _stands(segment), Path(segment.name)
            empty = os.fstat(segment.fileno()).st_size == 0
            with suppress(OSError):
                segment.close()
            if stands and empty:
                # Such as after a request that a full disk did not take.
                with suppress(OSError):
                    path.unlink()
            elif stands:
                self._finished.append(path)

    def _convert(self) -> None:
        """The thread that makes parts of segments, and removes what is not needed any more."""
        while True:
            pause = _PAUSE if self.tidy() else _PAUSE_AFTER_ERROR
            with self._changed:
                if self._changed.wait_for(lambda: self._ended, pause):
                    return

    def tidy(self) -> bool:
        """Make the parts of finished segments; remove segments with parts, and old parts.

        Returns whether all of that could be done. What cannot is told once, and tried again by
        the next call: the segments stay readable, so that nothing is lost.
        """
        if not self._is_ours():
            return True
        done = True
        for segment in [*self._finished]:
            with self._told_once(segment) as failed:
                if self._is_done(segment):
                    self._finished.remove(segment)
            done &= not failed
        if self._keep is not None:
            oldest = time.time() - self._keep.total_seconds()
            for part in self._own(_PART):
                with self._told_once(part) as failed:
                    if part.lstat().st_mtime < oldest:
                        segment = part.with_suffix(_SEGMENT)
                        if self._is_own(segment):
                            segment.unlink()
                        part.unlink()
                done &= not failed
        return done

    def _is_done(self, segment: Path) -> bool:
        """Make the part of a segment, and remove the segment later; whether no more is to do."""
        part = segment.with_suffix(_PART)
        if not self._is_own(segment) or (_exists(part) and not self._is_own(part)):
            return True
        if not _exists(part) and _make_part(segment, part):
            _sync_folder(self.folder)
        # Without a part it has at most the beginning of a line, which was not accepted.
        found = (part if _exists(part) else segment).lstat()
        done = not found.st_size or time.time() - found.st_mtime >= _KEPT_SECONDS
        if done:
            segment.unlink()
        return done

    @contextmanager
    def _told_once(self, path: Path) -> Iterator[list[Exception]]:
        """Tell an error about a file, once for each file, and go on; yields a list for it."""
        failed: list[Exception] = []
        try:
            yield failed
        except Exception as error:
            failed.append(error)
            self._tell(path, f"is left as it is for now ({error})")

    def _own(self, ending: str, start: str = "") -> list[Path]:
        """The files in the folder that receivers made, by their names, in order."""
        return sorted(
            path
            for path in self.folder.glob(f"{start}{_PREFIX}*{ending}")
            if _OWN.fullmatch(path.name.removeprefix(start).removesuffix(ending))
            and self._is_own(path)
        )

    def _is_own(self, path: Path) -> bool:
        """Whether a path is a regular file; anything else of that name is told once and left."""
        try:
            mode = path.lstat().st_mode
        except OSError:
            return False
        if stat.S_ISREG(mode):
            return True
        self._tell(path, "is no regular file, and so none of a receiver: it is left alone")
        return False

    def _tell(self, path: Path, what: str) -> None:
        if path not in self._told:
            self._told.add(path)
            print(f"claimflow: {path}: {what}", file=sys.stderr)


def is_waiting(folder: Path) -> bool:
    """Whether a folder is one of a receiver, and has nothing that was received."""
    return (folder / _LOCK).exists() and not any(folder.glob(f"{_PREFIX}*"))


def _exists(path: Path) -> bool:
    """Whether there is anything of a name, also a link that leads nowhere."""
    return os.path.lexists(path)


def _locked(folder: Path) -> IO[bytes]:
    """The lock of a folder, which is made where it is missing; the system frees it at any end."""
    path = folder / _LOCK
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _exists(path) and not stat.S_ISREG(path.lstat().st_mode):
            what = f"{_LOCK} is no regular file"
            raise InputError([Fault(str(folder), what, "remove it, or name another folder")])
        lock = open(path, "ab", opener=open_private)  # noqa: SIM115
    except OSError as error:
        what = f"cannot be used ({error.strerror})"
        raise InputError(
            [Fault(str(folder), what, "name a folder that you can write to")]
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        what, hint = "another receiver writes here", "end it, or name another folder"
        raise InputError([Fault(str(folder), what, hint)]) from None
    return lock


def _stands(file: IO[bytes], size: int | None = None) -> bool:
    """Whether an open file is still the one at its path, and has `size` bytes if that is given."""
    try:
        at_path = Path(file.name).stat()
    except OSError:
        return False
    found = os.fstat(file.fileno())
    return os.path.samestat(at_path, found) and size in (None, found.st_size)


def _open_to_append(path: str, flags: int) -> int:
    return open_private(path, flags | os.O_APPEND)


def _write_all(file: IO[bytes], content: bytes) -> None:
    """Write every byte: a disk that gets full takes some of them without an error."""
    view = memoryview(content)
    while view:
        view = view[file.write(view) :]


def _sync_folder(folder: Path) -> None:
    """Make sure that names of new files survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lines(segment: Path) -> Iterator[bytes]:
    """The whole lines of a segment; the last one may be cut off where a process was killed."""
    with open(segment, "rb", opener=open_private) as file:
        while (line := file.readline(RECORD_BYTES)).endswith(b"\n"):
            yield line[:-1]
    with suppress(ValueError):
        if isinstance(from_json(line), dict):
            yield line


def _make_part(segment: Path, part: Path) -> bool:
    """Write the lines of a segment as Parquet, whole or not at all; False where it has none."""
    import polars as pl

    frames = []
    batch: list[str] = []
    for line in _lines(segment):
        batch.append(line.decode(errors="replace"))
        if len(batch) == _BATCH_LINES:
            frames.append(pl.DataFrame({RECEIVED: batch}))
            batch = []
    if batch:
        frames.append(pl.DataFrame({RECEIVED: batch}))
    if not frames:
        return False
    unfinished = part.with_name(f".{part.name}{_UNFINISHED}")
    with open(unfinished, "xb", opener=open_private) as file:
        try:
            # Level 1 takes a third of the time of level 3 for a tenth more bytes.
            pl.concat(frames).write_parquet(file, compression="zstd", compression_level=1)
            file.flush()
            os.fsync(file.fileno())
            unfinished.rename(part)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
    return True
