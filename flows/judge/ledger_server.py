"""`claimflow ledger`: one store's calls and replies, shared over HTTP by runs on several machines.

It keeps in memory which run has claimed which keys. An entry is in a journal beside the store when
a run is told that it is saved, and in the store within a second.
"""

import asyncio
import ipaddress
import json
import secrets
import socket
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import polars as pl
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from claimflow.flows import __version__
from claimflow.flows.errors import Fault, InputError, StoreError
from claimflow.flows.judge.calls import NO_ENTRY, Call, Entry, check_id, entry_line, read_entry
from claimflow.flows.judge.ledger_writer import LedgerWriter, recover_journals
from claimflow.flows.judge.shared_ledger import (
    BODY_BYTES,
    KEYS_AT_ONCE,
    PROTOCOL,
    TOKEN,
    is_header,
)
from claimflow.flows.store.ledger import Ledger
from claimflow.flows.store.store import migrate

ABANDONED_SECONDS: Final = 60.0
"""A run that says nothing for so long has claimed nothing any more."""

_BODY_SECONDS: Final = 30.0
_CONNECTIONS: Final = 512
_MOST_CLAIMS: Final = 2_000_000
_LONGEST_RUN: Final = 64
_MANY_OBJECTS: Final = 100_000
"""Brackets of a request for keys, which has two."""


