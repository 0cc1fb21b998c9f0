"""The table of trace formats, and which of them a record is of."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from claimflow.flows.traces import chat, langfuse, langsmith, mlflow, openinference, otlp
from claimflow.flows.traces.spans import NO_RECORD, Reason, Span

SpanReader = Callable[[Mapping[str, Any], str], Iterator[Span | Reason]]
"""The spans of a record at a place, and why parts of it are none. Raises nothing."""


class TraceFormat(NamedTuple):
    """How the records of a format are recognised and read; `sought` says it in messages."""

    recognises: Callable[[Mapping[str, Any]], bool]
    spans: SpanReader
    sought: str


def _is_otlp(record: Mapping[str, Any]) -> bool:
    # A collector may write metrics into the same file.
    return otlp.is_received(record) or any(
        isinstance(record.get(name), list)
        for name in ("resourceSpans", "resourceLogs", "resourceMetrics")
    )


def _is_openinference(record: Mapping[str, Any]) -> bool:
    context = record.get("context")
    return "context.trace_id" in record or (isinstance(context, dict) and "trace_id" in context)


def _is_langfuse(record: Mapping[str, Any]) -> bool:
    return langfuse.is_observation(record) or langfuse.is_trace(record)


FORMATS: Final[Mapping[str, TraceFormat]] = {
    "otlp": TraceFormat(_is_otlp, otlp.spans, "resourceSpans"),
    "openinference": TraceFormat(_is_openinference, openinference.spans, "context.trace_id"),
    "langsmith": TraceFormat(langsmith.is_run, langsmith.spans, "id with run_type"),
    "mlflow": TraceFormat(mlflow.is_trace, mlflow.spans, "info with data"),
    "chat": TraceFormat(chat.is_chat, chat.spans, "messages"),
    "langfuse": TraceFormat(
        _is_langfuse, langfuse.spans, "id with traceId and type, observations, or input and output"
    ),
}
"""The formats in the order in which a record is tried; the schema of pipelines names them too."""


def trace_format_of(record: Mapping[str, Any]) -> str | None:
    """The format of a record, None where no format is like it."""
    return next((name for name, one in FORMATS.items() if one.recognises(record)), None)


def read_spans(record: Mapping[str, Any], name: str, place: str) -> Iterator[Span | Reason]:
    """The spans of a record in a file of format `name`.

    OpenInference is read in OTLP as well, so that a file may be called by either name.
    """
    known = FORMATS[name]
    if name == "openinference" and _is_otlp(record):
        known = FORMATS["otlp"]
    if not known.recognises(record):
        yield NO_RECORD
        return
    yield from known.spans(record, place)
