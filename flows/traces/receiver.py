"""OTLP over HTTP: takes exports of spans and of GenAI events, and stores them.

A request is answered by 200 when what it holds is on the disk. Every request is bounded, in bytes
and in time, and so are all requests together: an exporter that is told 429 or 503 sends again.
"""

import ipaddress
import json
import math
import re
import secrets
import socket
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedReader, RawIOBase
from typing import Any, Final, NamedTuple

from pydantic_core import from_json

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.pipeline.limits import RECORD_BYTES
from claimflow.flows.traces import protobuf
from claimflow.flows.traces.otlp import is_message_event
from claimflow.flows.traces.received import BusyError, NotStoredError, ReceivedFolder

BODY_BYTES: Final = 16 << 20
"""Bytes of a request, and of what it is when decompressed."""

IDLE_SECONDS: Final = 60.0
REQUEST_SECONDS: Final = 30.0
"""How long a connection may wait for a request, and how long a request may take to arrive."""

_CONNECTIONS: Final = 256
_BUSY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n"
    b"Content-Length: 0\r\nConnection: close\r\n\r\n"
)
_CLOSE_SECONDS: Final = 10.0
_LINGER_SECONDS: Final = 2.0
_BLOCK: Final = 1 << 20
OBJECTS: Final = 500_000
"""Objects of a request, each of which takes more memory and time than its bytes: spans, and what
they hold, such as an attribute and its value."""

_TEXT: Final = re.compile(rb'"(?:[^"\\]+|\\.)*+"', re.DOTALL)

_LONGEST_INTEGER: Final = 4_300
"""Digits of a whole number; readers take none with more."""

_GZIP_MEMBERS: Final = 64
"""Members of one gzip body; each takes memory and a copy of what follows it."""

_JSON: Final = "application/json"
_PROTOBUF: Final = "application/x-protobuf"
_METHOD: Final = "POST"
_METRICS: Final = "/v1/metrics"
_SHOWN_CHARACTERS: Final = 80
_TRACES: Final = "/v1/traces"
_TYPES: Final[Mapping[str, protobuf.Signal]] = {_TRACES: "traces", "/v1/logs": "logs"}
_MEMBERS: Final[Mapping[protobuf.Signal, tuple[str, str, str]]] = {
    "traces": ("resourceSpans", "scopeSpans", "spans"),
    "logs": ("resourceLogs", "scopeLogs", "logRecords"),
}
_CHUNK_LENGTH: Final = re.compile(rb"[0-9a-fA-F]{1,8}")

_ID_LENGTHS: Final = {"traceId": 32, "spanId": 16}
_HEXADECIMAL: Final = re.compile(r"(?=.*[1-9a-fA-F])[0-9a-fA-F]+")
_NO_IDS: Final = "without a valid trace id and span id"
_NO_JSON: Final = "with a number or a text that JSON cannot hold"


class Export(NamedTuple):
    """What an export holds: a line of OTLP JSON if anything is kept of it, and counts.

    `rejected` counts the members that are not kept, by what is wrong with them.
    """

    line: bytes | None
    kept: int
    rejected: Mapping[str, int]


