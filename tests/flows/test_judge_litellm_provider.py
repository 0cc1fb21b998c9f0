"""Requests and replies over real HTTP, through litellm."""

import asyncio
import http.server
import inspect
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from claimflow.flows.judge.provider import (
    ChatReply,
    ProviderError,
    Request,
    Usage,
    open_provider,
)
from claimflow.flows.judge.response_formats import RESPONSE_FORMATS, format_parameters
from claimflow.stages.tools import Form

ROOT = Path(__file__).parents[2]
MODELS = ["openai/m", "hosted_vllm/m", "ollama_chat/m", "anthropic/claude-sonnet-4-5"]
ALIKE = MODELS[:2]
MESSAGES = [{"role": "user", "content": "What of the claim?"}]
KEYS = ("OPENAI_API_KEY", "HOSTED_VLLM_API_KEY", "OLLAMA_API_KEY")


class Endpoint(http.server.ThreadingHTTPServer):
    """Answers with `answer(path, body)`; notes paths, headers and bodies in `seen`."""

    daemon_threads = False
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.answer: Callable[[str, Any], Any] = lambda path, body: {}
        self.drip = 0.0
        self.delay = 0.0
        self.seen: list[tuple[str, Any, Any]] = []
        self.left = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class Answering(http.server.BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.seen.append((self.path, self.headers, body))
        sent = json.dumps(self.server.answer(self.path, body)).encode()
        time.sleep(self.server.delay)
        try:
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(sent)))
            self.end_headers()
            for start in range(0, len(sent), 10):
                self.wfile.write(sent[start : start + 10])
                time.sleep(self.server.drip)
        except OSError:
            self.server.left.set()

    def log_message(self, *parts: Any) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "quite-secret")


def request(endpoint: Endpoint, model: str, **parameters: Any) -> Request:
    address = endpoint.url if model.startswith(("ollama", "anthropic")) else f"{endpoint.url}/v1"
    return Request(model, MESSAGES, parameters, address)


def ask(*requests: Request, timeout: float = 10) -> list[ChatReply]:
    async def all_of_them() -> list[ChatReply]:
        provider = open_provider("litellm")
        try:
            asking = (provider.chat(asked, timeout=timeout) for asked in requests)
            return await asyncio.gather(*asking)
        finally:
            await provider.close()

    return asyncio.run(all_of_them())


def chat(message: dict[str, Any], finish: str = "stop", **more: Any) -> dict[str, Any]:
    """A reply in the words of OpenAI."""
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", **message}}
    usage = {"prompt_tokens": 50, "completion_tokens": 2, "total_tokens": 52}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": "m"} | {
        "choices": [choice],
        "usage": usage,
        **more,
    }


def spoken(path: str, body: Any) -> dict[str, Any]:
    """A good reply to any of the four, each in its own words."""
    if path == "/api/chat":
        message = {"role": "assistant", "content": "hi"}
        counts = {"prompt_eval_count": 50, "eval_count": 2}
        return {"model": "m", "message": message, "done": True, "done_reason": "stop", **counts}
    if path == "/v1/messages":
        usage = {"input_tokens": 50, "output_tokens": 2}
        content = [{"type": "text", "text": "hi"}]
        about = {"id": "1", "type": "message", "role": "assistant", "model": "m"}
        return {**about, "content": content, "stop_reason": "end_turn", "usage": usage}
    return chat({"content": "hi"})


def test_every_provider_gives_the_same(endpoint: Endpoint) -> None:
    endpoint.answer = spoken
    for model in MODELS:
        (received,) = ask(request(endpoint, model, max_tokens=9))
        assert received._replace(usage=received.usage._replace(cached=None)) == ChatReply(
            "hi", "stop", None, Usage(50, None, 2), None
        ), model
    assert len(endpoint.seen) == 4


def test_a_reply_is_read_whole(endpoint: Endpoint) -> None:
    usage = {
        "prompt_tokens": 50,
        "completion_tokens": 2,
        "total_tokens": 52,
        "prompt_tokens_details": {"cached_tokens": 20},
    }
    message = {"content": "cut o", "reasoning_content": "hm"}
    endpoint.answer = lambda *_: chat(message, "length", usage=usage, system_fingerprint="fp")
    for received in ask(*(request(endpoint, model) for model in ALIKE)):
        assert received == ChatReply("cut o", "length", None, Usage(50, 20, 2), "fp")


