"""A server on the loopback that takes scores: what it was sent, and faults of it."""

import base64
import gzip
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest


class Got(NamedTuple):
    """A request: its path with the query, headers with small letters, and body as sent."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def content(self) -> Any:
        """The body as JSON."""
        packed = self.headers.get("content-encoding") == "gzip"
        return json.loads(gzip.decompress(self.body) if packed else self.body)


class Said(NamedTuple):
    """A reply; `raw` is called with the handler in place of it."""

    status: int = 200
    body: bytes = b"{}"
    headers: tuple[tuple[str, str], ...] = ()
    raw: Callable[[BaseHTTPRequestHandler], None] | None = None


class TraceServer:
    """Records requests and replies what `answer` says of each."""

    def __init__(self, answer: Callable[[Got], Said]) -> None:
        self.answer = answer
        self.got: list[Got] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                one = Got(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
                outer.got.append(one)
                said = outer.answer(one)
                if said.raw is not None:
                    self.close_connection = True
                    said.raw(self)
                    return
                self.send_response(said.status)
                for name, value in said.headers:
                    self.send_header(name, value)
                self.send_header("content-length", str(len(said.body)))
                self.end_headers()
                self.wfile.write(said.body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def running(self) -> Iterator["TraceServer"]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


def langfuse(got: Got) -> Said:
    """Takes every event, as Langfuse does."""
    ids = [one["id"] for one in got.content["batch"]]
    said = {"successes": [{"id": one, "status": 201} for one in ids], "errors": []}
    return Said(207, json.dumps(said).encode())


def phoenix(got: Got) -> Said:
    """Takes every annotation, as Phoenix does."""
    said = {"data": [{"id": f"n{place}"} for place, _ in enumerate(got.content["data"])]}
    return Said(200, json.dumps(said).encode())


def records(got: list[Got]) -> list[Any]:
    """The log records of requests, decoded as OTLP."""
    found = []
    for one in got:
        request = ExportLogsServiceRequest()
        body = json.loads(gzip.decompress(one.body))
        # Of JSON, protobuf knows base64 where OTLP writes ids in hex.
        for record in body["resourceLogs"][0]["scopeLogs"][0]["logRecords"]:
            for name in {"traceId", "spanId"} & record.keys():
                record[name] = base64.b64encode(bytes.fromhex(record[name])).decode()
        json_format.ParseDict(body, request)
        found += request.resource_logs[0].scope_logs[0].log_records
    return found
