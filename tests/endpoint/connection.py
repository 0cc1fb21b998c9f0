"""HTTP/1.1 on one connection: parses requests, sends replies whole, slowly or broken."""

import asyncio
import http
import socket
import struct
from collections.abc import Callable, Mapping
from typing import NamedTuple

_PHRASES = {status.value: status.phrase for status in http.HTTPStatus}


class Incoming(NamedTuple):
    """A whole request; the names of its headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Connection(asyncio.Protocol):
    """Handles one request after the other: calls `serve` with each, which replies later.

    It breaks at once if it is not `wanted` when it is made. `lost`, which `serve` may set, is
    called when the client leaves before the reply.
    """

    def __init__(
        self,
        serve: Callable[[Incoming, "Connection"], None],
        opened: "set[Connection]",
        wanted: Callable[[], bool],
    ) -> None:
        self._serve = serve
        self._wanted = wanted
        self._opened = opened
        self._bytes = bytearray()
        self._busy = False
        self._last = False
        self._timer: asyncio.TimerHandle | None = None
        self.lost: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._opened.add(self)
        if not self._wanted():
            self.reset()

    def connection_lost(self, error: Exception | None) -> None:
        self._opened.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self.lost is not None:
            self.lost()

    def data_received(self, chunk: bytes) -> None:
        self._bytes += chunk
        if not self._busy:
            self._next()

    def _next(self) -> None:
        """Serves the next request if the whole of it is there."""
        end = self._bytes.find(b"\r\n\r\n")
        if end < 0:
            return
        first, *lines = self._bytes[:end].decode("latin-1").split("\r\n")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        if "transfer-encoding" in headers:
            self._last = True
            self.reply(411, {}, b"the fake endpoint wants content-length")
            return
        length = end + 4 + int(headers.get("content-length", 0))
        if len(self._bytes) < length:
            return
        body = bytes(self._bytes[end + 4 : length])
        del self._bytes[:length]
        method, path, _ = first.split(" ")
        self._busy = True
        self._last = headers.get("connection", "").lower() == "close"
        self._serve(Incoming(method, path, headers, body), self)

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Calls after `seconds`, unless the connection is lost before."""
        self._timer = asyncio.get_running_loop().call_later(seconds, call)

    def reply(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Sends a whole reply and turns to the next request."""
        self._transport.write(self._whole(status, headers, body))
        self._done()

    def drip(
        self, status: int, headers: Mapping[str, str], body: bytes, *, pause: float, size: int
    ) -> None:
        """Sends a reply `size` bytes at a time, `pause` seconds apart."""
        left = bytearray(self._whole(status, headers, body))

        def drop() -> None:
            self._transport.write(bytes(left[:size]))
            del left[:size]
            if left:
                self.later(pause, drop)
            else:
                self._done()

        drop()

    def reset(self, part: bytes = b"") -> None:
        """Breaks the connection, after `part` of a reply."""
        self._transport.write(part)
        raw = self._transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def midway(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Sends half of a reply, waits until the client can have read it, and resets."""
        whole = self._whole(status, headers, body)
        self._transport.write(whole[: len(whole) - len(body) // 2])
        self.later(0.05, self.reset)

    def close(self) -> None:
        """Closes the connection in good order."""
        self._transport.close()

    def _whole(self, status: int, headers: Mapping[str, str], body: bytes) -> bytes:
        lines = [f"HTTP/1.1 {status} {_PHRASES.get(status, 'Overloaded')}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += [f"content-length: {len(body)}", "\r\n"]
        return "\r\n".join(lines).encode("latin-1") + body

    def _done(self) -> None:
        self._busy = False
        self.lost = None
        if self._last:
            self.close()
        elif self._bytes:
            asyncio.get_running_loop().call_soon(self._next)
