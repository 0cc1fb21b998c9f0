"""A real S3 server on loopback behind a proxy that can inject failures."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import NamedTuple

KEYS = {"AWS_ACCESS_KEY_ID": "testkey", "AWS_SECRET_ACCESS_KEY": "hush-hush"}
UNSET = ("AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION", "AWS_PROFILE")


class Request(NamedTuple):
    method: str
    path: str
    span: str | None


class S3Proxy(ThreadingHTTPServer):
    """Forwards requests to the server and records them in `requests`.

    `failure` decides for each: a status to answer with, `cut` for half a response, or None.
    """

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _ProxyHandler)
        self.port = port
        self.requests: list[Request] = []
        self.failure: Callable[[Request], int | str | None] = lambda request: None

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def environment(self) -> Mapping[str, str]:
        return {**KEYS, "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": f"http://{self.host}"}

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """The server checks keys meanwhile, and accepts none."""
        for allowed in ("0", "inf"):
            connection = HTTPConnection("127.0.0.1", self.port)
            connection.request("POST", "/moto-api/reset-auth", allowed, {"content-type": "text"})
            assert b"ok" in connection.getresponse().read()
            connection.close()
            if allowed == "0":
                yield


class _ProxyHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: S3Proxy

    def _forward(self) -> None:
        content = self.rfile.read(int(self.headers.get("content-length") or 0))
        request = Request(self.command, self.path, self.headers.get("range"))
        self.server.requests.append(request)
        failure = self.server.failure(request)
        if isinstance(failure, int):
            self._answer(failure, {}, b"")
            return
        server = HTTPConnection("127.0.0.1", self.server.port)
        server.request(self.command, self.path, content, dict(self.headers))
        reply = server.getresponse()
        body = reply.read()
        server.close()
        kept = {
            name: value
            for name, value in reply.getheaders()
            if name.lower() not in ("transfer-encoding", "content-length", "connection")
        }
        self._answer(reply.status, kept, body, cut=failure == "cut")

    def _answer(
        self, status: int, headers: Mapping[str, str], body: bytes, *, cut: bool = False
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = cut

    def handle(self) -> None:
        try:
            super().handle()
        except (BrokenPipeError, ConnectionResetError):
            return

    def do_GET(self) -> None:
        self._forward()

    def do_PUT(self) -> None:
        self._forward()

    def do_POST(self) -> None:
        self._forward()

    def log_message(self, format: str, *args: object) -> None:
        return


@contextmanager
def s3_server() -> Iterator[S3Proxy]:
    """A proxy to an S3 server without buckets."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    proxy = S3Proxy(server.get_host_and_port()[1])
    Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        server.stop()


def make_bucket(proxy: S3Proxy, name: str) -> None:
    connection = HTTPConnection("127.0.0.1", proxy.port)
    connection.request("PUT", f"/{name}")
    assert connection.getresponse().read() == b""
    connection.close()