def test_the_instructions_are_marked_for_the_cache_of_claude(endpoint: Endpoint) -> None:
    endpoint.answer = spoken
    turns = [{"role": "system", "content": "Judge."}, *MESSAGES]
    for model in ("anthropic/claude-sonnet-4-5", "openai/m"):
        address = endpoint.url if model.startswith("anthropic") else f"{endpoint.url}/v1"
        ask(Request(model, turns, {}, address))
    (_, _, claude), (_, _, plain) = endpoint.seen
    ephemeral = {"type": "ephemeral"}
    assert claude["system"] == [{"type": "text", "text": "Judge.", "cache_control": ephemeral}]
    assert plain["messages"][0] == turns[0]
    assert turns[0]["content"] == "Judge."


@pytest.mark.parametrize("lacking", [{"usage": None}, {"usage": {}}])
def test_unreported_tokens_are_unknown(endpoint: Endpoint, lacking: Any) -> None:
    endpoint.answer = lambda *_: chat({"content": "hi"}, **lacking)
    for received in ask(*(request(endpoint, model) for model in ALIKE)):
        assert received.usage == Usage(None, None, None)


@pytest.mark.parametrize(
    ("message", "finish", "refusal"),
    [
        ({"content": None, "refusal": "I cannot"}, "stop", "I cannot"),
        ({"content": None}, "content_filter", "content_filter"),
        ({"content": ""}, "content_filter", "content_filter"),
        ({"content": "half a w"}, "content_filter", None),
        ({"content": None}, "stop", None),
    ],
)
def test_a_refusal_is_reported(endpoint: Endpoint, message: Any, finish: str, refusal: Any) -> None:
    endpoint.answer = lambda *_: chat(message, finish)
    for received in ask(*(request(endpoint, model) for model in ALIKE)):
        assert (received.refusal, received.text) == (refusal, message["content"] or "")


def test_no_choices_are_a_broken_server(endpoint: Endpoint) -> None:
    endpoint.answer = lambda *_: chat({"content": "hi"}, choices=[])
    for model in ALIKE:
        with pytest.raises(ProviderError, match="the reply has no choices") as caught:
            ask(request(endpoint, model))
        assert caught.value.kind == "server"


class Verdict(BaseModel):
    verdict: str


FORM = Form("{{claims}}", "claims", Verdict, 10, keep_part=True)


def tool_called(path: str, body: Any) -> dict[str, Any]:
    function = {"name": "reply", "arguments": {"claims": []}}
    if path == "/api/chat":
        message = {"role": "assistant", "content": "", "tool_calls": [{"function": function}]}
        return {**spoken(path, body), "message": message}
    if path == "/v1/messages":
        use = {"type": "tool_use", "id": "1", "name": "reply", "input": {"claims": []}}
        return {**spoken(path, body), "content": [use], "stop_reason": "tool_use"}
    function["arguments"] = json.dumps(function["arguments"])
    call = {"id": "1", "type": "function", "function": function}
    return chat({"content": None, "tool_calls": [call]}, "tool_calls")


def test_the_arguments_of_a_tool_are_the_text(endpoint: Endpoint) -> None:
    endpoint.answer = tool_called
    for model in MODELS:
        (received,) = ask(request(endpoint, model, **format_parameters("tool", FORM)))
        assert json.loads(received.text) == {"claims": []}, model


def test_words_are_read_although_a_tool_was_asked_for(endpoint: Endpoint) -> None:
    endpoint.answer = spoken
    for model in MODELS:
        (received,) = ask(request(endpoint, model, **format_parameters("tool", FORM)))
        assert received.text == "hi"


@pytest.mark.parametrize("response_format", RESPONSE_FORMATS)
def test_parameters_go_out_as_they_are(endpoint: Endpoint, response_format: Any) -> None:
    endpoint.answer = spoken
    parameters = {
        "temperature": 0,
        "seed": 7,
        "top_k": 5,
        **format_parameters(response_format, FORM),
    }
    for model in ALIKE:
        ask(request(endpoint, model, **parameters))
        sent = endpoint.seen[-1][2]
        if model.startswith("hosted_vllm") and "tools" in parameters:
            # litellm leaves out of tools what old releases of vLLM did not know.
            (tool,) = sent.pop("tools")
            assert tool["function"]["name"] == "reply"
            assert "claims" in tool["function"]["parameters"]["properties"]
            del parameters["tools"]
        assert sent == {"model": "m", "messages": MESSAGES, **parameters}, model


