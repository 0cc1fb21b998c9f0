"""A receiver in this process or its own, and exports to send to it."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from claimflow.flows.traces.received import ReceivedFolder
from claimflow.flows.traces.receiver import Receiver

JSON = "application/json"
PROTOBUF = "application/x-protobuf"
SECONDS = 60.0


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


def trace_id(number: int) -> str:
    return f"{number + 1:032x}"


def export(numbers: Sequence[int], *, text: str = "Tin is a metal.") -> ExportTraceServiceRequest:
    """One trace of one call for each of the numbers."""
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for number in numbers:
        spans.append(call(number, text))
    return request


def call(number: int, text: str) -> Span:
    span = Span(
        trace_id=bytes.fromhex(trace_id(number)),
        span_id=(number + 1).to_bytes(8, "big"),
        name="chat",
        start_time_unix_nano=10**18 + number,
        end_time_unix_nano=10**18 + number + 10**9,
    )
    asked = json.dumps([{"role": "user", "parts": [{"type": "text", "content": f"Is {number}?"}]}])
    said = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": text}]}])
    given = {"operation.name": "chat", "input.messages": asked, "output.messages": said}
    for name, value in given.items():
        span.attributes.add(key=f"gen_ai.{name}").value.string_value = value
    return span


def json_span(number: int, **more: Any) -> dict[str, Any]:
    return {"traceId": trace_id(number), "spanId": f"{number + 1:016x}", "name": "chat", **more}


def json_export(*spans: Any) -> bytes:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()


def post(
    url: str,
    body: bytes | Iterator[bytes],
    kind: str = PROTOBUF,
    *,
    path: str = "/v1/traces",
    method: str = "POST",
    **headers: str,
) -> Answer:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=SECONDS)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request(method, path, body, {"Content-Type": kind, **named})
        response = connection.getresponse()
        return Answer(response.status, dict(response.headers), response.read())
    finally:
        connection.close()


@contextmanager
def receiving(folder: Path, **options: Any) -> Iterator[Receiver]:
    """A receiver in this process, until its end in order."""
    received = ReceivedFolder(folder, keep=options.pop("keep", None))
    try:
        server = Receiver(received, **{"host": "127.0.0.1", "port": 0, **options})
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        with server:
            thread.start()
            try:
                yield server
            finally:
                server.shutdown()
                thread.join()
    finally:
        received.close()


@contextmanager
def receiver_process(
    folder: Path, **environment: str
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """(endpoint, process) of `claimflow receive`."""
    command = [sys.executable, "-m", "claimflow", "receive", str(folder), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[0], process
        finally:
            process.kill()
