"""Spans: what every format of traces is read as."""

import json
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from claimflow.flows.samples.conversations import Role

Kind = Literal["trace", "llm", "retrieval", "reranker", "tool", "message", "exchange", "other"]
"""What a span records. `trace` is a whole trace as one row, which is the root of its spans.
`message` and `exchange` are log records of the span with the same id: one of its messages, or all
of a call."""

LOGGED: Final = ("message", "exchange")
"""The kinds that are log records."""

Message = tuple[Role, str | None]
"""A message: who wrote it, and its text; None where it only calls tools."""

Reason = str
"""Why something is left out, in the plural: what is counted is named by it."""

NO_IDS: Final = "spans without a trace id or a span id"
NO_OBJECT: Final = "entries that are no objects"
NO_RECORD: Final = "records of another format"
PYTHON_VALUES: Final = "spans with values as Python prints them"


class Span(NamedTuple):
    """One operation of a trace; texts that it does not have are empty lists or None.

    `asked` are the messages that went in, `said` the answers that came out, the best last. Of a
    reranker `documents` came out and `reranked` went in. `failed` is True where the span ended in
    an error, `parent_is_remote` where its parent is said to be in another process. `start` and
    `end` are nanoseconds since 1970, `cost` is in US dollars. `span_id` is empty for a record that
    is no span: a whole trace, or a logged chat. `logged` are the ids of the trace and the span that
    a log of chats names, empty where it names none; its `trace_id` is only that of the log, and
    only a place where `named` is False.
    """

    trace_id: str
    span_id: str
    parent_id: str | None = None
    kind: Kind = "other"
    name: str | None = None
    start: int | None = None
    end: int | None = None
    asked: Sequence[Message] = ()
    said: Sequence[str] = ()
    documents: Sequence[str] = ()
    reranked: Sequence[str] = ()
    tool_result: str | None = None
    model: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost: float | None = None
    session: str | None = None
    named: bool = True
    failed: bool = False
    parent_is_remote: bool = False
    logged: tuple[str, str] | None = None

    def text(self) -> str:
        """The span as text, which `span_of` reads."""
        return json.dumps(self)


def span_of(text: str) -> Span:
    """The span that `Span.text` wrote."""
    return Span(*json.loads(text))
