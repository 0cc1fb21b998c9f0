"""Replies of a server that is no language model: too long, or with nonsense beside the answer."""

import asyncio
import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from claimflow.flows.judge.client import chat
from claimflow.flows.judge.litellm_provider import LitellmProvider
from claimflow.flows.judge.provider import ChatReply, ProviderError, Request

MEBIBYTE = b" " * 2**20
MODELS = ["openai/m", "hosted_vllm/m"]


@contextmanager
def server(status: int, headers: dict[str, str], *parts: bytes, times: int = 1) -> Iterator[str]:
    """The address of a server that sends `parts` so many times to each request."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(status)
            for name, value in {"content-type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                for _ in range(times):
                    for part in parts:
                        self.wfile.write(part)
            except OSError:
                pass  # The client has read enough.

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        thread = Thread(target=serving.serve_forever, args=[0.05])
        thread.start()
        try:
            yield f"http://127.0.0.1:{serving.server_port}/v1"
        finally:
            serving.shutdown()
            thread.join()


def asked(model: str, address: str) -> ChatReply:
    async def ask() -> ChatReply:
        provider = LitellmProvider()
        request = Request(model, [{"role": "user", "content": "U"}], {}, address)
        try:
            return await chat(provider, request, timeout=60)
        finally:
            await provider.close()

    return asyncio.run(ask())


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("status", [200, 400])
def test_a_reply_without_end_is_cut_off(model: str, status: int) -> None:
    headers = {"content-length": str(2**32)}
    with (
        server(status, headers, MEBIBYTE, times=4096) as address,
        pytest.raises(ProviderError, match="the reply is longer than 16 MB") as caught,
    ):
        asked(model, address)
    assert caught.value.kind == "bad_request"


@pytest.mark.parametrize("model", MODELS)
def test_a_small_reply_that_unpacks_to_a_large_one_is_cut_off(model: str) -> None:
    bomb = gzip.compress(MEBIBYTE * 200)
    headers = {"content-length": str(len(bomb)), "content-encoding": "gzip"}
    with server(200, headers, bomb) as address, pytest.raises(ProviderError, match="16 MB"):
        asked(model, address)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("fingerprint", [{"a": 1}, 1e308, [None], True])
def test_an_answer_with_an_absurd_fingerprint_is_kept(model: str, fingerprint: Any) -> None:
    message = {"role": "assistant", "content": "yes"}
    body = json.dumps(
        {
            "id": "1",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "system_fingerprint": fingerprint,
        }
    ).encode()
    with server(200, {"content-length": str(len(body))}, body) as address:
        reply = asked(model, address)
    assert (reply.text, reply.fingerprint) == ("yes", None)
