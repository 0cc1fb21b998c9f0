"""Spans with the attributes of OpenInference, as Phoenix exports them in rows.

A row names its attributes as columns (`attributes.llm.input_messages`) or holds them as one object
(`attributes`), with dotted names in it or not. The same attributes may stand in OTLP.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from claimflow.flows.samples.fields import python_list
from claimflow.flows.samples.records import RecordError
from claimflow.flows.traces.spans import NO_IDS, PYTHON_VALUES, Kind, Reason, Span
from claimflow.flows.traces.values import (
    amount,
    answer_of,
    at,
    count,
    documents_of,
    messages_of,
    nanoseconds,
    nest,
    parsed,
    shown,
    text,
)

_KINDS: Final[Mapping[str, Kind]] = {
    "LLM": "llm",
    "RETRIEVER": "retrieval",
    "RERANKER": "reranker",
    "TOOL": "tool",
}
"""The span kinds that matter; of the others the tree is kept."""

_STRUCTURED: Final = (
    "attributes", "attributes.llm.input_messages", "attributes.llm.output_messages",
    "attributes.retrieval.documents", "attributes.reranker.input_documents",
    "attributes.reranker.output_documents",
)  # fmt: skip
"""The columns of lists and objects, which pandas writes to CSV as Python prints them."""

_PRINTED: Final = ("[{'", "array([{'", "{'")
"""How a list or an object begins as Python prints it; JSON has no such quotes."""

_MILLISECOND: Final = 10**6
"""pandas writes times as milliseconds where it is not told otherwise."""


def spans(row: Mapping[str, Any], _place: str) -> Iterator[Span | Reason]:
    """The span of a row."""
    values = {name: parsed(value) for name, value in row.items()}
    for name in _STRUCTURED:
        printed = values.get(name)
        if isinstance(printed, str) and printed.startswith(_PRINTED):
            values[name] = _python_list(printed)
            if values[name] is None:
                yield PYTHON_VALUES
                return
    nested = nest({name: nest(value) for name, value in values.items()})
    trace_id = text(at(nested, "context.trace_id"))
    span_id = text(at(nested, "context.span_id"))
    if trace_id is None or span_id is None:
        yield NO_IDS
        return
    attributes = nested.get("attributes")
    yield Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_id=text(nested.get("parent_id")),
        name=text(nested.get("name")),
        start=nanoseconds(nested.get("start_time"), unit=_MILLISECOND),
        end=nanoseconds(nested.get("end_time"), unit=_MILLISECOND),
        failed=nested.get("status_code") == "ERROR",
        **described(
            attributes if isinstance(attributes, dict) else {}, text(nested.get("span_kind"))
        ),
    )


def _python_list(printed: str) -> list[Any] | None:
    """The list that Python printed; None where it cannot be told, as of an array of NumPy."""
    try:
        return python_list(printed)
    except RecordError:
        return None


def is_described(attributes: Mapping[str, Any]) -> bool:
    """Whether nested attributes are those of OpenInference."""
    return any(
        name in attributes for name in ("openinference", "llm", "retrieval", "reranker")
    ) or (at(attributes, "input.value") is not None or at(attributes, "output.value") is not None)


def described(attributes: dict[str, Any], kind: str | None = None) -> dict[str, Any]:
    """The fields of a span that nested attributes fill; `kind` is that of a row."""
    name = text(at(attributes, "openinference.span.kind"), kind) or ""
    output = at(attributes, "output.value")
    plain = at(attributes, "output.mime_type") != "application/json"
    found = _KINDS.get(name.upper(), "other")
    answer = answer_of(at(attributes, "llm.output_messages"), plain=False)
    if answer is None and found not in ("retrieval", "reranker", "tool"):
        answer = answer_of(output, last=True, plain=plain)
    documents = documents_of(at(attributes, "retrieval.documents"))
    reranked = documents_of(at(attributes, "reranker.output_documents"))
    if documents or reranked:
        found = "retrieval" if documents else "reranker"
    return {
        "kind": found,
        "asked": messages_of(at(attributes, "llm.input_messages"))
        or messages_of(at(attributes, "input.value")),
        "said": [] if answer is None else [answer],
        "documents": documents or reranked,
        "reranked": documents_of(at(attributes, "reranker.input_documents")),
        "tool_result": shown(output) if found == "tool" else None,
        "model": text(at(attributes, "llm.model_name")),
        "tokens_in": count(at(attributes, "llm.token_count.prompt")),
        "tokens_out": count(at(attributes, "llm.token_count.completion")),
        "cost": amount(at(attributes, "llm.cost.total")),
        "session": text(at(attributes, "session.id")),
    }
