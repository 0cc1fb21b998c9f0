"""`claimflow doctor`: small test calls that tell what works at an endpoint."""

import asyncio
import os
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

from claimflow.flows.judge.budget import price_of
from claimflow.flows.judge.conversation import render_messages
from claimflow.flows.judge.provider import (
    ChatReply,
    JudgeProvider,
    ProviderError,
    Request,
    Usage,
    open_provider,
)
from claimflow.flows.judge.reply_json import read_json
from claimflow.flows.judge.reply_matching import match_entries
from claimflow.flows.judge.response_formats import (
    RESPONSE_FORMATS,
    ResponseFormat,
    format_parameters,
)
from claimflow.flows.judge.session import Loop
from claimflow.flows.pipeline.model_settings import EmbeddingEndpoint, Endpoint, Judge
from claimflow.stages.judging.verdicts import Opinion
from claimflow.stages.tools import Form

# Three small calls that tell what a judge can do. None is repeated.


_LONGEST: Final = 20.0

_FORM: Final = Form(
    'Say of each claim whether the premise makes it "entailed", "contradicted" or "neutral". Reply '
    "with one JSON object and nothing else, of the form "
    '{"claims": [{"id": 1, "reason": "...", "evidence": "...", "verdict": "entailed"}]}\n'
    "\n{{premise}}\n\n{{claims}}\n",
    "claims",
    Opinion,
    per_call=1,
    keep_part=True,
)
_PREMISE: Final = "The Eiffel Tower stands in Paris. It was opened in 1889."
_CLAIM: Final = {1: "The Eiffel Tower was opened in 1889."}

_ANYTHING: Final = "Write one sentence about a person, a place and an animal of your choice."
_SEED: Final = 7


class TestVerification(NamedTuple):
    """A tiny verification: on which rung, what came back, in how many seconds.

    `wrong` is why it says nothing, None where `verdict` stands.
    """

    rung: ResponseFormat
    received: ChatReply
    seconds: float
    verdict: str | None
    wrong: str | None


class SeedTest(NamedTuple):
    """Whether a seed makes two replies equal, in words, and the seconds that each took."""

    words: str
    seconds: tuple[float, ...]


def reply_timeout(endpoint: Endpoint) -> float:
    """Seconds to wait for a reply: fewer than a run has, for somebody sits and waits."""
    return min(endpoint.timeout, _LONGEST)


async def verify(judge: Judge, provider: JudgeProvider) -> TestVerification:
    """Have one claim verified, on the first rung that the endpoint takes. Raises `Trouble`."""
    messages = render_messages(_FORM, _PREMISE, _CLAIM)
    refused = ProviderError("rung", "no way to ask for JSON is left")
    for rung in RESPONSE_FORMATS:
        try:
            parameters = judge.parameters() | format_parameters(rung, _FORM)
            received, seconds = await _timed(judge, provider, messages, parameters)
        except ProviderError as trouble:
            if trouble.kind != "rung":
                raise
            refused = trouble
        else:
            return TestVerification(rung, received, seconds, *_read(received))
    raise refused


def _read(received: ChatReply) -> tuple[str | None, str | None]:
    if received.refusal is not None:
        return None, f"the model declined: {received.refusal[:200]}"
    read = read_json(received.text, cut_off=received.finish == "length")
    if read.problem:
        return None, read.message
    matched = match_entries(read.value, _FORM, list(_CLAIM))
    if matched.problems:
        return None, matched.problems[1][1]
    return cast(Opinion, matched.answers[1]).verdict, None


async def try_seed(judge: Judge, provider: JudgeProvider) -> SeedTest:
    """Ask for the same free text twice, with the judge's seed or else one of ours.

    At temperature 0 equal replies would say nothing of the seed, so there it is 1. What the
    endpoint does not take is left out.
    """
    own = judge.parameters()
    seeded = {"seed": _SEED, **own}
    refusal = ""
    for parameters in (seeded | {"temperature": own.get("temperature") or 1}, seeded, own):
        try:
            first, seconds = await _say_anything(judge, provider, parameters)
            second, more = await _say_anything(judge, provider, parameters)
        except ProviderError as trouble:
            if trouble.kind not in ("fatal", "bad_request"):
                return SeedTest(f"cannot tell: {trouble.message}", ())
            refusal = trouble.message
        else:
            return SeedTest(_compared(first, second, parameters, refusal), (seconds, more))
    return SeedTest(f"cannot tell: {refusal}", ())


def _compared(first: str, second: str, parameters: dict[str, Any], refusal: str) -> str:
    if "seed" not in parameters:
        return f"not taken: {refusal}"
    how = f"seed {parameters['seed']}"
    if "temperature" in parameters:
        how += f" and temperature {parameters['temperature']:g}"
    if not first.strip() or not second.strip():
        return f"cannot tell: the model said nothing, asked with {how}"
    if first != second:
        return f"no: two replies with {how} differ"
    if parameters.get("temperature") == 0:
        return f"cannot tell: two replies with {how} are equal, as they would be without"
    return f"yes: two replies with {how} are equal"