class _RefusedError(Exception):
    """The request is refused, for the reason that its status and message say."""

    def __init__(self, status: HTTPStatus, message: str, *, after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.after = after


class Receiver(ThreadingHTTPServer):
    """Receives exports at an address until it is shut down.

    `token` is what every request must bear; without one only this machine may be listened to.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, folder: ReceivedFolder, *, host: str, port: int, token: str | None = None
    ) -> None:
        """Listen on `port`, or on any free one for 0. Raises `InputError` where that cannot be."""
        if not token and not _is_loopback(host):
            what = "other machines could send to it"
            hint = "set CLAIMFLOW_RECEIVE_TOKEN to a secret, or name 127.0.0.1"
            raise InputError([Fault(f"--host {host}", what, hint)])
        self.folder = folder
        self.token = token
        self.counts: Counter[str] = Counter()
        # What is parsed takes many times its bytes, and threads would not parse any faster.
        self.parsing = threading.Lock()
        self._changed = threading.Condition()
        self._connections = 0
        # Those without a request whose headers are here, the one that waits longest first.
        self._waiting: dict[socket.socket, None] = {}
        self._answering = 0
        if ":" in host:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((host, port), _RequestHandler)
        except OSError as error:
            what, hint = f"cannot be used ({error.strerror})", "name another, or 0 for a free one"
            raise InputError([Fault(f"--port {port}", what, hint)]) from error
        named = (host, "127.0.0.1", "localhost", "[::1]")
        # The token is what protects a receiver that goes by other names.
        self.hosts = None if token else {f"{name.lower()}:{self.server_port}" for name in named}

    @property
    def url(self) -> str:
        """The endpoint that exporters are told."""
        host = str(self.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.server_port}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """As in `ThreadingMixIn`, for a number of connections that is bounded."""
        with self._changed:
            full = self._connections >= _CONNECTIONS
            # The one that has waited longest ends by itself then.
            oldest = next(iter(self._waiting), None) if full else None
            if oldest is not None:
                del self._waiting[oldest]
            busy = full and oldest is None
            if not busy:
                self._connections += 1
                self._waiting[request] = None
        if oldest is not None:
            with suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
        if busy:
            with suppress(OSError):
                request.sendall(_BUSY)
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def wait_began(self, connection: socket.socket) -> None:
        """A connection waits for a request, and may be closed for a new connection."""
        with self._changed:
            self._waiting.setdefault(connection)

    def wait_ended(self, connection: socket.socket) -> None:
        """A connection has a request, or has ended."""
        with self._changed:
            self._waiting.pop(connection, None)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """As in `ThreadingMixIn`; counted."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._changed:
                self._waiting.pop(request, None)
                self._connections -= 1

    def answer_began(self, change: int) -> None:
        """Count requests that are being answered: 1 where one begins, -1 where it ends."""
        with self._changed:
            self._answering += change
            self._changed.notify_all()

    def server_close(self) -> None:
        """Close the socket, and wait for the requests that are being answered."""
        super().server_close()
        with self._changed:
            self._changed.wait_for(lambda: self._answering == 0, _CLOSE_SECONDS)

    def handle_error(self, request: object, client_address: object) -> None:
        """Report errors, except that a client has closed its connection or waits too long."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _TimedSocket(RawIOBase):
    """The bytes of a socket until a deadline, however slowly they come."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._deadline = 0.0

    def allow(self, seconds: float) -> None:
        """Set the deadline."""
        self._deadline = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


class _RequestHandler(BaseHTTPRequestHandler):
    server: Receiver
    protocol_version = "HTTP/1.1"
    # Headers and body in one packet, at once.
    wbufsize = -1
    disable_nagle_algorithm = True
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(code)d %(message)s"

    def setup(self) -> None:
        super().setup()
        self._source = _TimedSocket(self.connection)
        self.rfile = self._reader = BufferedReader(self._source)
        self._reserved = 0

    def handle_one_request(self) -> None:
        """As in the base class, with a deadline for the whole request."""
        self.server.wait_began(self.connection)
        self._source.allow(IDLE_SECONDS)
        try:
            begun = self._reader.peek(1)
        except OSError:
            begun = b""
        if not begun:
            self.close_connection = True
            return
        self._source.allow(REQUEST_SECONDS)
        super().handle_one_request()

    def version_string(self) -> str:
        """The Server header, without a version."""
        return "claimflow"

    def log_message(self, format: str, *args: object) -> None:
        """Log no requests."""

    def do_POST(self) -> None:
        self.server.wait_ended(self.connection)
        self.server.answer_began(1)
        try:
            self._answer()
        finally:
            self.server.folder.release(self._reserved)
            self._reserved = 0
            self.server.answer_began(-1)

    def __getattr__(self, name: str) -> Any:
        """What answers any method but POST, which the base class looks up by its name."""
        if not name.startswith("do_"):
            raise AttributeError(name)
        return self.do_POST

    def _answer(self) -> None:
        try:
            signal = self._checked_signal()
            content = self._body()
            export = self._parsed(signal, content)
            if export.line is not None:
                self.server.folder.append(export.line)
        except _RefusedError as error:
            self._refuse(error)
        except BusyError:
            message = "too many requests are in progress"
            self._refuse(_RefusedError(HTTPStatus.TOO_MANY_REQUESTS, message, after=1))
        except NotStoredError as error:
            self._refuse(_RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, str(error), after=5))
        except TimeoutError:
            message = f"a request has {REQUEST_SECONDS:g} seconds"
            self._refuse(_RefusedError(HTTPStatus.REQUEST_TIMEOUT, message))
        else:
            self.server.counts[signal] += export.kept
            self._send(HTTPStatus.OK, self._accepted(signal, export.rejected))

    def _checked_signal(self) -> protobuf.Signal:
        """What kind of export a request is, from its headers alone; raises `_RefusedError`."""
        server = self.server
        hosts = [host.strip().lower() for host in self.headers.get_all("Host", [])]
        if server.hosts is not None and hosts not in ([host] for host in server.hosts):
            # Names of others that resolve to this address (DNS rebinding).
            raise _RefusedError(HTTPStatus.MISDIRECTED_REQUEST, f"the endpoint is {server.url}")
        if server.token is not None:
            given = self.headers.get("Authorization", "").encode("utf-8", "replace")
            scheme, _, token = given.partition(b" ")
            right = secrets.compare_digest(token.strip(), server.token.encode())
            if not right or scheme.lower() != b"bearer":
                message = "send the token as Authorization: Bearer"
                raise _RefusedError(HTTPStatus.UNAUTHORIZED, message)
        path = self.path.partition("?")[0]
        signal = _TYPES.get(path)
        if signal is None:
            message = f"{path[:_SHOWN_CHARACTERS]!r} is not received: send to {' or '.join(_TYPES)}"
            if path == _METRICS:
                message = f"metrics are not received, only {' and '.join(_TYPES)}"
            raise _RefusedError(HTTPStatus.NOT_FOUND, message)
        if self.command != _METHOD:
            message = f"send exports to {path} by {_METHOD}"
            raise _RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, message)
        kind = self._kind()
        if kind == _PROTOBUF and not protobuf.is_installed():
            message = "protobuf needs pip install 'claimflow[otlp]'; send http/json"
            raise _RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message)
        if kind not in (_JSON, _PROTOBUF):
            message = f"send {_PROTOBUF} or {_JSON}"
            raise _RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message)
        if self.headers.get("Content-Encoding", "identity").lower() not in ("gzip", "identity"):
            raise _RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "compress by gzip or not at all")
        return signal

    def _kind(self) -> str:
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    def _reserve(self, size: int) -> None:
        self.server.folder.reserve(size)
        self._reserved += size

    def _body(self) -> bytes:
        """The content of a request, decompressed; raises `_RefusedError` or `BusyError`."""
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            if "Content-Length" in self.headers:
                raise _RefusedError(HTTPStatus.BAD_REQUEST, "a Content-Length beside chunks")
            content = b"".join(self._chunks())
        else:
            lengths = {*self.headers.get_all("Content-Length", [""])}
            if len(lengths) > 1:
                raise _RefusedError(HTTPStatus.BAD_REQUEST, "send one Content-Length")
            (length,) = lengths
            if not (length.isascii() and length.isdigit()):
                raise _RefusedError(HTTPStatus.LENGTH_REQUIRED, "send a Content-Length")
            if len(length) > len(str(BODY_BYTES)) or int(length) > BODY_BYTES:
                raise _too_large()
            self._reserve(int(length))
            content = self._read(int(length))
        if self.headers.get("Content-Encoding", "identity").lower() == "gzip":
            return b"".join(self._decompressed(content))
        return content

    def _read(self, size: int) -> bytes:
        content = self.rfile.read(size)
        if len(content) < size:
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "the body is cut off")
        return content

    def _chunks(self) -> Iterator[bytes]:
        left = BODY_BYTES
        while True:
            line = self.rfile.readline(_BLOCK).partition(b";")[0].strip()
            if not _CHUNK_LENGTH.fullmatch(line):
                raise _RefusedError(HTTPStatus.BAD_REQUEST, "the chunks of the body are damaged")
            size = int(line, 16)
            if size == 0:
                break
            left -= size
            if left < 0:
                raise _too_large()
            self._reserve(size)
            yield self._read(size)
            self.rfile.readline(_BLOCK)
        while self.rfile.readline(_BLOCK).strip():
            pass

    def _decompressed(self, content: bytes) -> Iterator[bytes]:
        """The blocks of a gzip body of any members; a bomb ends at the limit of a request."""
        decompressor = zlib.decompressobj(wbits=31)
        left = BODY_BYTES
        members = 1
        try:
            while True:
                if decompressor.eof:
                    # Zeros may pad a file of gzip.
                    content = decompressor.unused_data.lstrip(b"\0")
                    if not content:
                        return
                    members += 1
                    if members > _GZIP_MEMBERS:
                        message = f"the gzip body has more than {_GZIP_MEMBERS} members"
                        raise _RefusedError(HTTPStatus.BAD_REQUEST, f"{message}: write one")
                    decompressor = zlib.decompressobj(wbits=31)
                block = decompressor.decompress(content, _BLOCK)
                content = decompressor.unconsumed_tail
                if not block and not content and not decompressor.eof:
                    raise _RefusedError(HTTPStatus.BAD_REQUEST, "the gzip body is cut off")
                left -= len(block)
                if left < 0:
                    raise _too_large()
                self._reserve(len(block))
                yield block
        except zlib.error:
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "the body is not gzip") from None

    def _parsed(self, signal: protobuf.Signal, content: bytes) -> Export:
        with self.server.parsing:
            if self._has_too_many_objects(signal, content):
                message = f"a request has at most {OBJECTS:,} objects: send fewer spans at once"
                raise _RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
            if self._kind() == _PROTOBUF:
                export = self._export_of_protobuf(signal, content)
            else:
                document = _decoded_json(content)
                export = _export(signal, document) if isinstance(document, dict) else None
        if export is None:
            raise _RefusedError(HTTPStatus.BAD_REQUEST, f"the body is no export of {signal}")
        if export.line is not None and len(export.line) >= RECORD_BYTES:
            raise _too_large()
        return export

    def _export_of_protobuf(self, signal: protobuf.Signal, content: bytes) -> Export | None:
        """As `_export`; raises `_RefusedError` for an export of the other kind."""
        document = protobuf.decode(signal, content)
        # Messages do not say of which kind they are, and either kind may be read as the other.
        if document is None or not protobuf.is_of(signal, document):
            other = _other(signal)
            if not self._has_too_many_objects(other, content) and protobuf.is_of(
                other, protobuf.decode(other, content) or {}
            ):
                raise _wrong_path(other)
        return None if document is None else _export(signal, document)

    def _has_too_many_objects(self, signal: protobuf.Signal, content: bytes) -> bool:
        if self._kind() == _PROTOBUF:
            return protobuf.has_more_messages(signal, content, OBJECTS)
        # Brackets in texts, such as those of code, are no objects.
        return (
            content.count(b"{") + content.count(b"[") > OBJECTS
            and sum(map(_TEXT.sub(b"", content).count, (b"{", b"["))) > OBJECTS
        )

    def _accepted(self, signal: protobuf.Signal, rejected: Mapping[str, int]) -> bytes:
        """The response of an export, which says how many members were rejected, and why."""
        name = "spans" if signal == "traces" else "events"
        message = ", ".join(f"{name} {why}" for why in rejected)
        number = sum(rejected.values())
        if self._kind() == _PROTOBUF:
            return protobuf.encode_counted(number, message, within=True) if rejected else b""
        count = "rejectedSpans" if signal == "traces" else "rejectedLogRecords"
        partial = {"partialSuccess": {count: str(number), "errorMessage": message}}
        return json.dumps(partial if rejected else {}).encode()

    def _refuse(self, error: _RefusedError) -> None:
        """Answer with a `Status`, in the encoding of the request."""
        # The rest of the body would be read as the next request.
        self.close_connection = True
        if self._kind() == _PROTOBUF:
            content = protobuf.encode_counted(0, error.message)
        else:
            content = json.dumps({"message": error.message}).encode()
        self._send(error.status, content, after=error.after)
        # A connection that is closed while the client sends is reset, and the answer with it.
        self._source.allow(_LINGER_SECONDS)
        with suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_WR)
            while self._reader.read1(_BLOCK):
                pass

    def _send(self, status: HTTPStatus, content: bytes, *, after: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", _PROTOBUF if self._kind() == _PROTOBUF else _JSON)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Content-Type-Options", "nosniff")
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", _METHOD)
        if after is not None:
            self.send_header("Retry-After", str(after))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _too_large() -> _RefusedError:
    message = f"a request has at most {BODY_BYTES >> 20} MiB when decompressed: send fewer at once"
    return _RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)


