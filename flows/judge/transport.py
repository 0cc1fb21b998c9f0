"""One request to an endpoint through litellm: a reply or a `ProviderError`."""

import asyncio
import importlib
import json
import logging
import os
import socket
import sys
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import chain
from math import isfinite
from types import ModuleType
from typing import Any, Final, NamedTuple

from claimflow.flows.judge.provider_errors import ProviderError, classify

# What litellm does in every call and nobody here needs, left out: half of what it costs.


_CLIENT = "EXPERIMENTAL_OPENAI_BASE_LLM_HTTP_HANDLER"


def make_lean(package: ModuleType) -> None:
    """Shortens the way of a call through litellm. What a release lacks stays as it is.

    - `openai/` goes through the client that litellm has for all other providers: it takes
      a third less of the processor than the client of OpenAI.
    - No call is priced: `charges` does that, from the same table.
    - A request whose connection breaks is not sent a second time: `delivery` decides.
    """
    os.environ[_CLIENT] = "true"
    package.__dict__["response_cost_calculator"] = _no_price
    client = importlib.import_module("litellm.llms.custom_httpx.http_handler").AsyncHTTPHandler
    client.single_connection_post_request = _not_again


@contextmanager
def unlogged() -> Iterator[None]:
    """Calls in here are not reported to litellm's loggers, of which there are none."""
    internal = importlib.import_module("litellm._internal_context").is_internal_call
    before = internal.set(True)
    try:
        yield
    finally:
        internal.reset(before)


def _no_price(**_: Any) -> None:
    return None


async def _not_again(*_: Any, **__: Any) -> None:
    """Called while the error of the first attempt is handled: raises that one."""
    raise  # noqa: PLE0704


# litellm, imported late and kept quiet: it asks the endpoint and phones nobody else.


_ENVIRONMENT: Final = {
    "LITELLM_OFFLINE_MODE": "true",
    # What releases before offline mode had instead of it, one for each of their fetches.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    # In its other mode litellm reads the first .env file it finds, keys and all.
    "LITELLM_MODE": "PRODUCTION",
}

_SETTINGS: Final = {
    "suppress_debug_info": True,
    "set_verbose": False,
    "drop_params": False,
    "modify_params": False,
    "telemetry": False,
    "num_retries": None,
    "cache": None,
}

_CALLBACKS: Final = (
    "callbacks",
    "input_callback",
    "success_callback",
    "failure_callback",
    "service_callback",
    "_async_input_callback",
    "_async_success_callback",
    "_async_failure_callback",
)

_LOGGERS: Final = (
    "LiteLLM",
    "LiteLLM Router",
    "LiteLLM Proxy",
    "openai",
    "httpx",
    "httpcore",
    "aiohttp",
)
"""What these write below the top level holds prompts, replies or addresses with keys."""

_LOCAL: Final = frozenset({"hosted_vllm", "lm_studio", "llamafile", "xinference", "custom_openai"})
"""Servers of one's own. Without an address litellm would ask a company in their stead."""

_TURN: Final = threading.Lock()


def litellm() -> ModuleType:
    """The package, imported and set up by the first call; any thread may ask.

    What it sets stays set: environment variables that keep litellm from fetching price
    tables, from reading `.env` files and from reporting, and the levels of its loggers.
    The first call takes seconds.
    """
    with _TURN:
        return _loaded()


@cache
def _loaded() -> ModuleType:
    os.environ.update(_ENVIRONMENT)
    _hush()
    # litellm warns of itself, and adds filters for the whole process. One of them is
    # needed later, too, when its first calls import more of it.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        package = importlib.import_module("litellm")
        package.ModelResponse()
    warnings.filterwarnings("ignore", message=r".*`ReadOnly` qualifier")
    for name, value in _SETTINGS.items():
        if hasattr(package, name):
            setattr(package, name, value)
    for name in _CALLBACKS:
        setattr(package, name, [])
    make_lean(package)
    _hush()
    return package


def _hush() -> None:
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)


@cache
def provider_of(model: str, api_base: str | None) -> str | None:
    """Who serves a model, by litellm's name; None when it knows nobody."""
    try:
        return str(litellm().get_llm_provider(model, api_base=api_base)[1])
    except Exception:
        return None


