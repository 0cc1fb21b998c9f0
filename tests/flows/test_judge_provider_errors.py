"""Every failure over real HTTP, through litellm, for four kinds of endpoint."""

import asyncio
import http.server
import json
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.flows.judge.provider import ProviderError, Request, open_provider
from claimflow.flows.judge.provider_errors import (
    classify,
    provider_errors_only,
    provider_message,
    scrub,
)

MODELS = ["openai/m", "hosted_vllm/m", "ollama_chat/m", "anthropic/claude-sonnet-4-5"]
PROMPT = "The Eiffel Tower is located in Paris, and response_format is what people call it."


class Endpoint(http.server.ThreadingHTTPServer):
    """Gives every request the same `answer` (status, headers, body) and counts `hits`."""

    daemon_threads = False
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.answer: tuple[int, dict[str, str], Any] = (200, {}, {})
        self.hits = 0
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class Answering(http.server.BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.server.hits += 1
        status, headers, body = self.server.answer
        sent = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        kind = "text/html" if isinstance(body, str) else "application/json"
        self.send_response(status)
        for name, value in {"content-type": kind, **headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *parts: Any) -> None:
        pass


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "HOSTED_VLLM_API_KEY", "OLLAMA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "quite-secret")


def troubles(base: str, models: list[str] = MODELS, **parameters: Any) -> dict[str, ProviderError]:
    """What goes wrong when each model is asked."""

    async def ask() -> dict[str, ProviderError]:
        found = {}
        provider = open_provider("litellm")
        messages = [{"role": "user", "content": PROMPT}]
        for model in models:
            address = base if model.startswith(("ollama", "anthropic")) else f"{base}/v1"
            with pytest.raises(ProviderError) as caught:
                await provider.chat(Request(model, messages, parameters, address), timeout=10)
            found[model] = caught.value
        await provider.close()
        return found

    return asyncio.run(ask())


def error_body(message: str, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "some_error", "param": None, "code": code}}


