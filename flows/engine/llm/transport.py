"""The one place that asks an endpoint: a request out, a reply or a `Trouble` back."""

import asyncio
import importlib
import json
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from math import isfinite
from typing import Any, Final, NamedTuple

from claimflow.flows.engine.llm.lean import unlogged
from claimflow.flows.engine.llm.library import address, litellm, takes_an_address
from claimflow.flows.engine.llm.troubles import Trouble, classify

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
        with suppress(Trouble):
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
        trouble = Trouble("timeout", f"no whole reply within {timeout:g} seconds")
    except Exception as error:
        trouble = classify(error, hide=hide)
    # Raised out here, it does not carry litellm's exception, which holds the prompt.
    raise trouble


def _received(reply: Any) -> Received:
    if not getattr(reply, "choices", None):
        raise Trouble("server", "the reply has no choices")
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
        raise Trouble("server", f"the reply does not hold {number} embeddings")
    lengths = {len(vector) for vector in vectors}
    if len(lengths) != 1 or 0 in lengths or not all(map(isfinite, chain(*vectors))):
        raise Trouble("server", "the embeddings are not lists of equally many finite numbers")
    return vectors
