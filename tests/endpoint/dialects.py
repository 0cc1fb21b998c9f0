"""The request and reply formats of the OpenAI, Ollama, Anthropic, Gemini and Converse APIs."""

import json
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tests.endpoint.asked import Answer, Asked, Message, Way
from tests.endpoint.fault import Refusal

Body = dict[str, Any]


class Dialect(NamedTuple):
    """Functions that read requests, write answers and write refusals."""

    read: Callable[[Body], Asked]
    write: Callable[[Asked, Answer, int], Body]
    refuse: Callable[[Refusal], Body]


def _text(content: Any) -> str:
    if isinstance(content, str) or content is None:
        return content or ""
    return "".join(part.get("text", "") for part in content if isinstance(part, dict))


def _messages(body: Body) -> tuple[Message, ...]:
    return tuple(Message(turn["role"], _text(turn.get("content"))) for turn in body["messages"])


def _read_openai(body: Body) -> Asked:
    form = body.get("response_format") or {}
    way: Way = form.get("type", "text")
    schema = form.get("json_schema", {}).get("schema")
    tool = ""
    if body.get("tools") and body.get("tool_choice", "auto") != "none":
        function = body["tools"][0]["function"]
        way, schema, tool = "tools", function.get("parameters"), function["name"]
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    return Asked(body["model"], _messages(body), way, schema, tool, limit, body.get("seed"))


def _write_openai(asked: Asked, answer: Answer, number: int) -> Body:
    message: Body = {"role": "assistant", "content": answer.text, "refusal": answer.refusal}
    finish: str = answer.finish
    if answer.refusal is not None:
        message["content"] = None
    elif asked.way == "tools" and answer.text:
        function = {"name": asked.tool, "arguments": answer.text}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        message |= {"content": None, "tool_calls": [call]}
        finish = "tool_calls" if finish == "stop" else finish
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    reply: Body = {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": asked.model,
        "choices": [choice] if answer.choices else [],
        "system_fingerprint": "fp_fake",
    }
    if answer.usage:
        reply["usage"] = {
            "prompt_tokens": answer.prompt_tokens,
            "completion_tokens": answer.completion_tokens,
            "total_tokens": answer.prompt_tokens + answer.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": answer.cached_tokens},
        }
    return reply


def _refuse_openai(refusal: Refusal) -> Body:
    error = {"message": refusal.message, "type": refusal.type}
    return {"error": {**error, "param": refusal.param, "code": refusal.code}}


def _read_ollama(body: Body) -> Asked:
    form, options = body.get("format"), body.get("options") or {}
    way: Way = "json_schema" if isinstance(form, dict) else "json_object" if form else "text"
    schema = form if isinstance(form, dict) else None
    tool = ""
    if body.get("tools"):
        function = body["tools"][0]["function"]
        way, schema, tool = "tools", function.get("parameters"), function["name"]
    limit, seed = options.get("num_predict"), options.get("seed")
    return Asked(body["model"], _messages(body), way, schema, tool, limit, seed)


def _write_ollama(asked: Asked, answer: Answer, number: int) -> Body:
    message: Body = {"role": "assistant", "content": answer.text or answer.refusal or ""}
    arguments = _object(answer.text)
    if asked.way == "tools" and arguments is not None:
        call = {"function": {"name": asked.tool, "arguments": arguments}}
        message |= {"content": "", "tool_calls": [call]}
    reply = {
        "model": asked.model,
        "created_at": "2026-01-01T00:00:00.000000Z",
        "done": True,
        "done_reason": "length" if answer.finish == "length" else "stop",
    }
    if answer.choices:
        reply["message"] = message
    if answer.usage:
        counts = {"prompt_eval_count": answer.prompt_tokens, "eval_count": answer.completion_tokens}
        reply |= {**counts, "total_duration": 1_000_000, "eval_duration": 1_000_000}
    return reply


def _refuse_ollama(refusal: Refusal) -> Body:
    return {"error": refusal.message}


def _read_anthropic(body: Body) -> Asked:
    system = (Message("system", _text(body["system"])),) if body.get("system") else ()
    form = body.get("output_format") or (body.get("output_config") or {}).get("format") or {}
    way: Way = "json_schema" if form else "text"
    schema, tool = form.get("schema"), ""
    if body.get("tools"):
        chosen = body["tools"][0]
        way, schema, tool = "tools", chosen.get("input_schema"), chosen["name"]
    turns = system + _messages(body)
    return Asked(body["model"], turns, way, schema, tool, body.get("max_tokens"))


