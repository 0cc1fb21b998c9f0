"""Logs of chats in the form of OpenAI: the messages of a request, and its response.

A line is `{"messages": [...]}`, beside which the response may stand as `response` or `choices`;
without one the last message is it. A line may also hold a `request` and a `response`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from claimflow.flows.traces.spans import Reason, Span
from claimflow.flows.traces.values import answer_of, at, count, messages_of, nanoseconds, text

_SECOND = 10**9


def is_chat(row: Mapping[str, Any]) -> bool:
    """Whether a row is a logged chat."""
    return any(isinstance(one, list) for one in (row.get("messages"), at(row, "request.messages")))


def spans(row: Mapping[str, Any], place: str) -> Iterator[Span | Reason]:
    """The one span of a row, which is a trace of its own."""
    request = row["request"] if isinstance(row.get("request"), dict) else row
    response = row.get("response")
    asked = messages_of(request.get("messages", row.get("messages")))
    answer = answer_of(response)
    if answer is None:
        answer = answer_of({"choices": row.get("choices")})
    if answer is None and asked and asked[-1][0] == "assistant":
        answer = asked.pop()[1]
    within = response if isinstance(response, dict) else {}
    log_id = text(row.get("id"), within.get("id"))
    usage = [at(one, "usage") for one in (row, within)]
    start = nanoseconds(text(row.get("created"), within.get("created")), unit=_SECOND)
    yield Span(
        trace_id=log_id or place,
        span_id="",
        kind="llm",
        start=start,
        asked=asked,
        said=[] if answer is None else [answer],
        model=text(within.get("model"), row.get("model"), request.get("model")),
        tokens_in=count(
            *(at(one, name) for one in usage for name in ("prompt_tokens", "input_tokens"))
        ),
        tokens_out=count(
            *(at(one, name) for one in usage for name in ("completion_tokens", "output_tokens"))
        ),
        session=text(row.get("session_id"), row.get("conversation_id")),
        named=log_id is not None,
        logged=(text(row.get("trace_id")) or "", text(row.get("span_id")) or ""),
    )