def test_a_server_of_ones_own_needs_no_key(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.answer = spoken
    for model in MODELS[:3]:
        assert missing(model, endpoint.url) is None
        ask(request(endpoint, model))
    monkeypatch.setenv("OPENAI_API_KEY", "from-environment")
    ask(request(endpoint, "openai/m"))
    assert endpoint.seen[-1][1]["authorization"] == "Bearer from-environment"


def test_a_reply_that_drips_is_out_of_time(endpoint: Endpoint) -> None:
    """One timeout bounds the whole call, however often a part of the reply arrives."""
    endpoint.answer = spoken
    asked = [request(endpoint, model) for model in MODELS]
    # A request with a header of its own is sent by the client of OpenAI.
    asked.append(request(endpoint, "openai/m", extra_headers={"x-team": "a"}))

    async def failures() -> list[Any]:
        provider = open_provider("litellm")

        async def send(timeout: float) -> list[Any]:
            address = f"{endpoint.url}/v1"
            chats = (provider.chat(one, timeout=timeout) for one in asked)
            embed = provider.embed(
                "openai/m", ["a"], api_base=address, parameters={}, timeout=timeout
            )
            return await asyncio.gather(*chats, embed, return_exceptions=True)

        try:
            await send(60)  # The first call of each kind may take seconds of imports.
            endpoint.seen.clear()
            endpoint.drip = 0.4
            return await send(2)
        finally:
            await provider.close()

    for failure in asyncio.run(failures()):
        assert isinstance(failure, ProviderError), failure
        assert (failure.kind, str(failure)) == ("timeout", "no whole reply within 2 seconds")
    assert len(endpoint.seen) == len(asked) + 1


def test_a_call_can_be_cancelled(endpoint: Endpoint) -> None:
    endpoint.answer, endpoint.delay = spoken, 0.3

    async def cancelled() -> None:
        provider = open_provider("litellm")
        task = asyncio.create_task(provider.chat(request(endpoint, "openai/m"), timeout=10))
        while not endpoint.seen:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await provider.close()

    asyncio.run(cancelled())


def test_many_calls_at_once_and_loops_one_after_the_other(endpoint: Endpoint) -> None:
    endpoint.answer = spoken
    for _ in range(2):
        received = ask(*(request(endpoint, MODELS[n % 4]) for n in range(40)))
        assert {reply.text for reply in received} == {"hi"}
    if Path("/proc/self/fd").exists():
        held = len(list(Path("/proc/self/fd").iterdir()))
        ask(*(request(endpoint, model) for model in MODELS * 5))
        assert len(list(Path("/proc/self/fd").iterdir())) <= held + 2


def missing(model: str, api_base: str | None) -> str | None:
    return open_provider("litellm").missing(model, api_base)


def vectors(path: str, body: Any) -> dict[str, Any]:
    """Embeddings of one number, the length of the text, last first."""
    found = [
        {"object": "embedding", "index": index, "embedding": [float(len(text)), 0.5]}
        for index, text in enumerate(body["input"])
    ]
    usage = {"prompt_tokens": 5, "total_tokens": 5}
    return {"object": "list", "model": "m", "data": found[::-1], "usage": usage}


def embedded(endpoint: Endpoint, model: str, texts: list[str]) -> Any:
    async def once() -> Any:
        provider = open_provider("litellm")
        try:
            where = f"{endpoint.url}/v1"
            return await provider.embed(model, texts, api_base=where, parameters={}, timeout=10)
        finally:
            await provider.close()

    return asyncio.run(once())


def test_embeddings_come_in_the_order_asked(endpoint: Endpoint) -> None:
    endpoint.answer = vectors
    for model in ALIKE:
        found, usage = embedded(endpoint, model, ["a", "", "abc"])
        assert found == [[1.0, 0.5], [0.0, 0.5], [3.0, 0.5]]
        assert (usage.prompt, usage.cached) == (5, None)


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found.pop(),
        lambda found: found.append({"index": 9, "embedding": [1.0, 1.0]}),
        lambda found: found.append({"index": 0, "embedding": [1.0, 1.0]}),
        lambda found: found[0].update(index=7),
        lambda found: found[0].update(embedding="zz"),
    ],
)
def test_embeddings_that_do_not_fit_are_a_broken_server(
    endpoint: Endpoint, change: Callable[[list[Any]], Any]
) -> None:
    def changed(path: str, body: Any) -> dict[str, Any]:
        reply = vectors(path, body)
        change(reply["data"])
        return reply

    endpoint.answer = changed
    for model in ALIKE:
        with pytest.raises(ProviderError) as caught:
            embedded(endpoint, model, ["a", "ab"])
        assert caught.value.kind == "server", model


