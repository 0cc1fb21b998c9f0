"""OTLP as protobuf, turned into what OTLP JSON holds: files of it, and single messages.

The file exporter of the OpenTelemetry Collector writes each message behind its length (`format:
proto`). A file may also be one message alone. Spans and log records are read by `otlp` then.
"""

import base64
import math
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final, Literal

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.pipeline.limits import RECORD_BYTES
from claimflow.flows.samples.records import TOO_LARGE, Record, RecordError

Signal = Literal["traces", "logs"]

ENDINGS: Final = (".pb", ".binpb", ".proto")
"""The endings of files of protobuf; files of other names are told by `is_framed`."""

_LENGTH_BYTES: Final = 4
_BLOCK: Final = 1 << 20
_RESOURCES: Final = b"\n"
"""The tag that every message begins with: field 1, the resources, of any length."""

_IDS: Final = frozenset({"traceId", "spanId", "parentSpanId"})
"""The bytes that OTLP JSON writes as hexadecimal digits, not in base64 as protobuf does."""

_VARINT_BITS: Final = 63
_SIZED: Final = 2
_FIXED_BYTES: Final = (0, 8, 0, 0, 0, 4)
"""Bytes of values by the last three bits of their tag; groups (3, 4) have none of their own."""

_TRACE_ID_BYTES: Final = 16

_DAMAGED: Final = RecordError("no message of OTLP", "write the file again as OTLP protobuf")
_CUT_OFF: Final = RecordError("the message is cut off", _DAMAGED.hint)


def is_installed() -> bool:
    """Whether the messages of OTLP can be read here."""
    try:
        import opentelemetry.proto.trace.v1.trace_pb2  # noqa: F401
    except ImportError:
        return False
    return True


def is_framed(start: bytes) -> bool:
    """Whether a file that begins so holds messages behind their lengths; no text begins with 0."""
    return start[:1] == b"\0"


def read_protobuf(path: Path) -> Iterator[Record]:
    """One record per message, with the values of OTLP JSON, numbered from 1.

    Raises `InputError` where the messages of OTLP are not installed.
    """
    if not is_installed():
        what, hint = "opentelemetry-proto is not installed", "run: pip install 'claimflow[otlp]'"
        raise InputError([Fault(str(path), what, hint)])
    with path.open("rb") as file:
        if file.peek(1)[:1] == _RESOURCES:
            content = file.read(RECORD_BYTES + 1)
            yield Record(1, TOO_LARGE if len(content) > RECORD_BYTES else _message(content))
            return
        number = 0
        while length := file.read(_LENGTH_BYTES):
            number += 1
            size = int.from_bytes(length, "big")
            if len(length) < _LENGTH_BYTES:
                # The last one of a file that is being written: nothing is known to be behind it.
                yield Record(number, _CUT_OFF)
                return
            if size > RECORD_BYTES:
                yield Record(number, TOO_LARGE)
                if not _skip(file, size):
                    return
                continue
            content = file.read(size)
            if len(content) < size:
                yield Record(number, _CUT_OFF)
                return
            yield Record(number, _message(content))


def _skip(file: IO[bytes], size: int) -> bool:
    """Read on behind `size` bytes, in blocks; False where the file has fewer."""
    while size:
        block = file.read(min(size, _BLOCK))
        if not block:
            return False
        size -= len(block)
    return True


def _message(content: bytes) -> dict[str, Any] | RecordError:
    """The values of a message of traces, or of logs: no message says which of them it is."""
    found = decode("traces", content)
    if found is not None and (_has_ids(found) or not content):
        return found
    logs = decode("logs", content)
    if logs is not None:
        return logs
    return _DAMAGED if found is None else found


def _has_ids(document: dict[str, Any]) -> bool:
    """Whether any span has the id of a trace; the fields of a log record would give none."""
    return any(
        len(span.get("traceId", "")) == 2 * _TRACE_ID_BYTES
        for resource in document.get("resourceSpans", [])
        for scope in resource.get("scopeSpans", [])
        for span in scope.get("spans", [])
    )


