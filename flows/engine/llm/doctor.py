"""What works at an endpoint, found out by asking it for very little."""

import asyncio
import os
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from claimflow.flows.engine.endpoints import EmbeddingEndpoint, Endpoint, Judge
from claimflow.flows.engine.llm.charges import charges_of
from claimflow.flows.engine.llm.library import check, provider_of
from claimflow.flows.engine.llm.loop import Loop
from claimflow.flows.engine.llm.probes import patience, try_seed, verify
from claimflow.flows.engine.llm.rungs import RUNGS, Rung
from claimflow.flows.engine.llm.transport import Usage, close, embed, warm
from claimflow.flows.engine.llm.troubles import Trouble

_TEXT: Final = "The Eiffel Tower was opened in 1889."

_WAYS: Final[Mapping[Rung, str]] = {
    "schema": "held to a JSON schema",
    "tool": "as the call of a tool",
    "object": "held to be JSON, of no particular shape",
    "text": "free text, which the prompt wants to be JSON",
}


class Examination(NamedTuple):
    """What was found of an endpoint, in words by topic; `fault` is why it cannot be used."""

    found: dict[str, str]
    fault: str | None


def examine(endpoints: Mapping[str, Endpoint]) -> dict[str, Examination]:
    """Ask each endpoint, all at once: a judge for three small replies, an embedder for one.

    No call takes longer than 20 seconds, or than the endpoint's own `timeout`.
    """
    loop = Loop(at_end=close)

    async def every_one() -> list[Examination]:
        return await asyncio.gather(*(_examine(endpoint) for endpoint in endpoints.values()))

    try:
        return dict(zip(endpoints, loop.run(every_one()), strict=True))
    finally:
        loop.close()


async def _examine(endpoint: Endpoint) -> Examination:
    await warm(endpoint.model)
    price, unpriced = _price(endpoint)
    found = {"key": _key(endpoint), "price": price}
    missing = check(endpoint.model, endpoint.api_base)
    if missing:
        return Examination({"reachable": "not tried"} | found, missing)
    try:
        answered, fault = await _ask(endpoint)
    except Trouble as trouble:
        silent = trouble.kind == "timeout" or "cannot be reached" in trouble.message
        how = f"{'no' if silent else 'yes, but'}: {trouble.message}"
        return Examination({"reachable": how} | found, trouble.message)
    return Examination({"reachable": "yes"} | answered | found, fault or unpriced)


async def _ask(endpoint: Endpoint) -> tuple[dict[str, str], str | None]:
    """What its replies tell, and what is wrong with them; raises `Trouble` if there is none."""
    if isinstance(endpoint, Judge):
        return await _ask_judge(endpoint)
    if isinstance(endpoint, EmbeddingEndpoint):
        return await _ask_embedder(endpoint), None
    raise TypeError(f"nobody knows how to ask a {type(endpoint).__name__}")


async def _ask_judge(judge: Judge) -> tuple[dict[str, str], str | None]:
    verified = await verify(judge)
    seeded = await try_seed(judge)
    number = RUNGS.index(verified.rung) + 1
    seconds = (verified.seconds, *seeded.seconds)
    found = {
        "replies": f"{_WAYS[verified.rung]} (rung {number} of {len(RUNGS)}: {verified.rung})",
        "read": f"no: {verified.wrong}" if verified.wrong else f"yes, as {verified.verdict}",
        "seed honoured": seeded.words,
        "latency": ", ".join(f"{each:.2f}" for each in seconds) + " seconds",
        "tokens": _told(verified.received.usage),
    }
    wrong = verified.wrong and f"its reply to a verification cannot be used: {verified.wrong}"
    return found, wrong


async def _ask_embedder(endpoint: EmbeddingEndpoint) -> dict[str, str]:
    started = time.monotonic()
    vectors, usage = await embed(
        endpoint.model,
        [_TEXT],
        api_base=endpoint.api_base,
        parameters=endpoint.parameters(),
        timeout=patience(endpoint),
    )
    return {
        "replies": f"vectors of {len(vectors[0]):,} numbers",
        "latency": f"{time.monotonic() - started:.2f} seconds",
        "tokens": _told(usage),
    }


def _told(usage: Usage) -> str:
    if usage.prompt is None:
        return "not told, so what calls cost stays unknown"
    said = f", {usage.completion:,} out" if usage.completion else ""
    return f"told ({usage.prompt:,} in{said}, for the first call)"


def _key(endpoint: Endpoint) -> str:
    """Whether there is one in the environment, under litellm's name for it."""
    provider = provider_of(endpoint.model, endpoint.api_base)
    if provider is None:
        return "none looked for"
    name = f"{provider.removesuffix('_chat').upper()}_API_KEY"
    if os.environ.get(name):
        return f"{name} is set"
    return f"{name} is not set" + (", which that address may not need" if endpoint.api_base else "")


def _price(endpoint: Endpoint) -> tuple[str, str | None]:
    """What is known of the price, and what is wrong with knowing no more."""
    price = charges_of(endpoint)
    if price is None:
        wrong = f"nobody knows what {endpoint.model} costs, so budget_usd cannot be kept"
        right = "unknown; write price: {input: ..., output: ...} to have costs on record"
        return right, wrong if endpoint.budget_usd is not None else None
    source = "this file" if endpoint.price else "litellm's table"
    amounts = [f"{usd.normalize():f}" for usd in (price.input, price.output)]
    return f"{' in, '.join(amounts)} out: USD per million tokens, by {source}", None
