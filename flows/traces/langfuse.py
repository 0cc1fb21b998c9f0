"""Langfuse's exports: traces, observations, or traces with their observations in them.

The API and the exports from the pages write names as in `traceId`, exports to blob storage as in
`trace_id`. Exports as CSV hold objects as JSON text.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from claimflow.flows.traces.spans import NO_IDS, Kind, Reason, Span
from claimflow.flows.traces.values import (
    amount,
    answer_of,
    at,
    count,
    documents_of,
    items,
    messages_of,
    nanoseconds,
    parsed,
    shown,
    text,
)

_KINDS: Final[Mapping[str, Kind]] = {"GENERATION": "llm", "RETRIEVER": "retrieval", "TOOL": "tool"}
"""The types that matter; of the others (SPAN, AGENT, CHAIN, EVENT) the tree is kept."""

_SECOND: Final = 10**9


def is_trace(row: Mapping[str, Any]) -> bool:
    """Whether a row is a trace; one without observations in it has no type either."""
    return "id" in row and ("observations" in row or {"input", "output"} <= row.keys())


def is_observation(row: Mapping[str, Any]) -> bool:
    """Whether a row is an observation."""
    return "id" in row and "type" in row and ("traceId" in row or "trace_id" in row)


def spans(row: Mapping[str, Any], _place: str) -> Iterator[Span | Reason]:
    """The span of an observation, or those of a trace and the observations in it."""
    if is_observation(row):
        yield _observation(row, text(row.get("traceId"), row.get("trace_id")))
        return
    trace_id = text(row.get("id"))
    if trace_id is None:
        yield NO_IDS
        return
    start = nanoseconds(row.get("timestamp"))
    length = nanoseconds(row.get("latency"), unit=_SECOND)
    yield Span(
        trace_id=trace_id,
        span_id="",
        kind="trace",
        name=text(row.get("name")),
        start=start,
        end=None if start is None or length is None else start + length,
        session=text(row.get("sessionId"), row.get("session_id")),
        **_texts(row, "trace"),
    )
    for member in items(parsed(row.get("observations"))) or []:
        # Lists of traces have only the ids of observations.
        if isinstance(member, dict):
            yield _observation(member, trace_id)


def _observation(row: Mapping[str, Any], trace_id: str | None) -> Span | Reason:
    span_id = text(row.get("id"))
    if trace_id is None or span_id is None:
        return NO_IDS
    kind = _KINDS.get(str(row.get("type")).upper(), "other")
    found = _texts(row, kind)
    if kind == "retrieval":
        found |= {"said": [], "documents": documents_of(row.get("output"))}
    elif kind == "tool":
        found |= {"said": [], "tool_result": shown(row.get("output"))}
    return Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_id=text(row.get("parentObservationId"), row.get("parent_observation_id")),
        kind=kind,
        name=text(row.get("traceName"), row.get("trace_name"), row.get("name")),
        start=nanoseconds(text(row.get("startTime"), row.get("start_time"))),
        end=nanoseconds(text(row.get("endTime"), row.get("end_time"))),
        model=text(row.get("model"), row.get("providedModelName"), row.get("provided_model_name")),
        session=text(row.get("sessionId"), row.get("session_id")),
        failed=row.get("level") == "ERROR",
        **found,
    )


def _texts(row: Mapping[str, Any], kind: Kind) -> dict[str, Any]:
    """What went in and came out; a text that a model has written may be JSON itself."""
    answer = answer_of(row.get("output"), last=kind != "llm", plain=kind == "llm")
    details = [parsed(row.get(name)) for name in ("usageDetails", "usage_details", "usage")]

    def tokens(name: str, *others: str) -> int | None:
        named = [at(one, name) for one in details]
        return count(*named, *(at(one, other) for one in (*details, row) for other in others))

    return {
        "asked": messages_of(row.get("input")),
        "said": [] if answer is None else [answer],
        "tokens_in": tokens("input", "promptTokens", "inputTokens"),
        "tokens_out": tokens("output", "completionTokens", "outputTokens"),
        "cost": amount(
            *(row.get(name) for name in ("totalCost", "total_cost", "calculatedTotalCost")),
            *(at(parsed(row.get(name)), "total") for name in ("costDetails", "cost_details")),
        ),
    }