async def _say_anything(
    judge: Judge, provider: JudgeProvider, parameters: dict[str, Any]
) -> tuple[str, float]:
    asked = [{"role": "user", "content": _ANYTHING}]
    received, seconds = await _timed(judge, provider, asked, parameters)
    return received.text, seconds


async def _timed(
    judge: Judge,
    provider: JudgeProvider,
    messages: list[dict[str, str]],
    parameters: dict[str, Any],
) -> tuple[ChatReply, float]:
    started = time.monotonic()
    request = Request(judge.model, messages, parameters, judge.api_base)
    received = await provider.chat(request, timeout=reply_timeout(judge))
    return received, time.monotonic() - started


# What works at an endpoint, found out by asking it for very little.


_TEXT: Final = "The Eiffel Tower was opened in 1889."

_WAYS: Final[Mapping[ResponseFormat, str]] = {
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
    providers = {
        endpoint.provider: open_provider(endpoint.provider) for endpoint in endpoints.values()
    }

    async def examine_all() -> list[Examination]:
        examining = (_examine(one, providers[one.provider]) for one in endpoints.values())
        return await asyncio.gather(*examining)

    async def close_all() -> None:
        for provider in providers.values():
            await provider.close()

    loop = Loop(at_end=close_all)

    try:
        return dict(zip(endpoints, loop.run(examine_all()), strict=True))
    finally:
        loop.close()


async def _examine(endpoint: Endpoint, provider: JudgeProvider) -> Examination:
    await provider.warm_up(endpoint.model)
    price, unpriced = _price(endpoint)
    found = {"key": _key(endpoint, provider), "price": price}
    missing = provider.missing(endpoint.model, endpoint.api_base)
    if missing:
        return Examination({"reachable": "not tried"} | found, missing)
    try:
        answered, fault = await _ask(endpoint, provider)
    except ProviderError as trouble:
        silent = trouble.kind == "timeout" or "cannot be reached" in trouble.message
        how = f"{'no' if silent else 'yes, but'}: {trouble.message}"
        return Examination({"reachable": how} | found, trouble.message)
    return Examination({"reachable": "yes"} | answered | found, fault or unpriced)


async def _ask(endpoint: Endpoint, provider: JudgeProvider) -> tuple[dict[str, str], str | None]:
    """What its replies tell, and what is wrong with them; raises `Trouble` if there is none."""
    if isinstance(endpoint, Judge):
        return await _ask_judge(endpoint, provider)
    if isinstance(endpoint, EmbeddingEndpoint):
        return await _ask_embedder(endpoint, provider), None
    raise TypeError(f"nobody knows how to ask a {type(endpoint).__name__}")


async def _ask_judge(judge: Judge, provider: JudgeProvider) -> tuple[dict[str, str], str | None]:
    verified = await verify(judge, provider)
    seeded = await try_seed(judge, provider)
    number = RESPONSE_FORMATS.index(verified.rung) + 1
    rank = f"rung {number} of {len(RESPONSE_FORMATS)}: {verified.rung}"
    seconds = (verified.seconds, *seeded.seconds)
    found = {
        "replies": f"{_WAYS[verified.rung]} ({rank})",
        "read": f"no: {verified.wrong}" if verified.wrong else f"yes, as {verified.verdict}",
        "seed honoured": seeded.words,
        "latency": ", ".join(f"{each:.2f}" for each in seconds) + " seconds",
        "tokens": _told(verified.received.usage),
    }
    wrong = verified.wrong and f"its reply to a verification cannot be used: {verified.wrong}"
    return found, wrong


async def _ask_embedder(endpoint: EmbeddingEndpoint, provider: JudgeProvider) -> dict[str, str]:
    started = time.monotonic()
    vectors, usage = await provider.embed(
        endpoint.model,
        [_TEXT],
        api_base=endpoint.api_base,
        parameters=endpoint.parameters(),
        timeout=reply_timeout(endpoint),
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


def _key(endpoint: Endpoint, provider: JudgeProvider) -> str:
    """Whether the API key is in the environment."""
    name = provider.key_variable(endpoint.model, endpoint.api_base)
    if name is None:
        return "none looked for"
    if os.environ.get(name):
        return f"{name} is set"
    return f"{name} is not set" + (", which that address may not need" if endpoint.api_base else "")


def _price(endpoint: Endpoint) -> tuple[str, str | None]:
    """What is known of the price, and what is wrong with knowing no more."""
    price = price_of(endpoint)
    if price is None:
        wrong = f"the price of {endpoint.model} is unknown, so budget_usd cannot be kept"
        hint = "unknown; write price: {input: ..., output: ...} to have costs on record"
        return hint, wrong if endpoint.budget_usd is not None else None
    source = "this file" if endpoint.price else "litellm's table"
    amounts = [f"{usd.normalize():f}" for usd in (price.input, price.output)]
    return f"{' in, '.join(amounts)} out: USD per million tokens, by {source}", None