def _write_anthropic(asked: Asked, answer: Answer, number: int) -> Body:
    stop = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}[answer.finish]
    words = answer.text or answer.refusal or ""
    content: list[Body] = [{"type": "text", "text": words}] if words else []
    arguments = _object(answer.text)
    if asked.way == "tools" and arguments is not None:
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": asked.tool}
        content = [{**call, "input": arguments}]
        stop = "tool_use" if stop == "end_turn" else stop
    reply: Body = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": asked.model,
        "content": content if answer.choices else [],
        "stop_reason": "refusal" if answer.refusal else stop,
        "stop_sequence": None,
    }
    reply["usage"] = {
        "input_tokens": (answer.prompt_tokens - answer.cached_tokens) * answer.usage,
        "cache_read_input_tokens": answer.cached_tokens * answer.usage,
        "cache_creation_input_tokens": 0,
        "output_tokens": answer.completion_tokens * answer.usage,
    }
    return reply


def _refuse_anthropic(refusal: Refusal) -> Body:
    return {"type": "error", "error": {"type": refusal.type, "message": refusal.message}}


def _read_gemini(body: Body) -> Asked:
    system = _text((body.get("system_instruction") or {}).get("parts"))
    turns = [Message("system", system)] if system else []
    turns += [Message(turn["role"], _text(turn["parts"])) for turn in body["contents"]]
    settings = body.get("generationConfig") or {}
    schema = settings.get("response_json_schema") or settings.get("response_schema")
    json_only = settings.get("response_mime_type") == "application/json"
    way: Way = "json_schema" if schema else "json_object" if json_only else "text"
    limit = settings.get("max_output_tokens")
    return Asked("gemini", tuple(turns), way, schema, "", limit, settings.get("seed"))


def _write_gemini(asked: Asked, answer: Answer, number: int) -> Body:
    finish = "content_filter" if answer.refusal else answer.finish
    stop = {"stop": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}[finish]
    parts = [{"text": answer.text or answer.refusal or ""}]
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": stop, "index": 0}
    return {
        "candidates": [candidate] if answer.choices else [],
        "responseId": f"gemini-{number}",
        "usageMetadata": {
            "promptTokenCount": answer.prompt_tokens,
            "cachedContentTokenCount": answer.cached_tokens,
            "candidatesTokenCount": answer.completion_tokens,
            "totalTokenCount": answer.prompt_tokens + answer.completion_tokens,
        },
    }


def _refuse_gemini(refusal: Refusal) -> Body:
    return {"error": {"code": refusal.status, "message": refusal.message, "status": "UNKNOWN"}}


def _read_converse(body: Body) -> Asked:
    turns = (Message("system", _text(body["system"])),) if body.get("system") else ()
    tools = (body.get("toolConfig") or {}).get("tools") or []
    way: Way = "tools" if tools else "text"
    chosen: Body = tools[0]["toolSpec"] if tools else {"inputSchema": {"json": None}, "name": ""}
    limit = (body.get("inferenceConfig") or {}).get("maxTokens")
    schema, tool = chosen["inputSchema"]["json"], chosen["name"]
    return Asked("converse", turns + _messages(body), way, schema, tool, limit)


def _write_converse(asked: Asked, answer: Answer, number: int) -> Body:
    stop = {"stop": "end_turn", "length": "max_tokens", "content_filter": "content_filtered"}
    reason = stop["content_filter" if answer.refusal else answer.finish]
    content: list[Body] = [] if answer.refusal else [{"text": answer.text}]
    arguments = _object(answer.text)
    if asked.way == "tools" and arguments is not None:
        call = {"toolUseId": f"tooluse_{number}", "name": asked.tool, "input": arguments}
        content = [{"toolUse": call}]
        reason = "tool_use" if reason == "end_turn" else reason
    return {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": reason,
        "usage": {
            "inputTokens": answer.prompt_tokens,
            "outputTokens": answer.completion_tokens,
            "totalTokens": answer.prompt_tokens + answer.completion_tokens,
        },
        "metrics": {"latencyMs": 1},
    }


def _refuse_converse(refusal: Refusal) -> Body:
    return {"message": refusal.message}


def _object(text: str) -> Body | None:
    """The arguments of a tool call, which two of the dialects send as an object."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


OPENAI: Final = Dialect(_read_openai, _write_openai, _refuse_openai)
OLLAMA: Final = Dialect(_read_ollama, _write_ollama, _refuse_ollama)
ANTHROPIC: Final = Dialect(_read_anthropic, _write_anthropic, _refuse_anthropic)
GEMINI: Final = Dialect(_read_gemini, _write_gemini, _refuse_gemini)
CONVERSE: Final = Dialect(_read_converse, _write_converse, _refuse_converse)