def takes_an_address(model: str) -> bool:
    """Whether a call of a model goes to the `api_base` it is given, whatever the provider."""
    provider = provider_of(model, None)
    known = ("openai", "anthropic", "ollama", "ollama_chat", *_LOCAL)
    return provider in known or provider in litellm().openai_compatible_providers


def check(model: str, api_base: str | None) -> str | None:
    """What is missing for calls of a model to succeed, as far as one can tell without one.

    None where nothing is. Keys are looked for in the environment; a server with an address
    of its own may do without.
    """
    provider = provider_of(model, api_base)
    if provider is None:
        return f"{model!r} names no provider that litellm knows: write openai/MODEL, for example"
    named = f"{provider.upper()}_API_BASE"
    if provider in _LOCAL and not api_base and not os.environ.get(named):
        return f"{provider} needs an api_base, such as http://127.0.0.1:8000/v1"
    name = f"{provider.upper()}_API_KEY"
    key = os.environ.get(name, "")
    if not key.isascii() or any(sign.isspace() for sign in key):
        return f"{name} in the environment holds a space, a line break or a letter no key has"
    if key or address(model, api_base).get("api_key"):
        return None
    told = litellm().validate_environment(model, api_base=api_base)["missing_keys"]
    missing = [*told, *([name] if name in os.environ and not told else [])]
    keys = all(wanted.endswith("_API_KEY") for wanted in missing)
    return f"set {' or '.join(missing)} in the environment" if missing and keys else None


def address(model: str, api_base: str | None) -> dict[str, Any]:
    """Where a model is asked; with a key that stands in where its server may need none.

    The client of OpenAI refuses to send without any.
    """
    provider = provider_of(model, api_base)
    if provider in ("ollama", "ollama_chat"):
        _introduce(model.partition("/")[2])
    if not api_base:
        return {"model": model}
    asked = {"model": model, "api_base": api_base}
    keyless = provider == "openai" and not os.environ.get("OPENAI_API_KEY")
    return {**asked, "api_key": "none"} if keyless else asked


def _introduce(name: str) -> None:
    """Tells litellm of a model of Ollama.

    About one it does not know it asks the Ollama of this machine, wherever the model may
    be, twice for each call, while all other calls wait; and it puts its own words into
    the prompt in place of tools.
    """
    for provider in ("ollama", "ollama_chat"):
        known = {"litellm_provider": provider, "mode": "chat", "supports_function_calling": True}
        litellm().model_cost.setdefault(f"{provider}/{name}", known)


# The one place that asks an endpoint: a request out, a reply or a `Trouble` back.


_HELLO: Final = [{"role": "user", "content": "Hello"}]


class Request(NamedTuple):
    """A call of a chat model.

    `parameters` are sent as they are: temperature, max_tokens, seed, what a rung adds.
    """

    model: str
    messages: list[dict[str, str]]
    parameters: dict[str, Any]
    api_base: str | None


class Usage(NamedTuple):
    """Tokens: of the prompt, of its part that was cached, of the reply. None: not told."""

    prompt: int | None
    cached: int | None
    completion: int | None


class Received(NamedTuple):
    """A reply: its text (of the tool call, where a tool was called), and how it ended.

    `refusal` is why the model gave no text, if it declined.
    """

    text: str
    finish: str | None
    refusal: str | None
    usage: Usage
    fingerprint: str | None


async def send(request: Request, *, timeout: float) -> Received:
    """The reply to a request, whole within `timeout` seconds. Asks once. Raises `Trouble`."""
    texts = [message["content"] for message in request.messages]
    # For tools, litellm would import a package that it does not install.
    own = {"messages": request.messages, "_skip_mcp_handler": True}
    reply = await _ask(
        litellm().acompletion,
        {**request.parameters, **own, **address(request.model, request.api_base)},
        timeout=timeout,
        hide=texts,
    )
    return _received(reply)


