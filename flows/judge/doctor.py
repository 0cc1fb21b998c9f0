"""`claimflow doctor`: test calls that show which features an endpoint supports."""

import asyncio
import os
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

from claimflow.flows.judge.budget import price_of
from claimflow.flows.judge.client import WARM_UP_SECONDS, chat
from claimflow.flows.judge.conversation import render_messages
from claimflow.flows.judge.embedding import embed
from claimflow.flows.judge.event_loop import Loop
from claimflow.flows.judge.provider import (
    ChatReply,
    JudgeProvider,
    ProviderError,
    Request,
    Usage,
    open_provider,
)
from claimflow.flows.judge.provider_errors import (
    batch_fault,
    batch_terms_of,
    key_variables_of,
    missing_of,
    provider_call,
)
from claimflow.flows.judge.reply_json import read_json
from claimflow.flows.judge.reply_matching import match_entries
from claimflow.flows.judge.response_formats import (
    RESPONSE_FORMATS,
    ResponseFormat,
    format_parameters,
)
from claimflow.flows.judge.session import close_providers
from claimflow.flows.pipeline.model_settings import EmbeddingEndpoint, Endpoint, Judge
from claimflow.stages.judging.verdicts import Opinion
from claimflow.stages.tools import Form, Question

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
_CLAIM: Final = {1: Question("The Eiffel Tower was opened in 1889.", _PREMISE)}

_ANYTHING: Final = "Write one sentence about a person, a place and an animal of your choice."
_SEED: Final = 7


class TestVerification(NamedTuple):
    """The result of a test verification: response format used, reply, duration, verdict.

    `problem` says why the reply cannot be used; it is None where there is a `verdict`.
    """

    response_format: ResponseFormat
    received: ChatReply
    seconds: float
    verdict: str | None
    problem: str | None


class SeedTest(NamedTuple):
    """A sentence on whether a seed makes two replies equal, and the seconds of each call."""

    message: str
    seconds: tuple[float, ...]


def reply_timeout(endpoint: Endpoint) -> float:
    """Seconds to wait for a reply, at most 20 because a user is waiting for the result."""
    return min(endpoint.timeout, _LONGEST)


async def verify(judge: Judge, provider: JudgeProvider) -> TestVerification:
    """Have one claim verified, in the strictest response format that the endpoint supports.

    Raises `ProviderError`.
    """
    messages = render_messages(_FORM, _CLAIM)
    unsupported = ProviderError("format", "the endpoint does not support any response format")
    for response_format in RESPONSE_FORMATS:
        try:
            parameters = judge.parameters() | format_parameters(response_format, _FORM)
            received, seconds = await _timed(judge, provider, messages, parameters)
        except ProviderError as error:
            if error.kind != "format":
                raise
            unsupported = error
        else:
            return TestVerification(response_format, received, seconds, *_read(received))
    raise unsupported


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
    """Request the same free text twice with the judge's seed, or with 7 if it has none.

    The temperature is raised from 0 to 1, since at 0 replies are equal without a seed, too.
    Parameters that the endpoint rejects are left out.
    """
    own = judge.parameters()
    seeded = {"seed": _SEED, **own}
    refusal = ""
    for parameters in (seeded | {"temperature": own.get("temperature") or 1}, seeded, own):
        try:
            first, seconds = await _say_anything(judge, provider, parameters)
            second, more = await _say_anything(judge, provider, parameters)
        except ProviderError as error:
            if error.kind not in ("fatal", "bad_request"):
                return SeedTest(f"unknown: {error.message}", ())
            refusal = error.message
        else:
            return SeedTest(_compared(first, second, parameters, refusal), (seconds, more))
    return SeedTest(f"unknown: {refusal}", ())


