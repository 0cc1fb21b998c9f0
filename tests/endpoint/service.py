"""Handles every request: records it, chooses its fault, replies after the latency."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.endpoint import statuses
from tests.endpoint.batches import BatchService
from tests.endpoint.behaviour import Behaviour
from tests.endpoint.connection import Connection, Incoming
from tests.endpoint.fault import Fault, Refusal
from tests.endpoint.record import Record, Recorded
from tests.endpoint.replies import JSON, Ready, Replies, refuse

_KEYS: Final = ("authorization", "x-api-key", "api-key")


class Service:
    """The state that the connections of one endpoint share.

    `refuse` is called for a fault that stops listening, with the seconds until the endpoint
    listens again (0: never). Errors of tests and of this package are kept in `broken`.
    """

    def __init__(self, behaviour: Behaviour, refuse: Callable[[float], None]) -> None:
        self.behaviour = behaviour
        self.record = Record()
        self.broken: list[Exception] = []
        self._refuse = refuse
        self._replies = Replies(behaviour, self.record)
        self.batches = BatchService(behaviour.batches, self._answer_line)

    def serve(self, incoming: Incoming, connection: Connection) -> None:
        """Replies to one request, now or later."""
        path = incoming.path.partition("?")[0]
        if path in ("/_stats", "/_times"):
            connection.reply(200, JSON, json.dumps(self._counts(path)).encode())
            return
        noted = self._note(incoming, path)
        try:
            if self.batches.handles(path):
                self._handle_batch(noted, incoming, connection)
                return
            body = json.loads(incoming.body) if incoming.body else {}
            self._handle(noted, body, incoming.headers, connection)
        except Exception as error:
            self.broken.append(error)
            noted.status, noted.replied = 500, time.monotonic()
            words = f"the fake endpoint broke: {type(error).__name__}: {error}"
            connection.reply(*refuse(path, Refusal(500, words))[:3])

    def _handle(
        self, noted: Recorded, body: Any, headers: Mapping[str, str], connection: Connection
    ) -> None:
        if self.behaviour.keep_bodies:
            noted.body = body
        limited = self._limited(noted.arrived, headers)
        fault = limited
        if limited is None and self.behaviour.fault is not None:
            fault = self.behaviour.fault(noted.number, body, noted.key)
        ready = self._replies.make(noted.path, body, noted.number, fault)
        if limited is None:
            self._reply_later(noted, fault or Fault(""), ready, connection)
        else:
            noted.fault = limited.name
            self._send(noted, limited, ready, connection)

    def _handle_batch(self, noted: Recorded, incoming: Incoming, connection: Connection) -> None:
        headers, body = incoming.headers, incoming.body
        reply = self.batches.handle(incoming.method, incoming.path, headers, body)
        noted.replied = time.monotonic()
        if reply is None:
            connection.close()
            return
        noted.status, content = reply
        written = content if isinstance(content, bytes) else json.dumps(content).encode()
        connection.reply(noted.status, JSON, written)

    def _answer_line(self, path: str, body: Any) -> tuple[int, Any]:
        """The reply to one request of a batch, with the fault that it would have by itself."""
        number = len(self.record.requests) + 1
        fault = self.behaviour.fault and self.behaviour.fault(number, body, "")
        status, _, written, _ = self._replies.make(path, body, number, fault)
        return status, json.loads(written)

    def _note(self, incoming: Incoming, path: str) -> Recorded:
        key = hashlib.blake2b(path.encode() + b"\0" + incoming.body, digest_size=16).hexdigest()
        number = len(self.record.requests) + 1
        noted = Recorded(number, incoming.method, path, key, time.monotonic())
        noted.authorized = any(name in incoming.headers for name in _KEYS)
        if self.behaviour.keep_bodies:
            noted.headers = {k: v for k, v in incoming.headers.items() if k not in _KEYS}
        self.record.requests.append(noted)
        return noted

    def _limited(self, now: float, headers: Mapping[str, str]) -> Fault | None:
        """The refusal of a request by key or throttle, before it is read."""
        key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        if self.behaviour.api_key is not None and key != self.behaviour.api_key:
            return statuses.wrong_key(key)
        throttle = self.behaviour.throttle
        return throttle.check(self.record.active, now) if throttle is not None else None

    def _reply_later(
        self, noted: Recorded, fault: Fault, ready: Ready, connection: Connection
    ) -> None:
        """Reply to a request after the delay of the fault and the latency."""
        self.record.begin()
        noted.fault = fault.name or None

        def lost() -> None:
            noted.gone = True
            self.record.end()

        def send() -> None:
            connection.lost = None
            self.record.end()
            self._send(noted, fault, ready, connection)

        connection.lost = lost
        if fault.wire == "hang":
            return
        seconds = 0.0 if fault.wire == "refuse" else fault.delay
        if ready.tokens is not None:
            seconds += self.behaviour.seconds(noted.key, ready.tokens)
        if seconds > 0:
            connection.later(seconds, send)
        else:
            send()

    def _send(self, noted: Recorded, fault: Fault, ready: Ready, connection: Connection) -> None:
        status, headers, body, _ = ready
        if fault.wire in ("plain", "drip"):
            noted.status, noted.replied = status, time.monotonic()
        match fault.wire:
            case "plain":
                connection.reply(status, headers, body)
            case "drip":
                connection.drip(status, headers, body, pause=fault.pause, size=fault.size)
            case "midway":
                connection.midway(status, headers, body)
            case "close":
                connection.close()
            case "refuse":
                self._refuse(fault.delay)
            case _:
                connection.reset()

    def _counts(self, path: str) -> Any:
        if path == "/_stats":
            return self.record.stats()
        return [[one.key, one.arrived, one.replied, one.status] for one in self.record.requests]
