"""MLflow's traces: `Trace.to_json` as JSON or JSON Lines, and rows of `search_traces`.

A trace holds its spans. Attributes of spans are JSON text; those of releases before 3 name ids and
times in another way.
"""

import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Any, Final

from claimflow.flows.traces.spans import NO_IDS, NO_OBJECT, Kind, Reason, Span
from claimflow.flows.traces.values import (
    amount,
    answer_of,
    at,
    count,
    documents_of,
    entries,
    messages_of,
    nanoseconds,
    parsed,
    shown,
    text,
)

_KINDS: Final[Mapping[str, Kind]] = {
    "LLM": "llm",
    "CHAT_MODEL": "llm",
    "RETRIEVER": "retrieval",
    "RERANKER": "reranker",
    "TOOL": "tool",
}
"""The types that matter; of the others (AGENT, CHAIN, PARSER) the tree is kept."""

_FAILED: Final = ("STATUS_CODE_ERROR", "ERROR")

_BASE64_ID: Final = re.compile(r"[A-Za-z0-9+/]{11}=")
"""The eight bytes of the id of a span, as releases from 3 on write it."""


def is_trace(row: Mapping[str, Any]) -> bool:
    """Whether a row is a trace, or holds one as `search_traces` returns it."""
    # Of the columns that `search_traces` returns, a file may have some only.
    return _is_whole(row) or (
        "trace" in row
        and ("request" in row or "trace_metadata" in row or _is_whole(parsed(row["trace"])))
    )


def _is_whole(row: Any) -> bool:
    return isinstance(row, dict) and isinstance(row.get("info"), dict) and "data" in row


def spans(row: Mapping[str, Any], _place: str) -> Iterator[Span | Reason]:
    """The spans of a trace."""
    trace = row if _is_whole(row) else parsed(row.get("trace"))
    trace_id = text(at(trace, "info.trace_id"), at(trace, "info.request_id"))
    if trace_id is None:
        yield NO_IDS
        return
    metadata = at(trace, "info.trace_metadata") or at(trace, "info.request_metadata")
    # Names with dots in them are no paths.
    session = metadata.get("mlflow.trace.session") if isinstance(metadata, dict) else None
    for span in entries(at(trace, "data"), "spans"):
        yield NO_OBJECT if span is None else _span(span, trace_id, text(session))


def _span(span: Mapping[str, Any], trace_id: str, session: str | None) -> Span | Reason:
    span_id = _shown_id(text(span.get("span_id"), at(span, "context.span_id")))
    if span_id is None:
        return NO_IDS
    attributes = span.get("attributes")
    given = {
        name: _decoded(value)
        for name, value in (attributes if isinstance(attributes, dict) else {}).items()
    }
    kind = _KINDS.get(str(given.get("mlflow.spanType")).upper(), "other")
    outputs = given.get("mlflow.spanOutputs")
    answer = None
    if kind not in ("retrieval", "reranker", "tool"):
        answer = answer_of(outputs, last=kind != "llm", plain=kind == "llm")
    usage = given.get("mlflow.chat.tokenUsage")
    return Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_id=_shown_id(text(span.get("parent_span_id"), span.get("parent_id"))),
        kind=kind,
        name=text(span.get("name")),
        start=nanoseconds(text(span.get("start_time_unix_nano"), span.get("start_time"))),
        end=nanoseconds(text(span.get("end_time_unix_nano"), span.get("end_time"))),
        asked=messages_of(given.get("mlflow.spanInputs")),
        said=[] if answer is None else [answer],
        documents=documents_of(outputs) if kind in ("retrieval", "reranker") else [],
        reranked=documents_of(given.get("mlflow.spanInputs")) if kind == "reranker" else [],
        tool_result=shown(outputs) if kind == "tool" else None,
        model=text(given.get("mlflow.llm.model"), at(outputs, "model")),
        tokens_in=count(at(usage, "input_tokens")),
        tokens_out=count(at(usage, "output_tokens")),
        cost=amount(at(given.get("mlflow.llm.cost"), "total_cost")),
        session=session,
        failed=at(span, "status.code") in _FAILED or span.get("status_code") in _FAILED,
    )


def _shown_id(span_id: str | None) -> str | None:
    """The id of a span as MLflow shows it: hexadecimal digits for base64; others as they are."""
    if span_id is None or not _BASE64_ID.fullmatch(span_id):
        return span_id
    return b64decode(span_id).hex()


def _decoded(value: Any) -> Any:
    """The value of an attribute, which is JSON text; a text in it has quotes."""
    # In a list, so that texts are read by the same rules as objects.
    found = parsed(f"[{value}]") if isinstance(value, str) else None
    return found[0] if isinstance(found, list) and len(found) == 1 else value
