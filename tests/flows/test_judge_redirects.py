"""No redirect is followed: prompts and keys go to the address of the settings and nowhere else."""

import asyncio
import http.server
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from claimflow.flows.judge.client import chat
from claimflow.flows.judge.provider import (
    ChatReply,
    JudgeProvider,
    ProviderError,
    Request,
    open_provider,
)
from claimflow.flows.judge.provider_errors import classify
from tests.endpoint.server import serve
from tests.flows.judged import Judged

MESSAGES = [{"role": "user", "content": "PROMPT-TO-KEEP of this very judge"}]
CHATS = (
    "openai/m", "openai/o1-pro", "hosted_vllm/m", "ollama_chat/m", "anthropic/claude-sonnet-4-5",
    "azure/m", "deepseek/m", "gemini/m", "groq/m", "mistral/m", "openrouter/m",
    "perplexity/m", "together_ai/m", "xai/m",
)  # fmt: skip
EMBEDDERS = (
    "openai/m", "azure/m", "cohere/m", "gemini/m", "hosted_vllm/m", "mistral/m", "ollama/m",
    "voyage/m",
)  # fmt: skip


class Redirecting(http.server.ThreadingHTTPServer):
    """Answers every request by a redirect to `location`; `seen` are the paths asked for."""

    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.location: str | None = f"{self.url}/elsewhere"
        self.status = 307
        self.seen: list[str] = []


class Handler(http.server.BaseHTTPRequestHandler):
    server: Redirecting

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.seen.append(self.path)
        self.send_response(self.server.status)
        if self.server.location is not None:
            self.send_header("location", self.server.location)
        self.send_header("content-length", "0")
        self.end_headers()

    do_GET = do_POST  # noqa: N815

    def log_message(self, *parts: Any) -> None:
        pass


@pytest.fixture
def redirecting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Redirecting]:
    for name in {one.partition("/")[0].upper() for one in (*CHATS, *EMBEDDERS)}:
        monkeypatch.setenv(f"{name}_API_KEY", "quite-secret-key")
    monkeypatch.setenv("AZURE_API_VERSION", "2024-06-01")
    with Redirecting() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def asked(model: str, server: Redirecting, *, embed: bool = False) -> ProviderError:
    async def once() -> None:
        provider = open_provider("litellm")
        base = f"{server.url}/v1"
        try:
            if embed:
                await provider.embed(model, ["a"], api_base=base, parameters={}, timeout=20)
            else:
                await provider.chat(Request(model, MESSAGES, {}, base), timeout=20)
        finally:
            await provider.close()

    with pytest.raises(ProviderError) as caught:
        asyncio.run(once())
    return caught.value


@pytest.mark.parametrize("model", CHATS)
def test_no_chat_follows_a_redirect(redirecting: Redirecting, model: str) -> None:
    error = asked(model, redirecting)
    assert error.kind == "fatal", error.message
    place = f"{redirecting.url}/elsewhere"
    assert f"307: the endpoint redirects to {place}, which is not followed" in error.message
    assert len(redirecting.seen) == 1


@pytest.mark.parametrize("model", EMBEDDERS)
def test_no_text_to_embed_follows_a_redirect(redirecting: Redirecting, model: str) -> None:
    error = asked(model, redirecting, embed=True)
    assert (error.kind, len(redirecting.seen)) == ("fatal", 1)
    assert "/elsewhere, which is not followed" in error.message


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_every_redirect_is_one(redirecting: Redirecting, status: int) -> None:
    redirecting.status = status
    for model in CHATS[:2]:
        assert asked(model, redirecting).message.startswith(f"{status}: the endpoint redirects")
    assert "/elsewhere" not in redirecting.seen


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        (
            "https://u:pass-word@other.example/v1/chat?key=pass-word#x",
            "https://other.example/v1/chat,",
        ),
        ("/v2/chat", "/v2/chat, which"),
        ("https://other.example/" + "a" * 6_000, "aaa…, which"),
        ("https://other.example/PROMPT-TO-KEEP of this very judge/x", "other.example/"),
        ("https://[broken", "redirects to "),
        (None, "redirects to "),
    ],
)
def test_where_a_redirect_points_is_shown_without_secrets(
    redirecting: Redirecting, location: str | None, shown: str
) -> None:
    redirecting.location = location
    message = asked("hosted_vllm/m", redirecting).message
    assert shown in message
    assert len(message) <= 300
    assert "pass-word" not in message
    assert "PROMPT-TO-KEEP of this" not in message
    assert len(redirecting.seen) == 1


def test_a_run_ends_with_the_address(
    tmp_path: Path, redirecting: Redirecting, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write("abc", api_base=f"{redirecting.url}/v1", max_concurrency=1)
        assert judged.command() == 6
    assert f"redirects to {redirecting.url}/elsewhere" in capsys.readouterr().err
    assert redirecting.seen == ["/v1/chat/completions"]


class Following(JudgeProvider):
    async def chat(self, request: Request, *, timeout: float) -> ChatReply:
        async with httpx.AsyncClient(timeout=timeout) as client:
            reply = await client.post(f"{request.api_base}/x", json=request.messages)
        reply.raise_for_status()
        return ChatReply("")


def test_a_redirect_of_a_provider_of_your_own_is_not_asked_again(redirecting: Redirecting) -> None:
    with pytest.raises(ProviderError) as caught:
        asyncio.run(chat(Following(), Request("m", MESSAGES, {}, redirecting.url), timeout=5))
    assert caught.value.kind == "fatal"
    assert f"redirects to {redirecting.url}/elsewhere" in caught.value.message


def test_other_statuses_of_three_hundred_are_no_redirect() -> None:
    for status in (300, 304):
        reply = httpx.Response(status, request=httpx.Request("POST", "http://127.0.0.1:1"))
        error = httpx.HTTPStatusError("odd", request=reply.request, response=reply)
        assert classify(error).kind == "server"


def test_a_client_of_litellm_follows_redirects_of_calls_that_are_not_ours(
    redirecting: Redirecting,
) -> None:
    """Texts for Ollama go through a client that litellm shares with the rest of the process."""
    open_provider("litellm").list_price("openai/m")
    client = sys.modules["litellm"].module_level_aclient.client
    assert asked("ollama/m", redirecting, embed=True).kind == "fatal"

    async def of_the_user() -> None:
        await client.post(f"{redirecting.url}/own")

    redirecting.seen.clear()
    assert client.follow_redirects
    with pytest.raises(httpx.TooManyRedirects):
        asyncio.run(of_the_user())
    assert redirecting.seen[:3] == ["/own", "/elsewhere", "/elsewhere"]
