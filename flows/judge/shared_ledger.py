"""The ledger that runs on several machines share: the client of `claimflow ledger`.

A run claims the keys that it is about to ask for. What is in the ledger comes back, and so do the
keys that another run has claimed. What a run is answered is sent before it counts as saved.
"""

import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, Final, NamedTuple

import httpx

from claimflow.flows.errors import Fault, InputError, JudgeError, StoppedError, on_one_line
from claimflow.flows.judge.calls import NO_ENTRY, Entry, entry_line, read_entry
from claimflow.flows.store.ledger import Ledger
from claimflow.flows.store.store import Store

TOKEN: Final = "CLAIMFLOW_LEDGER_TOKEN"  # noqa: S105 - the name of a variable

PROTOCOL: Final = 1
"""The version of what is said over HTTP."""

BODY_BYTES: Final = 64 << 20
"""Most bytes of a request. A longer entry stays in the store of its run."""

KEYS_AT_ONCE: Final = 1_000
"""Most keys of a request."""

RENEW_SECONDS: Final = 15.0
"""A run says so often that it is alive."""

_BYTES_AT_ONCE: Final = 8 << 20
_REPLY_BYTES: Final = 512 << 20
_TIMEOUT: Final = httpx.Timeout(60.0, connect=10.0)
_PATIENCE: Final = 60.0
"""Seconds after which a ledger that does not answer ends the run."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_CLOSE_SECONDS: Final = 3.0
_SHOWN: Final = 200

_LOG: Final = logging.getLogger("claimflow")


def ledger_token() -> str:
    """The token in the environment, without blanks at its ends, which files of secrets have."""
    return os.environ.get(TOKEN, "").strip()


def is_header(token: str) -> bool:
    """Whether a token can be sent in a header."""
    return bool(token) and token.isascii() and token.isprintable()


class Taken(NamedTuple):
    """What became of keys: the entries that the ledger has, and those that another run claimed."""

    entries: list[Entry]
    elsewhere: frozenset[str]


class SharedLedger:
    """The ledger at an address, for one run, which ends soon after `stop` is set.

    Its methods wait for the answer, and any thread may call them. They raise `JudgeError` where
    the ledger refuses, or does not answer for a minute, and `StoppedError`.
    """

    def __init__(self, url: str, stop: threading.Event) -> None:
        self.url = url.rstrip("/")
        self._stop = stop
        token = ledger_token()
        # What no header can hold is no token of a ledger, and httpx would print it.
        headers = {"Authorization": f"Bearer {token}"} if is_header(token) else {}
        self._client = httpx.Client(headers=headers, timeout=_TIMEOUT)
        self._run = secrets.token_hex(16)
        self._claimed: set[str] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._renewing: threading.Thread | None = None

    def problem(self) -> tuple[str, str] | None:
        """Why the ledger cannot be used, and what would be right; None where it can."""
        start = f"start it with `claimflow ledger FILE`, or correct {self.url}"
        try:
            answer = self._client.get(self.url)
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            return f"no ledger answers ({_reason(error)})", start
        if answer.status_code in (401, 403):
            return "the ledger wants another token", f"set {TOKEN} to that of the ledger"
        with suppress(ValueError, AttributeError):
            said = answer.json()
            if said.get("service") == "claimflow ledger":
                if said.get("protocol") == PROTOCOL:
                    return None
                other = on_one_line(said.get("version"))[:_SHOWN]
                return f"the ledger is of claimflow {other}", "use one version on all machines"
        return f"what answers is no ledger (status {answer.status_code})", start

    def recall(self, keys: Sequence[str]) -> list[Entry]:
        """The entries that the ledger has for `keys`; nothing is claimed."""
        found: list[Entry] = []
        for some in _cut(keys):
            lines = self._post("recall", _json({"keys": some})).splitlines()
            try:
                found += map(read_entry, lines)
            except NO_ENTRY as error:
                raise self._unreadable() from error
        return found

    def take(self, keys: Sequence[str]) -> Taken:
        """Claim those of `keys` that the ledger lacks and that no other run has claimed."""
        entries: list[Entry] = []
        elsewhere: set[str] = set()
        for some in _cut(keys):
            with self._lock:
                self._claimed.update(some)
            body = self._post("take", _json({"run": self._run, "keys": some}))
            first, *lines = body.splitlines() or [b""]
            try:
                found = list(map(read_entry, lines))
                others = set(map(str, json.loads(first)["elsewhere"]))
            except (*NO_ENTRY, KeyError) as error:
                raise self._unreadable() from error
            entries += found
            elsewhere |= others
            with self._lock:
                self._claimed -= others
                self._claimed.difference_update(*(entry.replies for entry in found))
        self._keep_claims()
        return Taken(entries, frozenset(elsewhere))

    def send(self, entries: Sequence[Entry]) -> None:
        """Add entries; what they answer is claimed no more."""
        lines, size = list[bytes](), 0
        for line in map(entry_line, entries):
            if len(line) > BODY_BYTES:
                _LOG.warning("%s: a call of more than 64 MB is not shared", self.url)
                continue
            if lines and size + len(line) > _BYTES_AT_ONCE:
                self._post("save", b"".join(lines))
                lines, size = [], 0
            lines.append(line)
            size += len(line)
        if lines:
            self._post("save", b"".join(lines))
        with self._lock:
            self._claimed.difference_update(*(entry.replies for entry in entries))

    def release(self, keys: Collection[str]) -> None:
        """Claim keys no more, of which some may have no answer. An error is logged."""
        with self._lock:
            released = sorted(self._claimed.intersection(keys))
        with suppress(JudgeError, StoppedError):
            for some in _cut(released):
                self._post("release", _json({"run": self._run, "keys": some}))
        with self._lock:
            self._claimed.difference_update(released)

    def close(self) -> None:
        """Let other runs ask for everything that this one had claimed."""
        if self._closed.is_set():
            return
        self._closed.set()
        if self._renewing is not None:
            self._renewing.join()
            with suppress(httpx.HTTPError):
                said = _json({"run": self._run})
                self._client.post(f"{self.url}/end", content=said, timeout=_CLOSE_SECONDS)
        self._client.close()

    def _keep_claims(self) -> None:
        """Say from now on that this run is alive."""
        with self._lock:
            if self._renewing is None and not self._closed.is_set():
                self._renewing = threading.Thread(target=self._renew, name="ledger", daemon=True)
                self._renewing.start()

    def _renew(self) -> None:
        while not self._closed.wait(RENEW_SECONDS):
            # A ledger that does not answer is told where something is asked of it.
            with suppress(httpx.HTTPError, ValueError, AttributeError):
                said = _json({"run": self._run})
                answer = self._client.post(f"{self.url}/renew", content=said)
                if answer.json().get("known") is False:
                    self._claim_again()

    def _claim_again(self) -> None:
        """Claim what is still to be answered: the ledger was started again, or was out of reach."""
        with self._lock:
            claimed = sorted(self._claimed)
        for some in _cut(claimed):
            said = _json({"run": self._run, "keys": some})
            self._client.post(f"{self.url}/take", content=said)

    def _post(self, what: str, body: bytes) -> bytes:
        deadline, pause = time.monotonic() + _PATIENCE, _FIRST_PAUSE
        while True:
            try:
                return self._answer(what, body)
            except httpx.HTTPError as error:
                if time.monotonic() > deadline:
                    raise self._refused(f"it does not answer ({_reason(error)})") from error
            if self._stop.wait(pause):
                raise StoppedError
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _answer(self, what: str, body: bytes) -> bytes:
        """The body of the answer. Raises `httpx.HTTPError` where it is worth another try."""
        with self._client.stream("POST", f"{self.url}/{what}", content=body) as answer:
            received = bytearray()
            for block in answer.iter_bytes():
                received += block
                if len(received) > _REPLY_BYTES:
                    raise self._refused("its answer is longer than 512 MB")
        status = answer.status_code
        if status in (401, 403):
            raise self._refused(f"it wants another token: set {TOKEN}")
        if status >= httpx.codes.INTERNAL_SERVER_ERROR:
            answer.raise_for_status()
        if status != httpx.codes.OK:
            said = on_one_line(received[:_SHOWN].decode("utf-8", "replace"))
            raise self._refused(f"it answers with status {status}: {said}")
        return bytes(received)

    def _unreadable(self) -> JudgeError:
        return self._refused("what it answers cannot be read")

    def _refused(self, why: str) -> JudgeError:
        kept = "what was answered is in the store of this run; run again to continue"
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
    shared = SharedLedger(url, stop or threading.Event())
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