class _RefusedError(Exception):
    """A request is refused, with this status and message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Claims:
    """Which run has claimed which keys."""

    def __init__(self) -> None:
        self._run_of: dict[str, str] = {}
        self._keys_of: dict[str, set[str]] = defaultdict(set)
        self._seen: dict[str, float] = {}

    def renew(self, run: str) -> bool:
        """Note that a run is alive; whether it was known."""
        known = run in self._seen
        self._seen[run] = time.monotonic()
        return known

    def take(self, run: str, keys: Sequence[str]) -> tuple[list[str], list[str]]:
        """Claim keys for a run: (those that it has now, those that another run has)."""
        self._forget_abandoned()
        self.renew(run)
        ours: list[str] = []
        elsewhere: list[str] = []
        for key in keys:
            (ours if self._run_of.get(key, run) == run else elsewhere).append(key)
        if len(self._run_of) + len(ours) > _MOST_CLAIMS:
            raise _RefusedError(503, "too many keys are claimed")
        self._run_of |= dict.fromkeys(ours, run)
        self._keys_of[run].update(ours)
        return ours, elsewhere

    def release(self, keys: Sequence[str], run: str | None = None) -> None:
        """End claims on keys; with `run` only those of that run."""
        for key in keys:
            of = self._run_of.get(key)
            if of is not None and run in (None, of):
                del self._run_of[key]
                self._keys_of[of].discard(key)

    def end(self, run: str) -> None:
        """Forget a run with all that it claimed."""
        self.release([*self._keys_of.pop(run, ())], run)
        self._keys_of.pop(run, None)
        self._seen.pop(run, None)

    def _forget_abandoned(self) -> None:
        oldest = time.monotonic() - ABANDONED_SECONDS
        for run in [run for run, seen in self._seen.items() if seen < oldest]:
            self.end(run)


class LedgerServer:
    """Serves the ledger of a store, which may be new, at `host` and `port` (0: any free one).

    `token` is what every request must bear; without one only this machine may be listened to.
    Raises `InputError` where that cannot be.
    """

    def __init__(self, ledger: Ledger, *, host: str, port: int, token: str | None) -> None:
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
        self._claims = _Claims()
        self._writer: LedgerWriter | None = None
        self._error: Exception | None = None
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # Of TCP by name: asyncio sends small answers of others 40 ms late.
        self._socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
            self._socket.listen(128)
        except OSError as error:
            self._socket.close()
            what, hint = f"cannot be used ({error.strerror})", "name another, or 0 for a free one"
            raise InputError([Fault(f"--port {port}", what, hint)]) from error
        bound = self._socket.getsockname()[1]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{bound}"
        names = (host, "127.0.0.1", "localhost", "[::1]")
        # A page in a browser may call this machine by another name; a token keeps it out.
        self._hosts = None if token else {f"{name.lower()}:{bound}" for name in names}
        migrate(ledger.store)
        with ledger.store.writing():
            pass  # A store that is not there is made.
        recover_journals(ledger)
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._application(),
                log_config=None,
                access_log=False,
                limit_concurrency=_CONNECTIONS,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=10,
            )
        )

    def serve(self) -> None:
        """Serve until Ctrl-C, SIGTERM or `stop`. Raises `StoreError` where nothing can be saved."""
        self._server.run(sockets=[self._socket])
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """End `serve`; any thread may call this."""
        self._server.should_exit = True

    def _application(self) -> Starlette:
        def answered(
            handle: Callable[[bytes], Awaitable[Response]],
        ) -> Callable[[Request], Awaitable[Response]]:
            async def answer(request: Request) -> Response:
                try:
                    self._check(request)
                    return await handle(await _body(request))
                except _RefusedError as error:
                    return JSONResponse({"error": str(error)}, error.status)
                except StoreError as error:
                    # Runs try again; whoever watches the ledger is told why it has ended.
                    self._error = error
                    self.stop()
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
            try:
                await self._writer.saved()
            except StoreError as error:
                self._error = error

        return Starlette(routes=routes, lifespan=lifespan)

    def _check(self, request: Request) -> None:
        given = request.headers.get("authorization", "")
        if self._token and not secrets.compare_digest(
            given.encode(), f"Bearer {self._token}".encode()
        ):
            raise _RefusedError(401, f"the token is missing or wrong: set {TOKEN}")
        host = request.headers.get("host", "").lower()
        # Runs send no origin, and every page in a browser does.
        if (self._hosts is not None and host not in self._hosts) or "origin" in request.headers:
            raise _RefusedError(403, "the request comes from elsewhere")

    async def _recall(self, body: bytes) -> Response:
        _, keys = _asked(body)
        return _lines(await self._entries(keys))

    async def _take(self, body: bytes) -> Response:
        run, keys = _asked(body, of_run=True)
        # Claimed first: what another run saves meanwhile is found below.
        ours, elsewhere = self._claims.take(run, keys)
        try:
            entries = await self._entries(ours)
        except BaseException:
            self._claims.release(ours, run)
            raise
        self._claims.release([key for entry in entries for key in entry.replies], run)
        return _lines(entries, json.dumps({"elsewhere": elsewhere}).encode() + b"\n")

    async def _save(self, body: bytes) -> Response:
        try:
            entries = await asyncio.to_thread(lambda: list(map(read_entry, body.splitlines())))
        except NO_ENTRY as error:
            raise _RefusedError(422, f"a line is no entry: {error}") from error
        for entry in entries:
            if entry.call is None:
                raise _RefusedError(422, "a line has no call")
        await self._saving.keep_up()
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
        await self._saving.saved()
        entries = await asyncio.to_thread(_stored_entries, self._ledger, keys)
        self.counts["replies"] += sum(len(entry.replies) for entry in entries)
        return entries


def _stored_entries(ledger: Ledger, keys: Sequence[str]) -> list[Entry]:
    replies_of: dict[str, dict[str, bytes]] = defaultdict(dict)
    for key, reply in ledger.recall(keys).items():
        replies_of[_call_id(reply)][key] = reply
    named = [call for call in replies_of if call]
    calls = ledger.calls(named, Call._fields) if named else pl.DataFrame()
    call_of = {row[0]: Call(*row) for row in calls.iter_rows()}
    return [Entry(call_of.get(call), replies) for call, replies in replies_of.items()]


def _call_id(reply: bytes) -> str:
    """The call that a reply names; "" for vectors, which name none."""
    try:
        call = json.loads(reply)["call"]
        check_id(call)
    except (*NO_ENTRY, LookupError):
        return ""
    return str(call)


async def _body(request: Request) -> bytes:
    received = bytearray()
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for block in request.stream():
                received += block
                if len(received) > BODY_BYTES:
                    raise _RefusedError(413, "the request is longer than 64 MB")
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


def _lines(entries: Sequence[Entry], first: bytes = b"") -> Response:
    return Response(first + b"".join(map(entry_line, entries)), media_type="application/jsonl")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
