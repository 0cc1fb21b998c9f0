"""OTLP JSON, as the file exporter of the OpenTelemetry Collector and `claimflow receive` write it.

Spans have attributes of the GenAI semantic conventions, in any of their three forms, or those of
OpenInference. Messages that are logged as events of a span, or as log records, belong to it too.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from claimflow.flows.samples.json_files import decode_object
from claimflow.flows.traces import openinference
from claimflow.flows.traces.spans import NO_IDS, NO_OBJECT, NO_RECORD, Kind, Message, Reason, Span
from claimflow.flows.traces.values import (
    answer_of,
    at,
    count,
    documents_of,
    entries,
    messages_of,
    nanoseconds,
    nest,
    objects,
    shown,
    text,
)

_DEPTH: Final = 32

_KINDS: Final[Mapping[str, Kind]] = {
    "chat": "llm",
    "text_completion": "llm",
    "generate_content": "llm",
    "retrieval": "retrieval",
    "execute_tool": "tool",
}
"""The values of `gen_ai.operation.name` that matter; agents and workflows hold other spans."""

_DETAILS: Final = "gen_ai.client.inference.operation.details"
_CHOICE: Final = "gen_ai.choice"
_MESSAGE_EVENTS: Final = {
    f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")
}

_FAILED: Final = (2, "2", "STATUS_CODE_ERROR")
"""The status code of an error; protobuf's own JSON names it."""

_REMOTE_PARENT: Final = 0x300
"""The flags of a span that say that it is known whether its parent is remote, and that it is."""

RECEIVED: Final = "otlp"
"""The column of a part of `claimflow receive`, which holds one export as OTLP JSON."""


def is_received(row: Mapping[str, Any]) -> bool:
    """Whether a row is one of `claimflow receive`."""
    return isinstance(row.get(RECEIVED), str)


def is_message_event(name: str | None) -> bool:
    """Whether a log record with this name of an event holds messages of a span."""
    return name == _DETAILS or _is_one_message(name)


def _is_one_message(name: str | None) -> bool:
    """Whether an event of this name holds one message, not all of a call."""
    return name == _CHOICE or name in _MESSAGE_EVENTS


def spans(document: Mapping[str, Any], _place: str) -> Iterator[Span | Reason]:
    """The spans of one export, and those log records that hold messages of a span."""
    if is_received(document):
        export = decode_object(document[RECEIVED].encode(), hint="")
        document = export if isinstance(export, dict) else {}
    found = False
    for resource in entries(document, "resourceSpans"):
        found = True
        for scope in entries(resource, "scopeSpans", "instrumentationLibrarySpans"):
            for span in entries(scope, "spans"):
                yield NO_OBJECT if span is None else _span(span)
    for resource in entries(document, "resourceLogs"):
        found = True
        for scope in entries(resource, "scopeLogs"):
            for record in entries(scope, "logRecords"):
                if record is None:
                    yield NO_OBJECT
                else:
                    yield from _log_record(record)
    if not found:
        yield NO_RECORD


def _span(span: dict[str, Any]) -> Span | Reason:
    trace_id, span_id = text(span.get("traceId")), text(span.get("spanId"))
    if trace_id is None or span_id is None:
        return NO_IDS
    given = _attributes(span)
    attributes = nest(given)
    found: dict[str, Any] = {}
    if openinference.is_described(attributes):
        found = openinference.described(attributes)
    elif "gen_ai" in attributes or span.get("events"):
        found = _generation(attributes, *_span_messages(attributes, span))
    return Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_id=_parent(span),
        name=text(span.get("name")),
        start=nanoseconds(span.get("startTimeUnixNano")),
        end=nanoseconds(span.get("endTimeUnixNano")),
        failed=at(span, "status.code") in _FAILED or at(attributes, "error.type") is not None,
        parent_is_remote=(count(span.get("flags")) or 0) & _REMOTE_PARENT == _REMOTE_PARENT,
        **found,
    )


def _parent(span: dict[str, Any]) -> str | None:
    """The id of the parent; one of zeros alone is none, by the specification of trace contexts."""
    found = text(span.get("parentSpanId"))
    return found if found and found.strip("0") else None


def _log_record(record: dict[str, Any]) -> Iterator[Span | Reason]:
    """What a log record says of a span, where it is one of the GenAI conventions."""
    attributes = _attributes(record)
    name = text(record.get("eventName"), attributes.get("event.name"))
    if name is None or not is_message_event(name):
        return
    trace_id, span_id = text(record.get("traceId")), text(record.get("spanId"))
    if trace_id is None or span_id is None:
        yield NO_IDS
        return
    body = _value(record.get("body"))
    attributes |= body if isinstance(body, dict) else {}
    moment = nanoseconds(record.get("timeUnixNano")) or nanoseconds(
        record.get("observedTimeUnixNano")
    )
    nested = nest(attributes)
    found = _generation(nested, *_event_messages(name, nested))
    found["kind"] = "message" if _is_one_message(name) else "exchange"
    yield Span(trace_id=trace_id, span_id=span_id, start=moment, **found)


