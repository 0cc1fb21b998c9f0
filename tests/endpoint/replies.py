"""The reply to each path, apart from faults of the connection."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from tests.endpoint import judge, statuses, vectors
from tests.endpoint.asked import Answer, Asked, tokens
from tests.endpoint.behaviour import Behaviour
from tests.endpoint.dialects import ANTHROPIC, CONVERSE, GEMINI, OLLAMA, OPENAI, Body, Dialect
from tests.endpoint.fault import Fault, Refusal
from tests.endpoint.record import Record

JSON: Final = {"content-type": "application/json"}

_CHAT: Final = {"/v1/chat/completions": OPENAI, "/api/chat": OLLAMA, "/v1/messages": ANTHROPIC}
_EMBEDDING: Final = ("/v1/embeddings", "/api/embed")
_MOST_INPUTS: Final = 2048
_SHOWN: Final = {
    "details": {"family": "fake", "parameter_size": "1B", "quantization_level": "Q4_0"},
    "model_info": {"general.architecture": "fake", "fake.context_length": 32768},
    "capabilities": ["completion", "tools"],
    "template": "{{ .Prompt }}",
}
_LISTED: Final = {
    "object": "list",
    "data": [{"id": "fake", "object": "model", "created": 0, "owned_by": "tests"}],
}
_FIXED: Final[Mapping[str, Any]] = {
    "/v1/models": _LISTED,
    "/api/tags": {"models": [{"name": "fake", "model": "fake"}]},
    "/api/show": _SHOWN,
}


class Ready(NamedTuple):
    """A reply ready to be sent. Its latency depends on `tokens`; None means no latency."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    tokens: int | None = None


_FIRST_PREFIX: Final = 1024 * 4
_PREFIX_STEP: Final = 128 * 4
_PREFIXES_KEPT: Final = 100_000


class PromptCache:
    """Prefixes of recent prompts, as providers cache them: from 1,024 tokens in steps of 128."""

    def __init__(self) -> None:
        self._seen: dict[int, None] = {}

    def cached(self, prompt: str) -> int:
        """The tokens of the longest known prefix of `prompt`, whose prefixes are added."""
        chain, start, cached, known = 0, 0, 0, True
        for end in range(_FIRST_PREFIX, len(prompt) + 1, _PREFIX_STEP):
            chain = hash((chain, prompt[start:end]))
            start = end
            known = known and chain in self._seen
            cached = end // 4 if known else cached
            self._seen[chain] = None
        while len(self._seen) > _PREFIXES_KEPT:
            del self._seen[next(iter(self._seen))]
        return cached


class Replies:
    """Makes the replies of one endpoint, and counts their tokens in `record`."""

    def __init__(self, behaviour: Behaviour, record: Record) -> None:
        self._behaviour = behaviour
        self._record = record
        self._prompt_cache = PromptCache()

    def make(self, path: str, body: Body, number: int, fault: Fault | None) -> Ready:
        """The reply to one request, as changed by the fault."""
        if fault is not None and fault.refusal is not None:
            return refuse(path, fault.refusal)
        ready = self._make(path, body, number, fault)
        if fault is not None and fault.body is not None:
            return ready._replace(body=fault.body(ready.body))
        return ready

    def _make(self, path: str, body: Body, number: int, fault: Fault | None) -> Ready:
        if dialect := _dialect_of(path):
            return self._chat(dialect, path, body, number, fault)
        if path in _EMBEDDING:
            return self._embed(path, body, fault)
        if path in _FIXED:
            return Ready(200, JSON, _json(_FIXED[path]))
        return refuse(path, Refusal(404, f"Nothing is at {path}.", "invalid_request_error"))

    def _chat(
        self, dialect: Dialect, path: str, body: Body, number: int, fault: Fault | None
    ) -> Ready:
        asked = dialect.read(body)
        refusal = self._unsupported(asked, body)
        if refusal is not None:
            return refuse(path, refusal)
        answer = self._answer(asked, fault.answer if fault else None)
        self._count(answer)
        written = _json(dialect.write(asked, answer, number))
        return Ready(200, JSON, written, answer.completion_tokens)

    def _answer(self, asked: Asked, change: Callable[[Answer], Answer] | None) -> Answer:
        prompt = asked.prompt
        answer = Answer(
            judge.reply_text(asked),
            prompt_tokens=tokens(prompt),
            cached_tokens=self._prompt_cache.cached(prompt),
        )
        if change is not None:
            answer = change(answer)
        if asked.max_tokens is not None and answer.completion_tokens > asked.max_tokens > 0:
            answer = answer._replace(text=answer.text[: asked.max_tokens * 4], finish="length")
        return answer

    def _count(self, answer: Answer) -> None:
        self._record.prompt_tokens += answer.prompt_tokens
        self._record.cached_tokens += answer.cached_tokens
        self._record.completion_tokens += answer.completion_tokens

    def _unsupported(self, asked: Asked, body: Body) -> Refusal | None:
        refuses = self._behaviour.refuses
        if asked.way in refuses:
            return statuses.unsupported_format(asked.way).refusal
        for name in refuses:
            if name in body or name in body.get("options", ()):
                return statuses.unsupported_parameter(name).refusal
        return None

    def _embed(self, path: str, body: Body, fault: Fault | None) -> Ready:
        texts = vectors.texts_of(body)
        empty = "empty_input" in self._behaviour.refuses and not all(texts)
        if len(texts) > _MOST_INPUTS or not texts or empty:
            words = "'$.input' is invalid. Please check the API reference."
            return refuse(path, Refusal(400, words, "invalid_request_error"))
        size = body.get("dimensions") or self._behaviour.dimension
        made = [vectors.vector(text, size) for text in texts]
        if fault is not None and fault.vectors is not None:
            made = list(fault.vectors(made))
        listed = vectors.written(made, body.get("encoding_format", "float"))
        count = sum(tokens(text) for text in texts)
        self._record.prompt_tokens += count
        if path == "/api/embed":
            reply = {"model": body.get("model"), "embeddings": listed, "prompt_eval_count": count}
            return Ready(200, JSON, _json(reply), 0)
        numbered = [
            {"object": "embedding", "index": place, "embedding": each}
            for place, each in enumerate(listed)
        ]
        usage = {"prompt_tokens": count, "total_tokens": count}
        whole = {"object": "list", "model": body.get("model"), "data": numbered, "usage": usage}
        return Ready(200, JSON, _json(whole), 0)


def _dialect_of(path: str) -> Dialect | None:
    """The dialect of the chats at a path; None where there are none."""
    if path.endswith(":generateContent"):
        return GEMINI
    if path.startswith("/model/") and path.endswith("/converse"):
        return CONVERSE
    return _CHAT.get(path)


def refuse(path: str, refusal: Refusal) -> Ready:
    """A refusal in the dialect of `path`."""
    dialect = OLLAMA if path.startswith("/api/") else _dialect_of(path) or OPENAI
    body = _json(dialect.refuse(refusal)) if refusal.body is None else refusal.body
    return Ready(refusal.status, {**JSON, **refusal.headers}, body)


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