def _other(signal: protobuf.Signal) -> protobuf.Signal:
    return "logs" if signal == "traces" else "traces"


def _wrong_path(signal: protobuf.Signal) -> _RefusedError:
    path = next(path for path, one in _TYPES.items() if one == signal)
    message = f"the body is an export of {signal}: send it to {path}"
    return _RefusedError(HTTPStatus.BAD_REQUEST, message)


def _decoded_json(content: bytes) -> Any:
    """The values of a JSON text; None where it is none.

    What JSON cannot hold, such as NaN and numbers of thousands of digits, is NaN in it.
    """
    try:
        return from_json(content, allow_inf_nan=False)
    except ValueError:
        # Slower, but one value of such a kind would spoil the whole batch.
        with suppress(ValueError, RecursionError):
            return json.loads(content, parse_int=_integer)
    return None


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _LONGEST_INTEGER else math.nan


def _export(signal: protobuf.Signal, document: Mapping[str, Any]) -> Export | None:
    """What is kept of a document of OTLP JSON; None where it has another shape.

    Raises `_RefusedError` for what readers would not take.
    """
    resources, scopes, members = _MEMBERS[signal]
    if document.get(_MEMBERS[_other(signal)][0]):
        raise _wrong_path(_other(signal))
    rejected = Counter[str]()
    kept: list[list[Any]] = []
    try:
        for resource in document.get(resources, []):
            for scope in resource.get(scopes, []):
                given = scope.get(members, [])
                if signal == "logs":
                    given = [record for record in given if _is_message(record)]
                fine = [member for member in given if _has_ids(member)]
                rejected[_NO_IDS] += len(given) - len(fine)
                scope[members] = fine
                kept.append(fine)
        whole = {resources: document.get(resources, [])}
        line = _encoded(whole) if any(kept) else b""
        if line is None:
            for fine in kept:
                holding = [member for member in fine if _encoded(member) is not None]
                rejected[_NO_JSON] += len(fine) - len(holding)
                fine[:] = holding
            line = _encoded(whole) if any(kept) else b""
    except (AttributeError, KeyError, TypeError, RecursionError):
        return None
    if line is None:
        message = f"a resource or scope {_NO_JSON}: send it as text"
        raise _RefusedError(HTTPStatus.BAD_REQUEST, message)
    return Export(line or None, sum(map(len, kept)), +rejected)


def _encoded(value: Any) -> bytes | None:
    """A value as JSON in UTF-8; None where it holds what JSON cannot hold."""
    try:
        # Not as ASCII: half of a surrogate pair could be written then, but no reader takes it.
        return json.dumps(
            value, ensure_ascii=False, separators=(",", ":"), allow_nan=False
        ).encode()
    except ValueError:
        return None


def _has_ids(member: Mapping[str, Any]) -> bool:
    """Whether a span or a log record has the ids of a trace and a span, which are not zero."""
    for name, length in _ID_LENGTHS.items():
        value = member.get(name)
        if not isinstance(value, str) or len(value) != length or not _HEXADECIMAL.fullmatch(value):
            return False
    return True


def _is_message(record: Mapping[str, Any]) -> bool:
    """Whether a log record holds messages of a span; other logs are none of our business."""
    name = record.get("eventName")
    if not name:
        attributes = record.get("attributes", [])
        values = (one["value"] for one in attributes if one.get("key") == "event.name")
        name = next((value.get("stringValue") for value in values), None)
    return isinstance(name, str) and is_message_event(name)
