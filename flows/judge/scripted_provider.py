"""A judge provider whose replies a test writes, so that no model is asked."""

# ruff: noqa: ARG002 - a script needs no time limit and has one price.

import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

from claimflow.flows.judge.provider import (
    ChatReply,
    JudgeProvider,
    Price,
    ProviderError,
    Request,
    Usage,
)
from claimflow.flows.pipeline.model_settings import PROVIDER_OBJECTS

Answer = str | dict[str, Any] | ChatReply | Exception
"""A reply: its text, an object that is sent as JSON, the reply itself, or what is raised."""

_OPENING: Final = re.compile(r'<([a-z_]+)-([0-9a-f]{8})(?: id="(\d+)")?>\n')


class _Text(NamedTuple):
    """A text of a request that is asked about, with the nearest premise above it."""

    kind: str
    id: int
    text: str
    premise: str


class ScriptedJudge(JudgeProvider):
    """A judge that answers by a script: for tests of pipelines, without a network.

    `answers` is a function of the `Request`, or a list of replies in the order of the calls (with
    `max_concurrency: 1` in the settings that order is the order of the samples). An answer is the
    text of the reply, a dict that is sent as JSON, a `ChatReply`, or an exception that is raised.

    In place of `answers`, functions say what the judge thinks: `claims(text)` lists the claims of
    a text, `verdict(claim, premise)` is entailed, contradicted or neutral, `check(check, sample)`
    is the verdict of a rubric. The sample of a check is its texts with their tags.

    It is the `judge` of `claimflow.evaluate`; `settings` stands for it in `judge:` of a
    pipeline. `requests` are the calls so far. Tokens are counted as words and cost nothing. With a
    `name`, replies and tables of a kept store are reused by a later judge of the same name;
    without one they never are. A call without an answer ends the run with a `JudgeError`.
    """

    def __init__(
        self,
        answers: Callable[[Request], Answer] | Iterable[Answer] | None = None,
        *,
        claims: Callable[[str], Sequence[str]] | None = None,
        verdict: Callable[[str, str], str] | None = None,
        check: Callable[[str, str], str | int] | None = None,
        name: str | None = None,
    ) -> None:
        self.requests: list[Request] = []
        self._replies: Iterator[Answer] | None = None
        self._function: Callable[[Request], Answer] | None = None
        if callable(answers):
            self._function = answers
        elif answers is not None:
            self._replies = iter(answers)
        self._claims, self._verdict, self._check = claims, verdict, check
        if answers is None and not (claims or verdict or check):
            raise TypeError("give answers, or functions: claims, verdict or check")
        self.name = name or f"scripted-{uuid.uuid4().hex[:12]}"
        self.model = "scripted"
        PROVIDER_OBJECTS[self.name] = self

    @property
    def settings(self) -> dict[str, Any]:
        """What `judge:` of a pipeline must be, so that this judge is asked while it exists."""
        return {"provider": self.name, "model": self.model}

    async def chat(self, request: Request, *, timeout: float) -> ChatReply:
        """The next answer of the script."""
        self.requests.append(request)
        if self._replies is not None:
            answer = next(self._replies, _missing(f"call {len(self.requests)}"))
        else:
            answer = (self._function or self._by_texts)(request)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, ChatReply):
            return answer
        text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
        prompt = sum(len(message["content"].split()) for message in request.messages)
        return ChatReply(text, "stop", usage=Usage(prompt, None, len(text.split())))

    def list_price(self, model: str) -> Price:
        """Nothing is paid."""
        return Price(Decimal(0), Decimal(0), Decimal(0))

    def _by_texts(self, request: Request) -> Answer:
        """The answer that the functions give to the texts of a request."""
        users = [one["content"] for one in request.messages if one["role"] == "user"]
        found = [list(_texts(content)) for content in users]
        asked = next((some for some in reversed(found) if some), [])
        kind = asked[0].kind if asked else "request"
        if kind == "text" and self._claims:
            return {
                "texts": [{"id": one.id, "claims": list(self._claims(one.text))} for one in asked]
            }
        judged = {"claim": self._verdict, "check": self._check}.get(kind)
        if judged is None:
            return _missing(f"a {kind}")
        verdicts = [{"id": one.id, "verdict": judged(one.text, one.premise)} for one in asked]
        return {f"{kind}s": verdicts}


def _missing(what: str) -> ProviderError:
    return ProviderError("fatal", f"the script has no answer to {what}")


def _texts(message: str) -> Iterator[_Text]:
    """The texts of a message between tags; tags within a text belong to it."""
    position = 0
    premise = ""
    while opening := _OPENING.search(message, position):
        kind, digits, number = opening.groups()
        closing = f"\n</{kind}-{digits}>"
        end = message.find(closing, opening.end())
        if end < 0:
            return
        text = message[opening.end() : end]
        if number:
            yield _Text(kind, int(number), text, premise)
        else:
            premise = text
        position = end + len(closing)
