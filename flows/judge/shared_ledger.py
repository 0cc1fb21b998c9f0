"""The ledger that runs on several machines share: the client of `claimflow ledger`.

A run claims the keys that it is about to ask for. What is in the ledger comes back, and so do the
keys that another run has claimed. What a run is answered is sent before it counts as saved.
"""

import asyncio
import json
import logging
import math
import os
import secrets
import threading
import time
from collections.abc import Collection, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

import httpx

from claimflow.flows.errors import Fault, InputError, JudgeError, StoppedError, on_one_line
from claimflow.flows.judge.calls import NO_ENTRY, Entry, entry_line, read_entry
from claimflow.flows.judge.event_loop import Loop
from claimflow.flows.store.ledger import Ledger
from claimflow.flows.store.store import Store

TOKEN: Final = "CLAIMFLOW_LEDGER_TOKEN"  # noqa: S105 - the name of a variable

PROTOCOL: Final = 1
"""The version of what is said over HTTP."""

BODY_BYTES: Final = 64 << 20
"""Most bytes of a request, and of an answer. A longer entry is not shared."""

KEYS_AT_ONCE: Final = 10_000
"""Most keys of a request, for which the ledger goes through all keys that it has."""

KEY_BYTES: Final = 40
"""Bytes of a key in a list of JSON."""

LINES_AT_ONCE: Final = 10_000
"""Most entries of a request."""

TOO_LONG: Final = 413
"""The status of a request that is too long, or whose answer would be."""

RENEW_SECONDS: Final = 15.0
"""A run says so often that it is alive."""

_SURE_SECONDS: Final = 45.0
"""After so long without an answer another run may soon have what this one claimed."""

_BYTES_AT_ONCE: Final = 1 << 20
"""Bytes of entries in a request: a slow connection sends them in time."""

_SMALL_BYTES: Final = 64 << 10
_ANSWER_SECONDS: Final = 10.0
_TIMEOUT: Final = httpx.Timeout(60.0, connect=10.0)
_PATIENCE: Final = 60.0
"""Seconds after which a ledger that does not answer ends the run."""