async def embed(
    model: str,
    texts: Sequence[str],
    *,
    api_base: str | None,
    parameters: dict[str, Any],
    timeout: float,
) -> tuple[list[list[float]], Usage]:
    """The embeddings of `texts`, in their order, by one request. Raises `Trouble`."""
    reply = await _ask(
        litellm().aembedding,
        {**parameters, "input": list(texts), **address(model, api_base)},
        timeout=timeout,
        hide=texts,
    )
    return _vectors(reply, len(texts)), _usage(reply)


async def warm(model: str) -> None:
    """Loads what litellm loads at its first call, so that no time limit counts it.

    Asks an address of this machine where nobody listens, or where litellm cannot be told
    to, asks nobody.
    """
    await asyncio.to_thread(litellm)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        asked = {"messages": _HELLO, **address(model, nowhere), "api_key": "none"}
        if not takes_an_address(model):
            asked["mock_response"] = "Hello"
        with suppress(ProviderError):
            await _ask(litellm().acompletion, asked, timeout=10, hide=())


async def close() -> None:
    """Closes the connections of this event loop; to be called before it ends."""
    if "litellm" not in sys.modules:
        return
    package = litellm()
    worker = importlib.import_module("litellm.litellm_core_utils.logging_worker")
    await worker.GLOBAL_LOGGING_WORKER.flush()
    await worker.GLOBAL_LOGGING_WORKER.stop()
    await package.close_litellm_async_clients()
    # The closed clients are never to be found again by a loop that gets this one's number.
    package.in_memory_llm_clients_cache.flush_cache()


async def _ask(
    call: Callable[..., Awaitable[Any]],
    asked: dict[str, Any],
    *,
    timeout: float,
    hide: Iterable[str],
) -> Any:
    try:
        # The limit of litellm is for each read: a reply that drips could take for ever.
        with unlogged():
            async with asyncio.timeout(timeout):
                return await call(**asked, timeout=timeout, max_retries=0, num_retries=0)
    except TimeoutError:
        trouble = ProviderError("timeout", f"no whole reply within {timeout:g} seconds")
    except Exception as error:
        trouble = classify(error, hide=hide)
    # Raised out here, it does not carry litellm's exception, which holds the prompt.
    raise trouble


def _received(reply: Any) -> Received:
    if not getattr(reply, "choices", None):
        raise ProviderError("server", "the reply has no choices")
    choice = reply.choices[0]
    finish = choice.finish_reason
    text = _text(choice.message)
    refusal = None if text else _refusal(choice.message, finish)
    fingerprint = getattr(reply, "system_fingerprint", None)
    return Received(text, finish, refusal, _usage(reply), fingerprint)


def _text(message: Any) -> str:
    for called in getattr(message, "tool_calls", None) or []:
        said = called.function.arguments
        return said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
    return message.content if isinstance(message.content, str) else ""


def _refusal(message: Any, finish: str | None) -> str | None:
    more = getattr(message, "provider_specific_fields", None) or {}
    said = getattr(message, "refusal", None) or more.get("refusal")
    if said:
        return str(said)
    return finish if finish == "content_filter" else None


def _usage(reply: Any) -> Usage:
    usage: Any = getattr(reply, "usage", None)
    # No request is empty: litellm says 0 where the endpoint said nothing.
    if not getattr(usage, "prompt_tokens", None):
        return Usage(None, None, None)
    details = getattr(usage, "prompt_tokens_details", None)
    cached = getattr(details, "cached_tokens", None)
    return Usage(usage.prompt_tokens, cached, getattr(usage, "completion_tokens", None))


def _vectors(reply: Any, number: int) -> list[list[float]]:
    """The embeddings, sorted by the index that the endpoint gave each."""
    try:
        found = {
            int(entry["index"]): [float(x) for x in entry["embedding"]] for entry in reply.data
        }
        vectors = [found[index] for index in range(number)]
    except (KeyError, TypeError, ValueError):
        vectors = []
    if len(vectors) != number or len(reply.data) != number:
        raise ProviderError("server", f"the reply does not hold {number} embeddings")
    lengths = {len(vector) for vector in vectors}
    if len(lengths) != 1 or 0 in lengths or not all(map(isfinite, chain(*vectors))):
        raise ProviderError("server", "the embeddings are not lists of equally many finite numbers")
    return vectors