CASES: dict[str, tuple[str, int, dict[str, str], Any]] = {
    "rate limit": ("throttled", 429, {"retry-after": "7"}, error_body("Rate limit reached")),
    "rate limit unnamed": ("throttled", 429, {}, error_body("Slow down")),
    "gemini's quota per minute": (
        "throttled",
        429,
        {},
        error_body("You exceeded your current quota, check your billing. Please retry in 42.1s."),
    ),
    "529": ("throttled", 529, {"retry-after": "7"}, error_body("Busy, overloaded")),
    "overloaded": ("throttled", 503, {}, error_body("The engine is currently overloaded")),
    "503 that says when": ("throttled", 503, {"retry-after": "7"}, error_body("Back soon")),
    "503": ("server", 503, {}, error_body("Gone")),
    "500": ("server", 500, {}, error_body("Boom")),
    "500 in plain words": ("server", 500, {}, "Internal Server Error"),
    "502 in HTML": ("server", 502, {}, "<html><h1>Bad Gateway</h1></html>"),
    "409": ("server", 409, {}, error_body("Conflict")),
    "HTML with 200": ("server", 200, {}, "<html>Log in first</html>"),
    "nothing with 200": ("server", 200, {}, ""),
    "no choices": ("server", 200, {}, {"id": "1", "object": "chat.completion", "choices": []}),
    "neither choices": ("server", 200, {}, {"id": "1"}),
    "model failed at JSON": (
        "server",
        400,
        {},
        error_body("Failed to generate JSON for response_format", "json_validate_failed"),
    ),
    "408": ("timeout", 408, {}, error_body("Too slow")),
    "504": ("timeout", 504, {}, error_body("Gateway timed out")),
    "401": ("fatal", 401, {}, error_body("Incorrect API key provided: sk-abcdefghijkl1234.")),
    "403": ("fatal", 403, {}, error_body("Your country is not supported")),
    "402": ("fatal", 402, {}, error_body("Insufficient Balance")),
    "404": ("fatal", 404, {}, error_body("The model `m` does not exist", "model_not_found")),
    "404 in HTML": ("fatal", 404, {}, "<html>Not Found</html>"),
    "400 for a key": ("fatal", 400, {}, error_body("API key not valid. Please pass a valid one.")),
    "400 for a model": ("fatal", 400, {}, error_body("x/y is not a valid model ID")),
    "no quota": (
        "fatal",
        429,
        {},
        error_body(
            "You exceeded your current quota, please check your plan.", "insufficient_quota"
        ),
    ),
    "no credit": (
        "fatal",
        400,
        {},
        error_body("Your credit balance is too low to access the API."),
    ),
    "temperature": (
        "fatal",
        400,
        {},
        error_body("Unsupported value: 'temperature' does not support 0 with this model."),
    ),
    "max_tokens": (
        "fatal",
        400,
        {},
        error_body("'max_tokens' is not supported with this model.", "unsupported_parameter"),
    ),
    "seed": (
        "fatal",
        422,
        {},
        {"detail": [{"loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}]},
    ),
    "another parameter": (
        "fatal",
        400,
        {},
        error_body("Unrecognized request argument supplied: foo"),
    ),
    "response_format": (
        "format",
        400,
        {},
        error_body("'response_format' of type 'json_schema' is not supported with this model."),
    ),
    "response format": (
        "format",
        400,
        {},
        error_body("This response format type is unavailable now"),
    ),
    "tools": ("format", 400, {}, error_body("m does not support tools")),
    "tool use": ("format", 404, {}, error_body("No endpoints found that support tool use.")),
    "grammar": ("format", 422, {}, error_body("Grammar error: unknown keyword")),
    "policy": ("refused", 400, {}, error_body("Rejected by our safety system", "content_filter")),
    "policy of Azure": (
        "refused",
        400,
        {},
        error_body("Filtered due to the prompt triggering the content management policy."),
    ),
    "moderation": ("refused", 403, {}, error_body("Your input was flagged")),
    "context": (
        "too_long",
        400,
        {},
        error_body("This model's maximum context length is 8192 tokens; 50 in the tools."),
    ),
    "context with max_tokens": (
        "too_long",
        400,
        {},
        error_body(
            "'max_tokens' is too large: 9. This model's maximum context length is 8 tokens."
        ),
    ),
    "prompt": (
        "too_long",
        400,
        {},
        error_body("prompt is too long: 250000 tokens > 200000 maximum"),
    ),
    "llama.cpp": (
        "too_long",
        400,
        {},
        error_body("the request exceeds the available context size"),
    ),
    "tokens": ("too_long", 400, {}, error_body("Too many tokens in the request")),
    "400": ("bad_request", 400, {}, error_body("Bad thing")),
    "413": ("bad_request", 413, {}, error_body("Payload Too Large")),
    "422": ("bad_request", 422, {}, error_body("Unprocessable")),
}


@pytest.mark.parametrize("name", CASES)
def test_every_failure_is_classified_by_status_and_text(endpoint: Endpoint, name: str) -> None:
    kind, *answer = CASES[name]
    endpoint.answer = tuple(answer)
    endpoint.hits = 0
    for model, trouble in troubles(endpoint.url).items():
        assert trouble.kind == kind, f"{model}: {trouble.message}"
        assert trouble.retry_after == (7.0 if answer[1] else None), model
        assert trouble.message.isprintable()
        assert 0 < len(trouble.message) <= 300
        assert "litellm" not in trouble.message.casefold() or answer[0] == 200
        assert "sk-abc" not in trouble.message
    # Whoever calls decides on another attempt, never litellm or what it rests on.
    assert endpoint.hits == len(MODELS)


def test_a_message_holds_the_words_of_the_endpoint(endpoint: Endpoint) -> None:
    endpoint.answer = (400, {}, error_body("Your \n words"))
    messages = {trouble.message for trouble in troubles(endpoint.url).values()}
    assert messages == {"400: Your words"}


def test_what_is_fatal_says_what_would_be_right(endpoint: Endpoint) -> None:
    endpoint.answer = (401, {}, error_body("x" * 1000))
    for trouble in troubles(endpoint.url).values():
        assert trouble.message.startswith("401: xxx")
        assert trouble.message.endswith("x… (set a key in the environment that the endpoint takes)")


def test_neither_prompt_nor_key_is_repeated(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "own-word-with-no-form")
    endpoint.answer = (400, {}, error_body(f"own-word-with-no-form quite-secret cannot: {PROMPT}"))
    for trouble in troubles(endpoint.url).values():
        # response_format stands in the prompt only, so this is no rejection of the format.
        assert trouble.kind == "bad_request"
        assert "own-word" not in trouble.message
        assert "secret" not in trouble.message
        assert "Tower is located" not in trouble.message
        # Nothing hangs on the exception that holds the prompt.
        assert trouble.__context__ is trouble.__cause__ is None


def test_the_date_of_retry_after_becomes_seconds(endpoint: Endpoint) -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    past = "Wed, 21 Oct 2015 07:28:00 GMT"
    for report, low, high in ((soon, 30, 60), (past, 0, 0), ("-7", 0, 0), ("1e308", DAY, DAY)):
        endpoint.answer = (429, {"retry-after": report}, error_body("Wait"))
        after = troubles(endpoint.url, ["openai/m"])["openai/m"].retry_after
        assert after is not None
        assert low <= after <= high


DAY = 86_400


@pytest.mark.parametrize(
    "report",
    [
        *("", "x", "nan", "-nan", "soon", "7 seconds", "9" * 4000 + " s"),
        "Wed, 21 Oct 99999 07:28:00 GMT",
        "Wed, 21 Oct 99999999999999999999 07:28:00 GMT",
        "Wed, 99 Oct 2099 99:99:99 GMT",
        "Wed, 21 Oct 2099 07:28:00 +99999999999999999999",
        "Wed, 21 Oct 2099 07:28:00 -9999",
        "Wed, 01 Jan 0001 00:00:00 +2359",
    ],
)
def test_a_hostile_retry_after_is_ignored(endpoint: Endpoint, report: str) -> None:
    endpoint.answer = (429, {"retry-after": report}, error_body("Wait"))
    found = troubles(endpoint.url, MODELS[:2])
    for trouble in found.values():
        assert trouble.kind == "throttled", trouble.message
        assert trouble.retry_after in (None, 0.0, DAY)


@pytest.mark.parametrize("report", ["1e309", "inf", "9" * 4000, "Fri, 31 Dec 9999 23:59:59 -2359"])
def test_a_retry_after_of_ages_is_a_day(endpoint: Endpoint, report: str) -> None:
    endpoint.answer = (429, {"retry-after": report}, error_body("Wait"))
    found = troubles(endpoint.url, MODELS[:2])
    assert {trouble.retry_after for trouble in found.values()} == {DAY}


@pytest.mark.parametrize("value", [10**400, float("inf"), -5, float("nan"), True, "soon", None])
def test_a_provider_may_ask_to_wait_for_any_time(value: Any) -> None:
    with pytest.raises(ProviderError) as caught, provider_errors_only(()):
        raise ProviderError("throttled", "Wait", value)
    assert caught.value.retry_after in (None, 0.0, DAY)


def test_a_refused_connection_is_a_server_error() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        for model, trouble in troubles(f"http://127.0.0.1:{port}").items():
            assert trouble.kind == "server", model
            assert "cannot be reached" in trouble.message
    for model, trouble in troubles("http://nobody.invalid").items():
        assert trouble.kind == "server", model


def test_a_missing_key_is_fatal(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    (trouble,) = troubles(endpoint.url, ["anthropic/claude-sonnet-4-5"]).values()
    assert trouble.kind == "fatal"
    assert "ANTHROPIC_API_KEY" in trouble.message


def test_an_unknown_provider_is_fatal(endpoint: Endpoint) -> None:
    (trouble,) = troubles(endpoint.url, ["nobody/m"]).values()
    assert trouble.kind == "fatal"
    assert trouble.message.endswith("(name the provider first: openai/MODEL)")


def test_what_litellm_itself_does_not_send(endpoint: Endpoint) -> None:
    (trouble,) = troubles(endpoint.url, ["openai/gpt-5"], temperature=0).values()
    assert trouble.kind == "fatal"
    assert "temperature" in trouble.message
    tools = [{"type": "function", "function": {"name": "reply", "parameters": {}}}]
    (trouble,) = troubles(endpoint.url, ["watsonx_text/m"], tools=tools).values()
    assert trouble.kind == "format"


def test_what_is_no_failure_of_a_call() -> None:
    assert classify(TimeoutError()).kind == "timeout"
    trouble = classify(ZeroDivisionError("by nought"))
    assert (trouble.kind, trouble.message) == ("server", "ZeroDivisionError: by nought")
    assert classify(trouble) is trouble


class FailedError(Exception):
    def __init__(self, status_code: int, text: str) -> None:
        super().__init__(text)
        self.status_code = status_code


@given(st.integers(-1, 10_000), st.text(max_size=400), st.integers(1, 30))
def test_a_message_is_one_short_line(status: int, text: str, times: int) -> None:
    trouble = classify(FailedError(status, text * times))
    assert trouble.message.isprintable()
    assert 0 < len(trouble.message) <= 300


@given(st.text(min_size=40, max_size=200), st.text(max_size=50), st.text(max_size=50))
def test_no_long_part_of_a_prompt_is_repeated(prompt: str, before: str, after: str) -> None:
    report = scrub(before + prompt + after, hide=[prompt])
    assert not any(prompt[start : start + 40] in report for start in range(len(prompt) - 39))


@pytest.mark.parametrize(
    ("text", "report"),
    [
        ("key sk-proj-abc_DEF-123 is wrong", "key *** is wrong"),
        ("Authorization: Bearer eyJhbGciOi.x.y", "Authorization: Bearer ***"),
        ("GET /v1?key=AIzaSyABCDEF&n=1", "GET /v1?key=***&n=1"),
        ('{"api_key": "abcdef"}', '{"api_key": "***"}'),
        ("http://me:word@host/v1", "http://***@host/v1"),
        ("max_tokens: 5, basic plan", "max_tokens: 5, basic plan"),
    ],
)
def test_secrets_are_scrubbed_by_their_form(text: str, report: str) -> None:
    assert scrub(text) == report


@pytest.mark.parametrize(
    ("text", "report"),
    [
        ('{"error": "model not found"}', "model not found"),
        ('Exception: {"message": {"detail": "deep"}}', "deep"),
        ('{"detail": [{"loc": ["body", 1], "msg": "bad"}, {"msg": "too"}]}', "body.1: bad; too"),
        ("litellm.APIError: APIError: OpenAIException - words", "words"),
        ("litellm.Timeout: Timeout Error: words", "words"),
        ("{not JSON", "{not JSON"),
        ('{"a":' * 3000, ('{"a":' * 3000)[:4000]),
    ],
)
def test_the_words_of_an_endpoint_are_found(text: str, report: str) -> None:
    assert provider_message(text) == report
