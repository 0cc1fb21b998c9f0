"""LangSmith's runs: `Client.list_runs` as JSON Lines, and bulk exports as Parquet.

A run is a span. The columns of bulk exports hold objects as JSON text.
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
    messages_of,
    nanoseconds,
    parsed,
    shown,
    text,
)

_KINDS: Final[Mapping[str, Kind]] = {"llm": "llm", "retriever": "retrieval", "tool": "tool"}
"""The types that matter; of the others (chain, prompt, parser, embedding) the tree is kept."""

_SESSIONS: Final = ("session_id", "thread_id", "conversation_id")
"""The metadata by which LangSmith brings threads together; a run's own `session_id` is its
project."""


def is_run(row: Mapping[str, Any]) -> bool:
    """Whether a row is a run."""
    return "id" in row and "run_type" in row


def spans(row: Mapping[str, Any], _place: str) -> Iterator[Span | Reason]:
    """The span of a run."""
    span_id = text(row.get("id"))
    # A root may be without the id of its trace, which is its own.
    trace_id = text(row.get("trace_id"), None if row.get("parent_run_id") else span_id)
    if trace_id is None or span_id is None:
        yield NO_IDS
        return
    kind = _KINDS.get(str(row.get("run_type")).casefold(), "other")
    inputs, outputs, extra = (parsed(row.get(name)) for name in ("inputs", "outputs", "extra"))
    metadata = at(extra, "metadata")
    answer = None
    if kind not in ("retrieval", "tool"):
        answer = answer_of(outputs, last=kind != "llm", plain=False)
    usages = [at(holder, "usage_metadata") for holder in (outputs, metadata)]
    yield Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_id=text(row.get("parent_run_id")),
        kind=kind,
        name=text(row.get("name")),
        start=nanoseconds(row.get("start_time")),
        end=nanoseconds(row.get("end_time")),
        asked=messages_of(inputs),
        said=[] if answer is None else [answer],
        documents=documents_of(outputs) if kind == "retrieval" else [],
        tool_result=_result(outputs) if kind == "tool" else None,
        model=text(
            at(metadata, "ls_model_name"),
            at(outputs, "llm_output.model_name"),
            at(outputs, "model"),
            at(extra, "invocation_params.model"),
            at(extra, "invocation_params.model_name"),
        ),
        tokens_in=count(row.get("prompt_tokens"), *(at(one, "input_tokens") for one in usages)),
        tokens_out=count(
            row.get("completion_tokens"), *(at(one, "output_tokens") for one in usages)
        ),
        cost=amount(row.get("total_cost"), *(at(one, "total_cost") for one in usages)),
        session=text(*(at(metadata, name) for name in _SESSIONS)),
        failed=row.get("status") == "error" or text(row.get("error")) is not None,
    )


def _result(outputs: Any) -> str | None:
    """What a tool returned: `output` where that is all there is."""
    alone = isinstance(outputs, dict) and outputs.keys() == {"output"}
    return shown(outputs["output"] if alone else outputs)
