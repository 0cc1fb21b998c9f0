"""What litellm would do beside asking, and does not do here."""

import asyncio
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from claimflow.flows.judge.provider_errors import ProviderError
from claimflow.flows.judge.transport import Request, close, litellm, send, unlogged, warm
from tests.endpoint.server import serve

MODELS = ["openai/m", "hosted_vllm/m", "anthropic/claude-sonnet-4-5"]
RESET = struct.pack("ii", 1, 0)
"""Linger for no time: the other side is told that the connection is gone."""
MESSAGES = [{"role": "user", "content": "What of the claim?"}]


class Breaking:
    """Hears a request whole, and breaks the connection."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.heard = 0
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def stop(self) -> None:
        # Closing alone would not wake a thread that accepts.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as said:
                size = 0
                while (line := said.readline()) not in (b"\r\n", b""):
                    if line.lower().startswith(b"content-length:"):
                        size = int(line.split(b":")[1])
                said.read(size)
                self.heard += 1
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


@pytest.fixture
def breaking() -> Iterator[Breaking]:
    server = Breaking()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "quite-secret")


def ask(model: str, address: str) -> None:
    async def one() -> None:
        try:
            await warm(model)
            await send(Request(model, MESSAGES, {}, address), timeout=10)
        finally:
            await close()

    asyncio.run(one())


@pytest.mark.parametrize("model", MODELS)
def test_a_request_whose_connection_breaks_is_sent_once(breaking: Breaking, model: str) -> None:
    with pytest.raises(ProviderError) as raised:
        ask(model, breaking.url)
    assert raised.value.kind == "server"
    assert breaking.heard == 1


def test_calls_are_neither_priced_nor_logged_by_litellm(monkeypatch: pytest.MonkeyPatch) -> None:
    litellm()
    needless: list[str] = []
    for module, name in (
        ("litellm.cost_calculator", "completion_cost"),
        ("litellm.litellm_core_utils.litellm_logging", "get_standard_logging_object_payload"),
    ):
        done = partial(needless.append, name)
        monkeypatch.setattr(sys.modules[module], name, lambda *_, done=done, **__: done())
    with serve() as endpoint:
        ask("openai/m", endpoint.api_base)
    assert needless == []


def test_what_is_unlogged_ends_with_the_block() -> None:
    litellm()
    internal = sys.modules["litellm._internal_context"].is_internal_call
    with unlogged():
        assert internal.get()
    assert not internal.get()
