"""Three small calls that tell what a judge can do. None is repeated."""

import time
from typing import Any, Final, NamedTuple, cast

from claimflow.flows.engine.endpoints import Endpoint, Judge
from claimflow.flows.engine.llm.matching import match
from claimflow.flows.engine.llm.reading import read_json
from claimflow.flows.engine.llm.render import render
from claimflow.flows.engine.llm.rungs import RUNGS, Rung, reply_format
from claimflow.flows.engine.llm.transport import Received, Request, send
from claimflow.flows.engine.llm.troubles import Trouble
from claimflow.stages.ask_verdicts import Opinion
from claimflow.stages.tools import Form

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


class Verified(NamedTuple):
    """A tiny verification: on which rung, what came back, in how many seconds.

    `wrong` is why it says nothing, None where `verdict` stands.
    """

    rung: Rung
    received: Received
    seconds: float
    verdict: str | None
    wrong: str | None


class Seeded(NamedTuple):
    """Whether a seed makes two replies equal, in words, and the seconds that each took."""

    words: str
    seconds: tuple[float, ...]


def patience(endpoint: Endpoint) -> float:
    """Seconds to wait for a reply: fewer than a run has, for somebody sits and waits."""
    return min(endpoint.timeout, _LONGEST)


async def verify(judge: Judge) -> Verified:
    """Have one claim verified, on the first rung that the endpoint takes. Raises `Trouble`."""
    messages = render(_FORM, _PREMISE, _CLAIM)
    refused = Trouble("rung", "no way to ask for JSON is left")
    for rung in RUNGS:
        try:
            parameters = judge.parameters() | reply_format(rung, _FORM)
            received, seconds = await _timed(judge, messages, parameters)
        except Trouble as trouble:
            if trouble.kind != "rung":
                raise
            refused = trouble
        else:
            return Verified(rung, received, seconds, *_read(received))
    raise refused


def _read(received: Received) -> tuple[str | None, str | None]:
    if received.refusal is not None:
        return None, f"the model declined: {received.refusal[:200]}"
    read = read_json(received.text, cut_off=received.finish == "length")
    if read.problem:
        return None, read.message
    matched = match(read.value, _FORM, list(_CLAIM))
    if matched.problems:
        return None, matched.problems[1][1]
    return cast(Opinion, matched.answers[1]).verdict, None


async def try_seed(judge: Judge) -> Seeded:
    """Ask for the same free text twice, with the judge's seed or else one of ours.

    At temperature 0 equal replies would say nothing of the seed, so there it is 1. What the
    endpoint does not take is left out.
    """
    own = judge.parameters()
    seeded = {"seed": _SEED, **own}
    refusal = ""
    for parameters in (seeded | {"temperature": own.get("temperature") or 1}, seeded, own):
        try:
            first, seconds = await _say_anything(judge, parameters)
            second, more = await _say_anything(judge, parameters)
        except Trouble as trouble:
            if trouble.kind not in ("fatal", "bad_request"):
                return Seeded(f"cannot tell: {trouble.message}", ())
            refusal = trouble.message
        else:
            return Seeded(_compared(first, second, parameters, refusal), (seconds, more))
    return Seeded(f"cannot tell: {refusal}", ())


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


async def _say_anything(judge: Judge, parameters: dict[str, Any]) -> tuple[str, float]:
    asked = [{"role": "user", "content": _ANYTHING}]
    received, seconds = await _timed(judge, asked, parameters)
    return received.text, seconds


async def _timed(
    judge: Judge, messages: list[dict[str, str]], parameters: dict[str, Any]
) -> tuple[Received, float]:
    started = time.monotonic()
    request = Request(judge.model, messages, parameters, judge.api_base)
    received = await send(request, timeout=patience(judge))
    return received, time.monotonic() - started
