"""`claimflow ledger`: one store's calls and replies, shared over HTTP by runs on several machines.

Which run has claimed which keys is in a file beside the store, so that it survives a kill. An entry
is in a journal beside the store when a run is told that it is saved, and in the store within a
second.
"""

import asyncio
import errno
import fcntl
import ipaddress
import json
import logging
import os
import secrets
import signal
import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import islice
from typing import Final

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from claimflow.flows import __version__
from claimflow.flows.errors import Fault, InputError, StoreError
from claimflow.flows.files import open_private
from claimflow.flows.judge.calls import NO_ENTRY, Call, Entry, check_id, entry_line, read_entry
from claimflow.flows.judge.ledger_writer import (
    LedgerWriter,
    append_line,
    recover_journals,
    store_full_errors,
)
from claimflow.flows.judge.shared_ledger import (
    BODY_BYTES,
    KEY_BYTES,
    KEYS_AT_ONCE,
    LINES_AT_ONCE,
    PROTOCOL,
    TOKEN,
    TOO_LONG,
    is_header,
    split_lines,
)
from claimflow.flows.store.ledger import Ledger
from claimflow.flows.store.read_copy import read_copy_path
from claimflow.flows.store.store import Store, migrate

ABANDONED_SECONDS: Final = 60.0
"""A run that says nothing for so long has claimed nothing any more."""

_HEAD_SECONDS: Final = 20.0
_BODY_SECONDS: Final = 30.0
_KEYS_BYTES: Final = 1 << 20
"""Most bytes of a request for keys."""

_BODIES_BYTES: Final = 2 * BODY_BYTES
"""Most bytes of the requests that are received at the same time."""

_CONNECTIONS: Final = 512
_MOST_CLAIMS: Final = 2_000_000
_LONGEST_RUN: Final = 64
_CALLS_AT_FIRST: Final = 250
"""Calls that are read from the store before it is known how long they are."""

_MANY_OBJECTS: Final = 100_000
"""Brackets of a request for keys, which has two."""

_FEW_LINES: Final = 100_000
"""Keys in the file of claims that are never too many."""