_QUIET_SECONDS: Final = 3.0
"""Seconds after which the user is told that the ledger does not answer."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_CLOSE_SECONDS: Final = 3.0
_LOOK_SECONDS: Final = 0.2
"""Seconds between two looks at whether the run is stopped."""

_SHOWN: Final = 200

_REFUSED: Final = (
    httpx.codes.REQUEST_TIMEOUT,
    TOO_LONG,
    httpx.codes.UNPROCESSABLE_ENTITY,
)
"""Statuses of a request that may be accepted in parts."""

_NO_ANSWER: Final = (httpx.HTTPError, TimeoutError, OverflowError)

_Result = TypeVar("_Result")

_LOG: Final = logging.getLogger("claimflow")


def ledger_token() -> str:
    """The token in the environment, without blanks at its ends, which files of secrets have."""
    return os.environ.get(TOKEN, "").strip()


def split_lines(body: bytes) -> list[bytes]:
    """The lines of a body, each of which ends with `\\n`."""
    return body.removesuffix(b"\n").split(b"\n") if body else []


def is_header(token: str) -> bool:
    """Whether a token can be sent in a header."""
    return bool(token) and token.isascii() and token.isprintable()


class Taken(NamedTuple):
    """What became of keys: the entries that the ledger has, and those that another run claimed."""

    entries: list[Entry]
    elsewhere: frozenset[str]


class _RefusedError(JudgeError):
    """The ledger refuses a request, with this status and these words."""

    def __init__(self, message: str, status: int, said: str) -> None:
        super().__init__(message)
        self.status = status
        self.said = said


class SharedLedger:
    """The ledger at an address, for one run, which ends soon after `stop` is set.

    Its methods wait for the answer, and any thread may call them. They raise `JudgeError` where
    the ledger refuses, or does not answer for a minute, and `StoppedError`.
    """

    def __init__(self, url: str, stop: threading.Event) -> None:
        self.url = url.rstrip("/")
        self._stop = stop
        token = ledger_token()
        # Compressed, an answer of few bytes could fill the memory.
        headers = {"Accept-Encoding": "identity"}
        # What no header can hold is no token of a ledger, and httpx would print it.
        if is_header(token):
            headers["Authorization"] = f"Bearer {token}"
        # The token and the texts are for the ledger, and for no proxy of the environment.
        verify = httpx.create_ssl_context() if self.url.startswith("https:") else False
        self._client = httpx.AsyncClient(
            headers=headers, timeout=_TIMEOUT, verify=verify, trust_env=False
        )
        self._loop = Loop(self._client.aclose, name="shared ledger")
        self._run = secrets.token_hex(16)
        self._claimed: set[str] = set()
        self._taken: set[str] = set()
        self._sent = 0
        self._heard = -math.inf
        self._wait_reported = self._refusal_reported = False
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._renewing: threading.Thread | None = None

    def problem(self) -> tuple[str, str] | None:
        """Why the ledger cannot be used, and what would be right; None where it can."""
        start = f"start it with `claimflow ledger FILE`, or correct {on_one_line(self.url)}"
        try:
            status, body = self._exchange("", None, most=_SMALL_BYTES)
        except (httpx.InvalidURL, UnicodeError, *_NO_ANSWER) as error:
            return f"no ledger answers ({_reason(error)})", start
        if status in (401, 403):
            return "the ledger wants another token", f"set {TOKEN} to that of the ledger"
        if status >= httpx.codes.INTERNAL_SERVER_ERROR:
            return f"the ledger does not answer (status {status})", "try again"
        with suppress(*NO_ENTRY):
            said = json.loads(body)
            if said.get("service") == "claimflow ledger":
                if said.get("protocol") == PROTOCOL:
                    return None
                other = on_one_line(said.get("version"))[:_SHOWN]
                return f"the ledger is of claimflow {other}", "use one version on all machines"
        return f"what answers is no ledger (status {status})", start

    def recall(self, keys: Sequence[str]) -> list[Entry]:
        """The entries that the ledger has for `keys`; nothing is claimed."""
        found: list[Entry] = []
        for some in _cut(keys):
            for body, asked in self._post_keys("recall", some):
                found += self._read(split_lines(body), asked)
        return found

    def take(self, keys: Sequence[str]) -> Taken:
        """Claim those of `keys` that the ledger lacks and that no other run has claimed.

        What it has is for `use`; a key whose reply cannot be used may be asked.
        """
        entries: list[Entry] = []
        elsewhere: set[str] = set()
        for some in _cut(keys):
            with self._lock:
                before = len(self._claimed)
                self._claimed.update(some)
            began = time.monotonic()
            for body, asked in self._post_keys("take", some):
                found, others, known = self._read_taken(body, asked)
                if before and not known:
                    self._claim_again()
                self._heard = began
                entries += found
                elsewhere |= others
                with self._lock:
                    self._claimed -= others
                    for entry in found:
                        self._taken.update(entry.replies)
        self._keep_claims()
        return Taken(entries, frozenset(elsewhere))

    def use(self, keys: Collection[str]) -> None:
        """Note that replies that were taken are used: their keys are not to be asked."""
        with self._lock:
            self._claimed.difference_update(keys)

    def holds(self, keys: Collection[str]) -> bool:
        """Whether this run has claimed all of `keys`, and has not lost one to another run.

        Where the ledger has not heard of this run for long, it is not sure of any.
        """
        with self._lock:
            sure = time.monotonic() - self._heard < _SURE_SECONDS
            return sure and self._claimed.issuperset(keys)

    def send(self, entries: Sequence[Entry]) -> None:
        """Add entries; what they answer is claimed no more."""
        lines, size = list[bytes](), 0
        for line in map(entry_line, entries):
            if lines and (size + len(line) > _BYTES_AT_ONCE or len(lines) == LINES_AT_ONCE):
                self._save(lines)
                lines, size = [], 0
            lines.append(line)
            size += len(line)
        if lines:
            self._save(lines)
        with self._lock:
            self._claimed.difference_update(*(entry.replies for entry in entries))
            self._sent += len(entries)

    def summary(self) -> str | None:
        """What this run took from the ledger and gave it, if anything."""
        if not (self._taken or self._sent):
            return None
        counts = f"answers taken: {len(self._taken):,}, calls sent: {self._sent:,}"
        return f"shared ledger at {self.url}: {counts}"

    def release(self, keys: Collection[str]) -> None:
        """Claim keys no more, of which some may have no answer. An error is logged."""
        with self._lock:
            released = sorted(self._claimed.intersection(keys))
        try:
            for some in _cut(released):
                self._post("release", _json({"run": self._run, "keys": some}))
        except JudgeError as error:
            _LOG.info("%s", error)
        except StoppedError:
            pass  # `close` releases everything.
        with self._lock:
            self._claimed.difference_update(released)

    def close(self) -> None:
        """Let other runs ask for everything that this one had claimed."""
        if self._closed.is_set():
            return
        self._closed.set()
        if self._renewing is not None:
            self._renewing.join()
            with suppress(StoppedError, *_NO_ANSWER):
                self._exchange("end", _json({"run": self._run}), seconds=_CLOSE_SECONDS)
        self._loop.close()

    def _keep_claims(self) -> None:
        """Say from now on that this run is alive."""
        with self._lock:
            if self._renewing is None and not self._closed.is_set():
                self._renewing = threading.Thread(target=self._renew, name="ledger", daemon=True)
                self._renewing.start()

    def _renew(self) -> None:
        said = _json({"run": self._run})
        while not self._closed.wait(RENEW_SECONDS):
            # A ledger that does not answer is told where something is asked of it.
            with suppress(JudgeError, StoppedError, *_NO_ANSWER, *NO_ENTRY):
                began = time.monotonic()
                _, body = self._exchange("renew", said, most=_SMALL_BYTES)
                known = json.loads(body).get("known")
                if known is False:
                    self._claim_again()
                if known is not None:
                    self._heard = began

    def _claim_again(self) -> None:
        """Claim what is still to be answered, of which other runs may have claimed some.

        The ledger forgets a run that was out of its reach, or suspended, for long.
        """
        with self._lock:
            claimed = sorted(self._claimed)
        for some in _cut(claimed):
            for body, asked in self._post_keys("take", some):
                found, others, _ = self._read_taken(body, asked)
                with self._lock:
                    self._claimed -= others
                    self._claimed.difference_update(*(entry.replies for entry in found))
                    released = [key for key in asked if key not in self._claimed]
                if released:
                    self._post("release", _json({"run": self._run, "keys": released}))

    def _save(self, lines: Sequence[bytes]) -> None:
        """Send lines. One that the ledger refuses stays in the store of this run."""
        try:
            self._post("save", b"".join(lines))
        except _RefusedError as error:
            if len(lines) == 1:
                if not self._refusal_reported:
                    self._refusal_reported = True
                    _LOG.warning("%s: a call is not shared: %s", self.url, error.said)
                return
            self._save(lines[: len(lines) // 2])
            self._save(lines[len(lines) // 2 :])

    def _post_keys(self, what: str, keys: list[str]) -> Iterator[tuple[bytes, list[str]]]:
        """Answers to a request for keys, each with its keys: fewer where one would be too long."""
        try:
            yield self._post(what, _json({"run": self._run, "keys": keys})), keys
        except _RefusedError as error:
            if error.status != TOO_LONG or len(keys) == 1:
                raise
            yield from self._post_keys(what, keys[: len(keys) // 2])
            yield from self._post_keys(what, keys[len(keys) // 2 :])

    def _read_taken(self, body: bytes, asked: Sequence[str]) -> tuple[list[Entry], set[str], bool]:
        """Entries, keys that another run has, and whether the ledger knew this run."""
        first, *lines = split_lines(body) or [b""]
        if len(first) > KEY_BYTES * (len(asked) + 1):
            raise self._unreadable()
        try:
            said = json.loads(first)
            others, known = set(map(str, said["elsewhere"])), bool(said["known"])
        except (*NO_ENTRY, KeyError) as error:
            raise self._unreadable() from error
        return self._read(lines, asked), others.intersection(asked), known

    def _read(self, lines: Sequence[bytes], asked: Sequence[str]) -> list[Entry]:
        """The entries of an answer, without replies to other keys than those that were asked."""
        keys = set(asked)
        if len(lines) > len(keys):
            raise self._unreadable()
        try:
            entries = list(map(read_entry, lines))
        except NO_ENTRY as error:
            raise self._unreadable() from error
        return [
            Entry(entry.call, {key: entry.replies[key] for key in keys & entry.replies.keys()})
            for entry in entries
        ]

    def _post(self, what: str, body: bytes) -> bytes:
        """The body of the answer. Tries again for a minute where there is none."""
        began, pause = time.monotonic(), _FIRST_PAUSE
        deadline = began + _PATIENCE
        while True:
            left = max(1.0, deadline - time.monotonic())
            try:
                status, answer = self._exchange(what, body, seconds=left)
                if status < httpx.codes.INTERNAL_SERVER_ERROR:
                    return self._accepted(status, answer)
                reason = f"status {status}"
            except _NO_ANSWER as error:
                reason = _reason(error)
            if time.monotonic() > deadline:
                raise self._refused(f"it does not answer ({reason})")
            if time.monotonic() > began + _QUIET_SECONDS and not self._wait_reported:
                self._wait_reported = True
                what = "the shared ledger at %s does not answer (%s): waiting for it, for a minute"
                _LOG.warning(what, self.url, reason)
            if self._closed.is_set() or self._stop.wait(pause):
                raise StoppedError
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _accepted(self, status: int, answer: bytes) -> bytes:
        if status == httpx.codes.OK:
            return answer
        if status in (401, 403):
            raise self._refused(f"it wants another token: set {TOKEN}")
        said = on_one_line(answer[:_SHOWN].decode("utf-8", "replace"))
        refused = self._refused(f"it answers with status {status}: {said}")
        if status in _REFUSED:
            raise _RefusedError(str(refused), status, said)
        raise refused

    def _exchange(
        self,
        what: str,
        body: bytes | None,
        *,
        seconds: float = _ANSWER_SECONDS,
        most: int = BODY_BYTES,
    ) -> tuple[int, bytes]:
        """The status and the body, of at most `most` bytes, of an answer within `seconds`.

        Raises one of `_NO_ANSWER`, or `StoppedError` some seconds after the run is stopped.
        """
        return self._loop.run(self._until_stopped(self._request(what, body, seconds, most)))

    async def _until_stopped(self, request: Coroutine[Any, Any, _Result]) -> _Result:
        task, until = asyncio.ensure_future(request), math.inf
        while not task.done():
            await asyncio.wait([task], timeout=_LOOK_SECONDS)
            if self._stop.is_set() or self._closed.is_set():
                # What the run was answered is worth a moment.
                until = min(until, time.monotonic() + _CLOSE_SECONDS)
            if time.monotonic() > until:
                task.cancel()
                await asyncio.wait([task])
                raise StoppedError
        return task.result()

    async def _request(
        self, what: str, body: bytes | None, seconds: float, most: int
    ) -> tuple[int, bytes]:
        method, url = "GET" if body is None else "POST", f"{self.url}/{what}"
        received = bytearray()
        async with (
            asyncio.timeout(seconds),
            self._client.stream(method, url, content=body) as answer,
        ):
            async for block in answer.aiter_raw():
                received += block
                if len(received) > most:
                    raise httpx.DecodingError(f"an answer of more than {most:,} bytes")
        return answer.status_code, bytes(received)

    def _unreadable(self) -> JudgeError:
        return self._refused("what it answers cannot be read")

    def _refused(self, why: str) -> JudgeError:
        kept = "what was answered is kept; run again to continue"
        return JudgeError(f"the shared ledger at {self.url}: {why}; {kept}")


class LedgerToRead(Ledger):
    """The ledger of a store, and behind it the shared one, for plans: nothing is written."""

    def __init__(self, store: Store, shared: SharedLedger | None) -> None:
        super().__init__(store)
        self._shared = shared

    def recall(self, keys: Sequence[str], **since: Any) -> dict[str, bytes]:
        """As `Ledger.recall`. With a time that replies must have, only those of the store count."""
        found = super().recall(keys, **since)
        if self._shared is not None and since.get("since") is None:
            missing = [key for key in keys if key not in found]
            for entry in self._shared.recall(missing):
                found |= entry.replies
        return found


@contextmanager
def open_shared_ledger(
    url: str | None, place: str, stop: threading.Event | None = None
) -> Iterator[SharedLedger | None]:
    """The ledger that a pipeline names; None where it names none.

    `place` is where it does. Raises `InputError` where no such ledger answers.
    """
    if url is None:
        yield None
        return
    try:
        shared = SharedLedger(url, stop or threading.Event())
    except OSError as error:
        what = f"the certificates of this machine cannot be read ({_reason(error)})"
        hint = "correct SSL_CERT_FILE and SSL_CERT_DIR in the environment"
        raise InputError([Fault(place, what, hint)]) from error
    try:
        problem = shared.problem()
        if problem is not None:
            raise InputError([Fault(place, *problem)])
        yield shared
    finally:
        shared.close()


def _cut(keys: Sequence[str]) -> Iterator[list[str]]:
    left = iter(keys)
    while some := list(islice(left, KEYS_AT_ONCE)):
        yield some


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _reason(error: Exception) -> str:
    return on_one_line(str(error) or type(error).__name__)[:_SHOWN]