def _events(span: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, attributes) of the events of a span, in the order of their times."""
    found = [event for event in objects(span, "events") if text(event.get("name"))]
    found.sort(key=lambda event: nanoseconds(event.get("timeUnixNano")) or 0)
    for event in found:
        yield event["name"], nest(_attributes(event))


def _span_messages(
    attributes: dict[str, Any], span: dict[str, Any]
) -> tuple[list[Message], list[str]]:
    """(messages that went in, answers) of a span, each from the first source that has any.

    The sources repeat each other: the attributes, an event with all messages, which is the last
    one that has any, and the events of one message each.
    """
    exchanges = []
    one_by_one: tuple[list[Message], list[str]] = ([], [])
    for name, event in _events(span):
        asked, said = _event_messages(name, event)
        if _is_one_message(name):
            one_by_one[0].extend(asked)
            one_by_one[1].extend(said)
        else:
            exchanges.append((asked, said))
    sources = [_messages(attributes), *reversed(exchanges), one_by_one]
    return (
        next((asked for asked, _ in sources if asked), []),
        next((said for _, said in sources if said), []),
    )


def _generation(
    attributes: dict[str, Any], asked: list[Message], said: list[str]
) -> dict[str, Any]:
    """The fields of a span that attributes of the GenAI conventions and its messages fill."""
    operation = text(at(attributes, "gen_ai.operation.name"))
    documents = documents_of(at(attributes, "gen_ai.retrieval.documents"))
    kind = _KINDS.get(operation or "", "other")
    if documents:
        kind = "retrieval"
    elif operation is None and said:
        kind = "llm"
    return {
        "kind": kind,
        "asked": asked,
        "said": said,
        "documents": documents,
        "tool_result": shown(at(attributes, "gen_ai.tool.call.result")),
        "model": text(
            at(attributes, "gen_ai.response.model"), at(attributes, "gen_ai.request.model")
        ),
        # `prompt_tokens` and `completion_tokens` are the names of older releases.
        "tokens_in": count(
            at(attributes, "gen_ai.usage.input_tokens"),
            at(attributes, "gen_ai.usage.prompt_tokens"),
        ),
        "tokens_out": count(
            at(attributes, "gen_ai.usage.output_tokens"),
            at(attributes, "gen_ai.usage.completion_tokens"),
        ),
        "session": text(at(attributes, "gen_ai.conversation.id"), at(attributes, "session.id")),
    }


def _messages(attributes: dict[str, Any]) -> tuple[list[Message], list[str]]:
    """(messages that went in, answers) of the attributes of this form or the older one."""
    asked = messages_of(at(attributes, "gen_ai.input.messages"))
    asked = asked or messages_of(at(attributes, "gen_ai.prompt"))
    outputs = (at(attributes, f"gen_ai.{name}") for name in ("output.messages", "completion"))
    agent = at(attributes, "gen_ai.operation.name") in ("invoke_agent", "invoke_workflow")
    answers = (answer_of(one, last=agent, plain=False) for one in outputs)
    return asked, [one for one in answers if one is not None][:1]


def _event_messages(name: str, event: dict[str, Any]) -> tuple[list[Message], list[str]]:
    """(messages that went in, answers) of an event, whose members are attributes or a body."""
    # Azure's libraries write the body of an event as text into an attribute.
    content = at(event, "gen_ai.event.content")
    if name in _MESSAGE_EVENTS:
        role = _MESSAGE_EVENTS[name]
        if content is not None:
            return [(role, one) for _, one in messages_of(content)], []  # type: ignore[misc]
        return messages_of({"role": role, "content": event.get("content")}), []
    if name == _CHOICE:
        found = event if content is None else content
        # The order of choices is that of their index, and the first one counts.
        answer = answer_of(found, plain=False) if not _is_later_choice(event) else None
        return [], [answer] if answer is not None else []
    # The details have attributes as a span has; older libraries log a prompt or a completion.
    return _messages(event)


def _is_later_choice(event: dict[str, Any]) -> bool:
    return bool(count(event.get("index")))


def _attributes(holder: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a span, an event or a log record by their names."""
    found = {}
    for one in objects(holder, "attributes"):
        name = one.get("key")
        if isinstance(name, str) and name not in found:
            found[name] = _value(one.get("value"))
    return found


def _value(value: Any, depth: int = 0) -> Any:
    """The value of a typed one, such as `{"stringValue": "..."}`."""
    if not isinstance(value, dict) or depth > _DEPTH:
        return None
    if "arrayValue" in value:
        members = objects(value["arrayValue"], "values")
        return [_value(member, depth + 1) for member in members]
    if "kvlistValue" in value:
        pairs = objects(value["kvlistValue"], "values")
        return {
            one["key"]: _value(one.get("value"), depth + 1)
            for one in pairs
            if isinstance(one.get("key"), str)
        }
    for name in ("stringValue", "intValue", "doubleValue", "boolValue"):
        if isinstance(value.get(name), str | int | float):
            return value[name]
    return None