def is_of(signal: Signal, document: dict[str, Any]) -> bool:
    """Whether what was decoded shows that it is of this kind: an id of a trace, or a time.

    Fields of the other kind have these numbers for something else.
    """
    if signal == "traces":
        return _has_ids(document)
    return any(
        "timeUnixNano" in record or "observedTimeUnixNano" in record
        for resource in document.get("resourceLogs", [])
        for scope in resource.get("scopeLogs", [])
        for record in scope.get("logRecords", [])
    )


def decode(signal: Signal, content: bytes) -> dict[str, Any] | None:
    """The values of a message as OTLP JSON has them; None for what is no such message.

    `opentelemetry-proto` must be installed.
    """
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

    message = TracesData() if signal == "traces" else LogsData()
    try:
        message.ParseFromString(content)
        return _object(message)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None


def has_more_messages(signal: Signal, content: bytes, limit: int) -> bool:
    """Whether a message holds more than `limit` others; what is damaged is not counted on.

    Told from the bytes, since messages without content take far more memory than bytes.
    """
    from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

    if len(content) <= 2 * limit:
        return False
    outer = (TracesData if signal == "traces" else LogsData).DESCRIPTOR
    kinds: dict[str, dict[int, str]] = {}
    _add_kinds(outer, kinds)
    try:
        within = _messages_within(content, outer.full_name, kinds)
        return any(number > limit for number, _ in enumerate(within, 1))
    except IndexError:
        return False


def _messages_within(content: bytes, outer: str, kinds: dict[str, dict[int, str]]) -> Iterator[str]:
    """The kind of each message in a message; raises `IndexError` where it is damaged."""
    waiting = [(0, len(content), outer)]
    while waiting:
        at, end, kind = waiting.pop()
        members = kinds[kind]
        while at < end:
            tag, at = _read_varint(content, at)
            wire = tag & 7
            if wire == _SIZED:
                size, at = _read_varint(content, at)
                if member := members.get(tag >> 3):
                    yield member
                    waiting.append((at, min(at + size, end), member))
                at += size
            elif wire:
                # What a group holds is read as if it stood here.
                at += _FIXED_BYTES[wire]
            else:
                _, at = _read_varint(content, at)


def _add_kinds(descriptor: Any, kinds: dict[str, dict[int, str]]) -> None:
    """Add the fields of a kind of message that are messages, and those of their kinds."""
    members = {
        field.number: field.message_type for field in descriptor.fields if field.message_type
    }
    kinds[descriptor.full_name] = {number: kind.full_name for number, kind in members.items()}
    for kind in members.values():
        if kind.full_name not in kinds:
            _add_kinds(kind, kinds)


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    """(number, where it ends) of what `_varint` writes."""
    byte = content[at]
    if byte < 0x80:
        return byte, at + 1
    found = shift = 0
    while True:
        byte = content[at]
        found |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return found, at
        shift += 7
        if shift > _VARINT_BITS:
            raise IndexError


def _object(message: Any) -> dict[str, Any]:
    """The fields of a message that are set, named and written as JSON has them.

    Protobuf's own JSON takes longer and writes ids in base64.
    """
    found = {}
    for field, value in message.ListFields():
        name = field.json_name
        if field.is_repeated:
            found[name] = [_scalar(field, name, member) for member in value]
        else:
            found[name] = _scalar(field, name, value)
    return found


def _scalar(field: Any, name: str, value: Any) -> Any:
    """One value of a field: 64-bit numbers are texts, since JSON's numbers may lose digits."""
    if field.type == field.TYPE_MESSAGE:
        return _object(value)
    if isinstance(value, bytes):
        return value.hex() if name in _IDS else base64.b64encode(value).decode()
    if isinstance(value, float):
        # JSON has no such numbers; protobuf names them so.
        return (
            value
            if math.isfinite(value)
            else {"nan": "NaN", "inf": "Infinity"}.get(str(value), "-Infinity")
        )
    if field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64):
        return str(value)
    return value


def encode_counted(count: int, text: str, *, within: bool = False) -> bytes:
    """A message of a number and a text: `Status`, and what part of an export was rejected.

    With `within` it stands in field 1 of another message, as in the response of an export.
    """
    content = text.encode()
    encoded = b"\x08" + _varint(count) if count else b""
    encoded += b"\x12" + _varint(len(content)) + content
    return b"\x0a" + _varint(len(encoded)) + encoded if within else encoded


def _varint(number: int) -> bytes:
    """A number from 0 in groups of seven bits, the lowest first."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