def test_what_is_missing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing("openai/gpt-4o-mini", None) == "set OPENAI_API_KEY in the environment"
    assert missing("hosted_vllm/m", None) == (
        "hosted_vllm needs an api_base, such as http://127.0.0.1:8000/v1"
    )
    assert "names no provider" in str(missing("nobody/m", None))
    assert missing("ollama_chat/m", None) is None
    assert missing("anthropic/claude-sonnet-4-5", None) is None
    monkeypatch.setenv("ANTHROPIC_API_KEY", "")
    unset = "set ANTHROPIC_API_KEY in the environment"
    assert missing("anthropic/claude-sonnet-4-5", None) == unset
    monkeypatch.setenv("OPENAI_API_KEY", "")
    assert missing("openai/gpt-4o-mini", None) == "set OPENAI_API_KEY in the environment"
    monkeypatch.setenv("OPENAI_API_KEY", "word\n")
    assert "OPENAI_API_KEY in the environment holds" in str(missing("openai/gpt-4o-mini", None))


ACCESS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


@pytest.mark.parametrize(
    ("model", "given", "names"),
    [
        ("openai/m", [], ("OPENAI_API_KEY",)),
        ("ollama_chat/m", [], ("OLLAMA_API_KEY",)),
        ("bedrock/amazon.nova-lite-v1:0", [], ACCESS),
        ("bedrock/amazon.nova-lite-v1:0", ["AWS_ACCESS_KEY_ID", "AWS_PROFILE"], ("AWS_PROFILE",)),
        ("bedrock/amazon.nova-lite-v1:0", [*ACCESS, "AWS_PROFILE"], ACCESS),
        (
            "bedrock/amazon.nova-lite-v1:0",
            [*ACCESS, "AWS_BEARER_TOKEN_BEDROCK"],
            ("AWS_BEARER_TOKEN_BEDROCK",),
        ),
        ("vertex_ai/gemini-2.5-flash", [], ("GOOGLE_APPLICATION_CREDENTIALS",)),
        ("vertex_ai/gemini-2.5-flash", ["VERTEXAI_CREDENTIALS"], ("VERTEXAI_CREDENTIALS",)),
    ],
)
def test_keys_are_looked_for_where_litellm_reads_them(
    monkeypatch: pytest.MonkeyPatch, model: str, given: list[str], names: tuple[str, ...]
) -> None:
    for name in [one for one in os.environ if one.startswith(("AWS_", "GOOGLE_", "VERTEX"))]:
        monkeypatch.delenv(name)
    for name in given:
        monkeypatch.setenv(name, "given")
    assert open_provider("litellm").key_variable(model, None) == names
    folder = Path(str(find_spec("litellm").origin)).parent  # type: ignore[union-attr]
    sources = [*folder.glob("llms/bedrock/*.py"), *folder.glob("llms/vertex_ai/**/*.py")]
    read = "".join(path.read_text("utf-8") for path in sources)
    if not model.startswith(("openai", "ollama")) and "AWS_PROFILE" not in names:
        assert all(name in read for name in names)


def test_importing_needs_no_litellm() -> None:
    names = ("provider", "litellm_provider", "provider_errors", "budget", "client", "judge")
    code = f"import sys, {', '.join(f'claimflow.flows.judge.{name}' for name in names)}\n"
    code += "assert not {'litellm', 'openai', 'aiohttp'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_a_usual_key_is_found_without_litellm() -> None:
    """Its import takes seconds, in which steps that ask nothing can be made."""
    code = (
        "import sys; from claimflow.flows.judge.litellm_provider import LitellmProvider\n"
        "missing = LitellmProvider().missing\n"
        "assert missing('openai/gpt-4o-mini', None) is None\n"
        "assert missing('hosted_vllm/m', 'http://127.0.0.1:1/v1') is None\n"
        "assert 'litellm' not in sys.modules\n"
        "assert missing('openay/gpt-4o-mini', None) and 'litellm' in sys.modules"
    )
    there = {**os.environ, "OPENAI_API_KEY": "k"}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, env=there)