def _compared(first: str, second: str, parameters: dict[str, Any], refusal: str) -> str:
    if "seed" not in parameters:
        return f"not supported: {refusal}"
    how = f"seed {parameters['seed']}"
    if "temperature" in parameters:
        how += f" and temperature {parameters['temperature']:g}"
    if not first.strip() or not second.strip():
        return f"unknown: the reply to a request with {how} is empty"
    if first != second:
        return f"no: two replies with {how} differ"
    if parameters.get("temperature") == 0:
        return f"unknown: two replies with {how} are equal, as they would be without a seed"
    return f"yes: two replies with {how} are equal"


async def _say_anything(
    judge: Judge, provider: JudgeProvider, parameters: dict[str, Any]
) -> tuple[str, float]:
    messages = [{"role": "user", "content": _ANYTHING}]
    received, seconds = await _timed(judge, provider, messages, parameters)
    return received.text, seconds


async def _timed(
    judge: Judge,
    provider: JudgeProvider,
    messages: list[dict[str, str]],
    parameters: dict[str, Any],
) -> tuple[ChatReply, float]:
    started = time.monotonic()
    request = Request(judge.model, messages, parameters, judge.api_base)
    received = await chat(provider, request, timeout=reply_timeout(judge))
    return received, time.monotonic() - started


_TEXT: Final = "The Eiffel Tower was opened in 1889."

_FORMAT_DESCRIPTIONS: Final[Mapping[ResponseFormat, str]] = {
    "schema": "JSON by a schema",
    "tool": "JSON by a tool call",
    "object": "JSON without a schema",
    "text": "text, with JSON requested in the prompt only",
}


class Examination(NamedTuple):
    """Findings on an endpoint by topic; `fault` says why it cannot be used, None if it can."""

    found: dict[str, str]
    fault: str | None


def examine(endpoints: Mapping[str, Endpoint]) -> dict[str, Examination]:
    """Test all endpoints at the same time, a judge by three calls, an embedder by one.

    A call takes at most 20 seconds, and at most the endpoint's own `timeout`.
    """
    providers = {
        endpoint.provider: open_provider(endpoint.provider) for endpoint in endpoints.values()
    }

    async def examine_all() -> list[Examination]:
        examining = (_examine(one, providers[one.provider]) for one in endpoints.values())
        return await asyncio.gather(*examining)

    async def close_all() -> None:
        await close_providers(providers)

    loop = Loop(at_end=close_all)

    try:
        return dict(zip(endpoints, loop.run(examine_all()), strict=True))
    finally:
        loop.close()


async def _examine(endpoint: Endpoint, provider: JudgeProvider) -> Examination:
    try:
        async with provider_call(WARM_UP_SECONDS):
            await provider.warm_up(endpoint.model)
    except ProviderError as error:
        return Examination({"reachable": "not tested"}, error.message)
    price, unpriced = _price(endpoint)
    missing = missing_of(endpoint, provider)
    found = {"key": _key(endpoint, provider, needed=missing is not None), "price": price}
    if missing:
        return Examination({"reachable": "not tested"} | found, missing)
    try:
        answered, fault = await _ask(endpoint, provider)
    except ProviderError as error:
        unreachable = error.kind == "timeout" or "cannot be reached" in error.message
        how = f"{'no' if unreachable else 'yes, but'}: {error.message}"
        return Examination({"reachable": how} | found, error.message)
    batches, unbatched = await _batches(endpoint, provider)
    found |= batches
    return Examination({"reachable": "yes"} | answered | found, fault or unpriced or unbatched)


async def _batches(
    endpoint: Endpoint, provider: JudgeProvider
) -> tuple[dict[str, str], str | None]:
    """What batches lack, and what is wrong where the settings ask for batches.

    Where they do not, only what the environment lacks is said.
    """
    if not isinstance(endpoint, Judge):
        return {}, None
    terms = batch_terms_of(endpoint, provider)
    if not endpoint.batch:
        return {"batches": f"no: {terms.missing}"} if terms and terms.missing else {}, None
    wrong = batch_fault(endpoint, provider)
    if wrong is None and terms is not None:
        try:
            async with provider_call(reply_timeout(endpoint)):
                await provider.check_batches(
                    endpoint.model, api_base=endpoint.api_base, timeout=reply_timeout(endpoint)
                )
        except ProviderError as error:
            wrong = f"{endpoint.model} cannot be asked in batches", error.message
    if wrong is not None:
        return {"batches": f"no: {wrong[1]}"}, ": ".join(wrong)
    least = terms.fewest if terms else 1
    fewest = f", and a batch has at least {least:,} calls" if least > 1 else ""
    return {"batches": f"nothing is missing{fewest}"}, None