class _RefusedError(Exception):
    """A request is refused, with this status and message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Claims:
    """Which run has claimed which keys: in memory, and in a file that a later process reads.

    A line of the file is `[run, keys]`; keys of no run (`null`) are claimed no more. The file is
    locked: one process has the claims of a store. Raises `InputError` where another one has them,
    and `StoreFullError` where the file cannot be written.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._run_of: dict[str, str] = {}
        self._keys_of: dict[str, set[str]] = defaultdict(set)
        self._seen: dict[str, float] = {}
        path = store.path.with_name(f"{store.path.name}.claims")
        try:
            made = open_private(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            self._file = os.fdopen(made, "r+b", buffering=0)
        except OSError as error:
            what = f"cannot be opened ({error.strerror})"
            hint = "let it be a file of yours, or name another store"
            raise InputError([Fault(str(path), what, hint)]) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._read()
            self._rewrite()
        except BlockingIOError as error:
            self._file.close()
            hint = "let runs use that one, or stop it first"
            raise InputError([Fault(str(store.path), "another ledger shares it", hint)]) from error
        except BaseException:
            self._file.close()
            raise

    def take(self, run: str, keys: Sequence[str]) -> tuple[list[str], list[str], bool]:
        """Claim keys for a run: (those that it has now, those that another run has).

        The third is whether the run was known: else it may have lost what it had claimed.
        """
        self._forget_abandoned()
        known = run in self._seen
        ours = [key for key in keys if self._run_of.get(key, run) == run]
        new = [key for key in ours if key not in self._run_of]
        if len(self._run_of) + len(new) > _MOST_CLAIMS:
            raise _RefusedError(503, "too many keys are claimed")
        self._note(run, new)
        self._seen[run] = time.monotonic()
        return ours, [key for key in keys if self._run_of[key] != run], known

    def renew(self, run: str) -> bool:
        """Note that a run is alive; whether it is known."""
        self._forget_abandoned()
        if run not in self._seen:
            return False
        self._seen[run] = time.monotonic()
        return True

    def release(self, keys: Sequence[str], run: str | None = None) -> None:
        """End claims on keys; with `run` only those of that run."""
        claimed = [key for key in keys if key in self._run_of]
        self._note(None, [key for key in claimed if run in (None, self._run_of[key])])

    def end(self, run: str) -> None:
        """Forget a run with all that it claimed."""
        self.release([*self._keys_of.get(run, ())], run)
        self._keys_of.pop(run, None)
        self._seen.pop(run, None)

    def close(self) -> None:
        """Let another process have the claims."""
        self._file.close()

    def _note(self, run: str | None, keys: Sequence[str]) -> None:
        """Claim keys for a run, or end their claims, in the file first."""
        if not keys:
            return
        self._write(run, keys)
        self._change(run, keys)
        lines = os.fstat(self._file.fileno()).st_size // KEY_BYTES
        if lines > _FEW_LINES + 4 * len(self._run_of) or not self._run_of:
            self._rewrite()

    def _change(self, run: str | None, keys: Sequence[str]) -> None:
        for key in keys:
            before = self._run_of.pop(key, None)
            if before is not None:
                self._keys_of[before].discard(key)
            if run is not None:
                self._run_of[key] = run
                self._keys_of[run].add(key)

    def _write(self, run: str | None, keys: Sequence[str]) -> None:
        append_line(self._file, json.dumps([run, keys]).encode() + b"\n", self._store)

    def _read(self) -> None:
        for line in self._file.read().splitlines(keepends=True):
            # A killed process, or a full disk, leaves half a line.
            with suppress(*NO_ENTRY):
                run, keys = json.loads(line)
                self._change(run, list(map(str, keys)))
        self._seen = dict.fromkeys(self._keys_of, time.monotonic())

    def _rewrite(self) -> None:
        """Write the file anew with what is claimed now."""
        # Not in another file, since a process that waits for the lock has this one open. If this
        # process is killed in between, some questions are asked twice.
        with store_full_errors(self._store):
            self._file.truncate(0)
        for run, keys in self._keys_of.items():
            if keys:
                self._write(run, [*keys])

    def _forget_abandoned(self) -> None:
        oldest = time.monotonic() - ABANDONED_SECONDS
        for run in [run for run, seen in self._seen.items() if seen < oldest]:
            self.end(run)


class _Connection(H11Protocol):
    """A connection that is closed where no whole head of a request comes in time.

    uvicorn waits for ever, and silent connections would take the place of runs.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._late = self.loop.call_later(_HEAD_SECONDS, transport.close)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE or self.timeout_keep_alive_task is not None:
            self._late.cancel()
        elif self._late.cancelled():
            self._late = self.loop.call_later(_HEAD_SECONDS, self.transport.close)


class LedgerServer:
    """Serves the ledger of a store, which may be new, at `host` and `port` (0: any free one).

    `token` is what every request must bear; without one only this machine may be listened to.
    Raises `InputError` where that cannot be.
    """

    def __init__(self, ledger: Ledger, *, host: str, port: int, token: str | None) -> None:
        if not host:
            raise InputError([Fault("--host", "is empty", "name an address of this machine")])
        if not token and not _is_loopback(host):
            what = "other machines could write to the ledger"
            hint = f"set {TOKEN} to a secret, or name 127.0.0.1"
            raise InputError([Fault(f"--host {host}", what, hint)])
        if token and not is_header(token):
            what = "holds a sign that a header of HTTP cannot have"
            raise InputError([Fault(TOKEN, what, "use letters and digits")])
        self.counts: Counter[str] = Counter()
        self._ledger = ledger
        self._token = token
        self._receiving = 0
        self._writer: LedgerWriter | None = None
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._socket = _bound(host, port)
        self._port = int(self._socket.getsockname()[1])
        # 0.0.0.0 and :: are all addresses of this machine, and none that a run could use.
        name = socket.gethostname() if host in ("0.0.0.0", "::") else host  # noqa: S104
        self.url = f"http://{f'[{name}]' if ':' in name else name}:{self._port}"
        try:
            migrate(ledger.store)
            with ledger.store.writing():
                pass  # A store that is not there is made.
            # It would be out of date from now on.
            read_copy_path(ledger.store.path).unlink(missing_ok=True)
            self._claims = _Claims(ledger.store)
        except BaseException:
            self._socket.close()
            raise
        # What a client did wrong it is told; here are only errors.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._application(),
                http=_Connection,
                log_config=None,
                access_log=False,
                limit_concurrency=_CONNECTIONS,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=10,
            )
        )

    def serve(self) -> None:
        """Serve until `stop`, or in the main thread until SIGINT or SIGTERM, which end it in order.

        A second signal does not wait for requests.

        Raises `StoreError`, or what else went wrong, where calls can be saved no more.
        """
        # uvicorn would handle signals in its own way in the main thread.
        thread = threading.Thread(target=self._run, name="ledger server")
        try:
            recover_journals(self._ledger)
            if threading.current_thread() is threading.main_thread():
                # Without `KeyboardInterrupt`: a second one would escape while one is handled.
                for number in (signal.SIGINT, signal.SIGTERM):
                    signal.signal(number, self._end_by_signal)
            thread.start()
            self._ended.wait()
        finally:
            self._claims.close()
            self._socket.close()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except BaseException as error:
            self._end_with(error)
        finally:
            self._ended.set()

    def stop(self) -> None:
        """End `serve`; any thread may call this."""
        self._server.should_exit = True

    def _end_by_signal(self, *_: object) -> None:
        if self._server.should_exit:
            # uvicorn would print a trace of each request that this breaks off.
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
            self._server.force_exit = True
        self.stop()

    def _application(self) -> Starlette:
        def answered(
            handle: Callable[[bytes], Awaitable[Response]],
        ) -> Callable[[Request], Awaitable[Response]]:
            async def answer(request: Request) -> Response:
                try:
                    self._check(request)
                    async with self._room_for(request) as length:
                        return await handle(await _body(request, length))
                except _RefusedError as error:
                    return JSONResponse({"error": str(error)}, error.status)
                except StoreError as error:
                    self._end_with(error)
                    return JSONResponse({"error": "the ledger cannot be written"}, 503)

            return answer

        async def say(_: bytes) -> Response:
            said = {"service": "claimflow ledger", "protocol": PROTOCOL, "version": __version__}
            return JSONResponse(said)

        handlers = {
            "recall": self._recall,
            "take": self._take,
            "save": self._save,
            "release": self._release,
            "renew": self._renew,
            "end": self._end,
        }
        routes = [Route("/", answered(say), methods=["GET"])]
        routes += [
            Route(f"/{name}", answered(handle), methods=["POST"])
            for name, handle in handlers.items()
        ]

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            self._writer = LedgerWriter(self._ledger, redact=False)
            yield
            with suppress(StoreError):
                await self._needed(self._writer.saved())

        return Starlette(routes=routes, lifespan=lifespan)

    def _check(self, request: Request) -> None:
        given = request.headers.get("authorization", "")
        if self._token and not secrets.compare_digest(
            given.encode(), f"Bearer {self._token}".encode()
        ):
            raise _RefusedError(401, f"the token is missing or wrong: set {TOKEN}")
        # Runs send no origin, and every page in a browser does. A page may also call this machine
        # by another name; a token keeps it out.
        named, _, port = request.headers.get("host", "").rpartition(":")
        here = _is_loopback(named.lower().strip("[]")) and port == str(self._port)
        if "origin" in request.headers or not (self._token or here):
            raise _RefusedError(403, "the request comes from elsewhere")

    @asynccontextmanager
    async def _room_for(self, request: Request) -> AsyncIterator[int]:
        """The length of a request, unless it is too long or there is no room at the moment."""
        given = request.headers.get("content-length", "0" if request.method == "GET" else "")
        if not (given.isascii() and given.isdigit()):
            raise _RefusedError(411, "the request does not say how long it is")
        length = int(given[:20])
        most = BODY_BYTES if request.url.path == "/save" else _KEYS_BYTES
        if length > most:
            raise _RefusedError(TOO_LONG, f"the request is longer than {most:,} bytes")
        if self._receiving + length > _BODIES_BYTES:
            raise _RefusedError(503, "too many long requests at the same time")
        self._receiving += length
        try:
            yield length
        finally:
            self._receiving -= length

    def _end_with(self, error: BaseException) -> None:
        """End, and raise this error from `serve`: runs try again, or end after a minute."""
        self._error = self._error or error
        self.stop()

    async def _needed(self, written: Awaitable[None]) -> None:
        """Wait for something without which this ledger cannot go on. Raises `StoreError`."""
        try:
            await written
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._end_with(error)
            raise StoreError(str(error)) from error

    async def _recall(self, body: bytes) -> Response:
        _, keys = _asked(body)
        return _lines(await self._entries(keys), b"")

    async def _take(self, body: bytes) -> Response:
        run, keys = _asked(body, of_run=True)
        # Claimed first: what another run saves meanwhile is found below.
        ours, elsewhere, known = self._claims.take(run, keys)
        try:
            entries = await self._entries(ours)
            first = json.dumps({"known": known, "elsewhere": elsewhere}).encode()
            answer = _lines(entries, first + b"\n")
        except BaseException:
            self._claims.release(ours, run)
            raise
        self._claims.release([key for entry in entries for key in entry.replies], run)
        return answer

    async def _save(self, body: bytes) -> Response:
        if body.count(b"\n") > LINES_AT_ONCE:
            raise _RefusedError(TOO_LONG, f"the request has more than {LINES_AT_ONCE:,} lines")
        try:
            entries = await asyncio.to_thread(lambda: list(map(read_entry, split_lines(body))))
        except NO_ENTRY as error:
            raise _RefusedError(422, f"a line is no entry: {error}") from error
        for entry in entries:
            if entry.call is None:
                raise _RefusedError(422, "a line has no call")
        await self._needed(self._saving.keep_up())
        for entry in entries:
            if entry.call is not None:
                self._saving.add(entry.call, entry.replies, closes=entry.closes)
                self._claims.release([*entry.replies])
                self.counts["calls"] += 1
        return Response()

    async def _release(self, body: bytes) -> Response:
        run, keys = _asked(body, of_run=True)
        self._claims.release(keys, run)
        return Response()

    async def _renew(self, body: bytes) -> Response:
        run, _ = _asked(body, of_run=True)
        return JSONResponse({"known": self._claims.renew(run)})

    async def _end(self, body: bytes) -> Response:
        run, _ = _asked(body, of_run=True)
        self._claims.end(run)
        return Response()

    @property
    def _saving(self) -> LedgerWriter:
        if self._writer is None:
            raise RuntimeError("the server has not begun")
        return self._writer

    async def _entries(self, keys: Sequence[str]) -> list[Entry]:
        """What the ledger has for these keys: each call once, with its replies."""
        if not keys:
            return []
        await self._needed(self._saving.saved())
        entries = await asyncio.to_thread(_stored_entries, self._ledger, keys)
        self.counts["replies"] += sum(len(entry.replies) for entry in entries)
        return entries


def _stored_entries(ledger: Ledger, keys: Sequence[str]) -> list[Entry]:
    """Each call that replied to one of `keys`, with these replies."""
    replies_of: dict[str, dict[str, bytes]] = defaultdict(dict)
    for key, reply in ledger.recall(keys).items():
        replies_of[_call_id(reply)][key] = reply
    call_of: dict[str, Call] = {}
    named, at_once, size = iter([call for call in replies_of if call]), _CALLS_AT_FIRST, 0
    while some := list(islice(named, at_once)):
        calls = ledger.calls(some, Call._fields)
        call_of |= {row[0]: Call(*row) for row in calls.iter_rows()}
        # Their texts may be long: all of them could fill the memory.
        size += int(calls.estimated_size())
        if size > BODY_BYTES:
            raise _too_long()
        at_once = max(_CALLS_AT_FIRST, BODY_BYTES * len(call_of) // max(size, 1))
    return [Entry(call_of.get(call), replies) for call, replies in replies_of.items()]


def _too_long() -> _RefusedError:
    return _RefusedError(TOO_LONG, "the answer would be longer than 64 MB: ask for fewer keys")


def _call_id(reply: bytes) -> str:
    """The call that a reply names; "" for vectors, which name none."""
    try:
        call = json.loads(reply)["call"]
        check_id(call)
    except (*NO_ENTRY, LookupError):
        return ""
    return str(call)


async def _body(request: Request, length: int) -> bytes:
    received = bytearray()
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for block in request.stream():
                received += block
                if len(received) > length:
                    raise _RefusedError(400, "the request is longer than it says")
    except TimeoutError as error:
        raise _RefusedError(408, "the request took longer than 30 seconds") from error
    return bytes(received)


def _asked(body: bytes, *, of_run: bool = False) -> tuple[str, list[str]]:
    """The run and the keys of a request, checked."""
    if body.count(b"[") + body.count(b"{") > _MANY_OBJECTS:
        raise _RefusedError(422, "no request of a run")
    try:
        said = json.loads(body)
        run, keys = said.get("run", ""), said.get("keys", [])
        if not isinstance(keys, list) or len(keys) > KEYS_AT_ONCE:
            raise ValueError(f"more than {KEYS_AT_ONCE} keys")
        for key in keys:
            check_id(key)
        if not isinstance(run, str) or len(run) > _LONGEST_RUN or (of_run and not run):
            raise ValueError("no id of a run")
    except NO_ENTRY as error:
        raise _RefusedError(422, f"no request of a run: {error}") from error
    return run, keys


def _lines(entries: Sequence[Entry], first: bytes) -> Response:
    """An answer of lines. One that would be too long is refused: fewer keys are to be asked for."""
    lines = [first, *map(entry_line, entries)]
    if sum(map(len, lines)) > BODY_BYTES:
        raise _too_long()
    return Response(b"".join(lines), media_type="application/jsonl")


def _bound(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises `InputError` where it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Of TCP by name: asyncio sends small answers of others 40 ms late.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(128)
    except (OSError, UnicodeError) as error:
        bound.close()
        why = getattr(error, "strerror", None) or "no address"
        if getattr(error, "errno", None) in (errno.EADDRINUSE, errno.EACCES):
            place, hint = f"--port {port}", "name another, or 0 for a free one"
        else:
            place, hint = f"--host {host}", "name an address of this machine"
        raise InputError([Fault(place, f"cannot be used ({why})", hint)]) from error
    return bound


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