GUARDED = """
import asyncio, logging, os, sys, warnings
strangers = []
def watch(event, given):
    if event == "socket.connect" and isinstance(given[1], tuple):
        host = given[1][0]
    elif event == "socket.getaddrinfo":
        host = given[0]
    else:
        return
    if host not in ("127.0.0.1", b"127.0.0.1"):
        strangers.append(host)
        raise OSError("only this machine")
sys.addaudithook(watch)
logging.basicConfig(level=logging.DEBUG)
filters = list(warnings.filters)
sys.path.insert(0, sys.argv[2])
from claimflow.flows.judge.provider import ProviderError, Request, open_provider

async def main():
    provider = open_provider("litellm")
    for model in ("openai/m", "hosted_vllm/m", "ollama_chat/m", "anthropic/claude-sonnet-4-5"):
        await provider.warm_up(model)
        provider.missing(model, sys.argv[1]), provider.list_price(model)
        path = "/v1" if model.endswith("/m") and "ollama" not in model else ""
        for parameters in ({}, {"response_format": {"type": "json_object"}}):
            messages = [{"role": "user", "content": "PROMPT-TO-KEEP"}]
            asked = Request(model, messages, parameters, sys.argv[1] + path)
            received = await provider.chat(asked, timeout=20)
            assert received.text == "hi"
        try:
            await provider.chat(Request(model, messages, {}, "http://127.0.0.1:1"), timeout=20)
        except ProviderError:
            pass
    provider.list_price("ollama/llama3")
    try:
        texts = ["PROMPT-TO-KEEP"]
        await provider.embed("openai/m", texts, api_base=sys.argv[1], parameters={}, timeout=20)
    except ProviderError:
        pass
    await provider.close()

asyncio.run(main())
assert not strangers, strangers
assert warnings.filters == filters
assert "FROM_DOTENV" not in os.environ
"""


