"""Starts and stops the endpoint in a thread of this process."""

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Any, Self

from tests.endpoint.batches import BatchService
from tests.endpoint.behaviour import Behaviour
from tests.endpoint.connection import Connection
from tests.endpoint.fault import Rule
from tests.endpoint.record import Recorded
from tests.endpoint.service import Service
from tests.endpoint.throttle import Throttle


def serve(
    *,
    fault: Rule | None = None,
    latency: float = 0.0,
    per_token: float = 0.0,
    spread: float = 0.0,
    throttle: Throttle | None = None,
    refuses: Collection[str] = (),
    api_key: str | None = None,
    dimension: int = 384,
    keep_bodies: bool = True,
    port: int = 0,
) -> "Endpoint":
    """Start an endpoint, which listens on return; end it with `with` or `stop()`.

    The settings are those of `Behaviour`.
    """
    behaviour = Behaviour(
        fault,
        latency,
        per_token,
        spread,
        throttle,
        refuses,
        api_key,
        dimension,
        keep_bodies,
    )
    return Endpoint(behaviour, port)


class Endpoint:
    """A running endpoint. `behaviour` may be changed at any time."""

    def __init__(self, behaviour: Behaviour, port: int) -> None:
        self.behaviour = behaviour
        self._service = Service(behaviour, self._stop_listening)
        self._opened: set[Connection] = set()
        self._listening: asyncio.Server | None = None
        self._again: asyncio.TimerHandle | None = None
        self._loop = asyncio.new_event_loop()
        # This socket never listens. It reserves the port while the endpoint refuses connections.
        self._place = socket.socket()
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._place.bind(("127.0.0.1", port))
        self.port: int = self._place.getsockname()[1]
        self._loop.run_until_complete(self._listen())
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        if kind is None and self._service.broken:
            raise self._service.broken[0]

    @property
    def url(self) -> str:
        """The base address for Ollama and Anthropic clients."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def api_base(self) -> str:
        """The base address for OpenAI clients."""
        return f"{self.url}/v1"

    @property
    def requests(self) -> list[Recorded]:
        """All requests so far, in the order of arrival."""
        return list(self._service.record.requests)

    @property
    def hits(self) -> int:
        """How many requests there were."""
        return len(self._service.record.requests)

    @property
    def batches(self) -> BatchService:
        """The batches that were submitted."""
        return self._service.batches

    @property
    def hits_by_key(self) -> Counter[str]:
        """How many requests were equal, by the hash of path and body."""
        return Counter(one.key for one in self.requests)

    @property
    def highest(self) -> int:
        """How many requests were served at once at most; throttled ones do not count."""
        return self._service.record.highest

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._opened)

    def stats(self) -> dict[str, Any]:
        """The counts."""
        return self._service.record.stats()

    def clear(self) -> None:
        """Deletes the record of all requests so far."""
        self._on_the_loop(self._service.record.clear)

    def refuse(self) -> None:
        """Breaks all connections and refuses new ones until `accept()`."""
        self._on_the_loop(lambda: self._stop_listening(0.0))

    def accept(self) -> None:
        """Listens again, on the same port."""
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()

    def stop(self) -> None:
        """Breaks all connections and closes everything; a second call does nothing."""
        if self._loop.is_closed():
            return
        self._on_the_loop(lambda: self._stop_listening(0.0))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._place.close()

    async def _listen(self) -> None:
        if self._listening is None:
            bound = socket.create_server(("127.0.0.1", self.port), backlog=1024, reuse_port=True)
            self._listening = await self._loop.create_server(
                self._connection, sock=bound, backlog=1024
            )

    def _connection(self) -> Connection:
        return Connection(self._service.serve, self._opened, lambda: self._listening is not None)

    def _stop_listening(self, seconds: float) -> None:
        """Closes the listening socket and every connection; listens again after `seconds`."""
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if self._listening is not None:
            # asyncio drops, with a warning, connections that it has accepted and not yet set up
            # when their server closes. It sets them up in the next cycle.
            for listening in self._listening.sockets:
                self._loop.remove_reader(listening.fileno())
            self._loop.call_soon(self._listening.close)
            self._listening = None
        for connection in list(self._opened):
            connection.reset()
        if seconds > 0:
            self._again = self._loop.call_later(
                seconds, lambda: self._loop.create_task(self._listen())
            )

    def _on_the_loop(self, call: Callable[[], object]) -> None:
        """Runs `call` in the endpoint's thread and waits for it and one more cycle of its loop."""
        done = threading.Event()

        def run() -> None:
            call()
            self._loop.call_soon(self._loop.call_soon, done.set)

        self._loop.call_soon_threadsafe(run)
        done.wait()