async def _ask(endpoint: Endpoint, provider: JudgeProvider) -> tuple[dict[str, str], str | None]:
    """Findings, and what is wrong with the replies. Raises `ProviderError` without a reply."""
    if isinstance(endpoint, Judge):
        return await _ask_judge(endpoint, provider)
    if isinstance(endpoint, EmbeddingEndpoint):
        return await _ask_embedder(endpoint, provider), None
    raise TypeError(f"an endpoint of type {type(endpoint).__name__} cannot be tested")


async def _ask_judge(judge: Judge, provider: JudgeProvider) -> tuple[dict[str, str], str | None]:
    verified = await verify(judge, provider)
    seeded = await try_seed(judge, provider)
    number = RESPONSE_FORMATS.index(verified.response_format) + 1
    rank = f"format {number} of {len(RESPONSE_FORMATS)}: {verified.response_format}"
    seconds = (verified.seconds, *seeded.seconds)
    found = {
        "replies": f"{_FORMAT_DESCRIPTIONS[verified.response_format]} ({rank})",
        "read": f"no: {verified.problem}" if verified.problem else f"yes, as {verified.verdict}",
        "seed honoured": seeded.message,
        "latency": ", ".join(f"{each:.2f}" for each in seconds) + " seconds",
        "tokens": _token_counts(verified.received.usage),
    }
    problem = verified.problem
    return found, problem and f"its reply to a verification cannot be used: {problem}"


async def _ask_embedder(endpoint: EmbeddingEndpoint, provider: JudgeProvider) -> dict[str, str]:
    started = time.monotonic()
    vectors, usage = await embed(provider, endpoint, [_TEXT], timeout=reply_timeout(endpoint))
    return {
        "replies": f"vectors of {len(vectors[0]) // 4:,} numbers",
        "latency": f"{time.monotonic() - started:.2f} seconds",
        "tokens": _token_counts(usage),
    }


def _token_counts(usage: Usage) -> str:
    if usage.prompt is None:
        return "not reported, so the cost of calls stays unknown"
    output = f", {usage.completion:,} out" if usage.completion else ""
    return f"reported ({usage.prompt:,} in{output} for the first call)"


def _key(endpoint: Endpoint, provider: JudgeProvider, *, needed: bool) -> str:
    """Whether the API key is in the environment; where it is not `needed` it may be elsewhere."""
    names = key_variables_of(endpoint, provider)
    if not names:
        return "no variable is looked for"
    words, are = " and ".join(names), "is" if len(names) == 1 else "are"
    if all(map(os.environ.get, names)):
        return f"{words} {are} set"
    if endpoint.api_base:
        elsewhere = ", which that address may not need"
    else:
        elsewhere = "" if needed else "; a file or a role of this machine may give it"
    return f"{words} {are} not set{elsewhere}"


def _price(endpoint: Endpoint) -> tuple[str, str | None]:
    """The price, and what is wrong where it is unknown but needed for a budget."""
    price = price_of(endpoint)
    if price is None:
        wrong = f"the price of {endpoint.model} is unknown, so budget_usd cannot be kept"
        hint = "unknown; write price: {input: ..., output: ...} to have costs recorded"
        return hint, wrong if endpoint.budget_usd is not None else None
    source = "this file" if endpoint.price else "litellm's table"
    amounts = [f"{usd.normalize():f}" for usd in (price.input, price.output)]
    return f"{' in, '.join(amounts)} out: USD per million tokens, by {source}", None