def test_no_other_address_is_asked_and_nothing_is_printed(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    endpoint.answer = spoken
    (tmp_path / ".env").write_text("FROM_DOTENV=1\n", "utf-8")
    contrary = {
        "LITELLM_LOG": "DEBUG",
        "OPENAI_LOG": "debug",
        "OPENAI_API_KEY": "KEY-TO-KEEP",
        "ANTHROPIC_API_KEY": "KEY-TO-KEEP",
    }
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", GUARDED, endpoint.url, str(ROOT)],
        env={**os.environ, **contrary},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    report = done.stdout + done.stderr
    assert done.returncode == 0, report[-3000:]
    assert "TO-KEEP" not in report
    assert "Feedback" not in report


AGENTIC = {"async_should_run_agentic_loop", "async_should_run_chat_completion_agentic_loop"}
"""litellm asks callbacks that override these whether they go on with a reply, from 1.107 on: inside
of the function that sends, so that nothing short of replacing it prevents this."""


class EveryHook:
    """Makes a `CustomLogger` that notes the name of each of its methods that litellm calls."""

    def __init__(self) -> None:
        from litellm.integrations.custom_logger import CustomLogger

        self.called: list[str] = []
        hooks = {
            name: self.noting(name, method)
            for name, method in vars(CustomLogger).items()
            if inspect.isfunction(method) and name != "__init__"
        }
        self.logger = type("Noting", (CustomLogger,), hooks)()

    def noting(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any, **named: Any) -> Any:
            self.called.append(name)
            return method(*arguments, **named)

        return noted


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> EveryHook:
    open_provider("litellm").list_price("openai/m")
    import litellm

    every = EveryHook()
    monkeypatch.setattr(litellm, "callbacks", [every.logger])
    return every


def without_address(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `endpoint` what litellm takes for OpenAI."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-in-the-environment")
    monkeypatch.setenv("OPENAI_API_BASE", f"{endpoint.url}/v1")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-7")


def openai_or_responses(path: str, body: Any) -> dict[str, Any]:
    """A good reply of OpenAI to a chat, by either of its APIs."""
    if not path.endswith("/responses"):
        return spoken(path, body)
    text = {"type": "output_text", "text": "hi", "annotations": []}
    message = {"type": "message", "id": "1", "role": "assistant", "status": "completed"}
    tokens = {"input_tokens": 50, "output_tokens": 2, "total_tokens": 52}
    reply = {"id": "1", "object": "response", "created_at": 1, "status": "completed", "model": "m"}
    settings = {"parallel_tool_calls": True, "tools": [], "tool_choice": "auto"}
    return {**reply, **settings, "output": [message | {"content": [text]}], "usage": tokens}


@pytest.mark.parametrize("model", [*MODELS, "deepseek/m", "perplexity/m"])
def test_no_hook_of_the_users_callbacks_sees_a_call(
    endpoint: Endpoint, hooks: EveryHook, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DEEPSEEK", "PERPLEXITYAI", "PERPLEXITY"):
        monkeypatch.setenv(f"{name}_API_KEY", "quite-secret")
    endpoint.answer = spoken
    (received,) = ask(request(endpoint, model))
    assert received.text == "hi"
    assert set(hooks.called) <= AGENTIC


@pytest.mark.parametrize(
    ("model", "parameters", "path"),
    [
        ("openai/gpt-4o-mini", {}, "/v1/chat/completions"),
        ("openai/gpt-4o-mini", {"extra_headers": {"x-team": "a"}}, "/v1/chat/completions"),
        ("openai/o1-pro", {}, "/v1/responses"),
        ("openai/responses/m", {}, "/v1/responses"),
    ],
)
def test_no_hook_sees_a_call_of_openai_itself(
    endpoint: Endpoint,
    hooks: EveryHook,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    parameters: dict[str, Any],
    path: str,
) -> None:
    without_address(endpoint, monkeypatch)
    endpoint.answer = openai_or_responses
    (received,) = ask(Request(model, MESSAGES, parameters, None))
    assert received[:4] == ("hi", "stop", None, Usage(50, None, 2))
    ((asked, headers, body),) = endpoint.seen
    assert asked == path
    assert headers["authorization"] == "Bearer sk-in-the-environment"
    assert headers["openai-organization"] == "org-7"
    assert body["model"] == model.rpartition("/")[2]
    assert set(hooks.called) <= AGENTIC


@pytest.mark.parametrize("model", ALIKE)
def test_no_hook_sees_texts_to_embed(endpoint: Endpoint, hooks: EveryHook, model: str) -> None:
    endpoint.answer = vectors
    embedded(endpoint, model, ["a text"])
    assert len(endpoint.seen) == 1
    assert hooks.called == []


def test_an_http_client_of_the_user_stays_open_and_sends_no_text_to_embed(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_provider("litellm").list_price("openai/m")
    import httpx
    import litellm

    sent: list[httpx.Request] = []

    async def note(request: httpx.Request) -> None:
        sent.append(request)

    users = httpx.AsyncClient(event_hooks={"request": [note]})
    monkeypatch.setattr(litellm, "aclient_session", users)
    endpoint.answer = vectors
    embedded(endpoint, "openai/m", ["a text"])
    assert sent == []
    endpoint.answer = spoken
    ask(request(endpoint, "openai/m", extra_headers={"x-team": "a"}))
    assert len(endpoint.seen) == 2
    assert not users.is_closed


def test_address_and_key_that_a_script_gave_litellm_stay_together(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_provider("litellm").list_price("openai/m")
    import litellm

    monkeypatch.setattr(litellm, "api_base", endpoint.url)
    monkeypatch.setattr(litellm, "api_key", "sk-gateway")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-environment")
    endpoint.answer = spoken
    ask(Request("openai/m", MESSAGES, {}, None))
    ((_, headers, _),) = endpoint.seen
    assert headers["authorization"] == "Bearer sk-gateway"


@pytest.mark.parametrize("choices", [[None], [{"message": 5}], [{"message": {"content": [1]}}]])
def test_a_reply_that_cannot_be_read_gives_a_reason_and_no_stack_trace(
    endpoint: Endpoint, choices: list[Any]
) -> None:
    endpoint.answer = lambda path, body: {"choices": choices}
    for model in ALIKE:
        with pytest.raises(ProviderError) as caught:
            ask(request(endpoint, model))
        assert caught.value.kind == "server"
        assert "the reply cannot be read" in caught.value.message
        assert "Traceback" not in caught.value.message
