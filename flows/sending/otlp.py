"""OpenTelemetry: events `gen_ai.evaluation.result` as OTLP, by HTTP or as a file of the collector.

They are log records of the GenAI conventions, whose trace id and span id are those of the sample.
Records are JSON by the mapping of OTLP: ids in hex, whole numbers of 64 bits as text.
"""

import gzip
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from claimflow.flows import __version__
from claimflow.flows.errors import Fault, InputError
from claimflow.flows.sending.endpoint import (
    Endpoint,
    address_on,
    checked_address,
    parsed_headers,
)
from claimflow.flows.sending.evaluations import Evaluation
from claimflow.flows.sending.targets import Answer
from claimflow.stages.rows import canonical

_EVENT: Final = "gen_ai.evaluation.result"
_LOGS: Final = "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"
_ALL: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_SIGNALS: Final = "/v1/(traces|metrics|logs)"
_INFO: Final = 9
"""The severity of an event, by the model of logs."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Otlp:
    """A collector, or whatever takes OTLP by HTTP."""

    largest = 500

    def __init__(self) -> None:
        self._endpoint: Endpoint | None = None

    def unfit(self, evaluation: Evaluation) -> str | None:
        """An evaluation whose ids are not those of OpenTelemetry."""
        if not is_id(evaluation.trace_id, 32):
            return "the trace id is not 32 hexadecimal digits"
        if evaluation.span_id is not None and not is_id(evaluation.span_id, 16):
            return "the span id is not 16 hexadecimal digits"
        return None

    def lines(self, evaluations: Sequence[Evaluation]) -> list[Any]:
        """One request of OTLP, as the file exporter of the collector writes it."""
        return [logs_data(evaluations)]

    def address(self) -> str:
        """The address for logs, by the variables of OpenTelemetry."""
        return _address()[1]

    def send(self, evaluations: Sequence[Evaluation]) -> Answer:
        """Send a request; a partial success says how many records it refuses, but not which."""
        if self._endpoint is None:
            variable, url = _address()
            self._endpoint = Endpoint(url, _headers(), variable)
        body = gzip.compress(canonical(logs_data(evaluations)), 6)
        reply = self._endpoint.post(body, {"content-encoding": "gzip"})
        if reply.status == 413:
            return Answer({0: self._endpoint.too_large(reply, len(evaluations))})
        # An empty reply is a success, as the empty object is; a page of a login is none.
        if reply.status >= 300 or not (reply.content is None or isinstance(reply.content, dict)):
            self._endpoint.refused(reply)
        partial = reply.content.get("partialSuccess") if isinstance(reply.content, dict) else None
        if not isinstance(partial, dict):
            return Answer()
        rejected = str(partial.get("rejectedLogRecords", "0"))
        lost = min(int(rejected), len(evaluations)) if re.fullmatch(r"\d{1,9}", rejected) else 0
        return Answer(lost=lost, message=self._endpoint.excerpt(partial.get("errorMessage")))

    def close(self) -> None:
        """Close the connection."""
        if self._endpoint is not None:
            self._endpoint.close()


def is_id(text: str, digits: int) -> bool:
    """Whether a text is an id of a trace or a span in hex, which is not all zeros."""
    return re.fullmatch(f"[0-9a-fA-F]{{{digits}}}", text) is not None and set(text) != {"0"}


def logs_data(evaluations: Sequence[Evaluation]) -> dict[str, Any]:
    """The message LogsData of OTLP with a record for each evaluation."""
    resource = {"service.name": "claimflow", "service.version": __version__}
    scope = {"name": "claimflow", "version": __version__}
    records = [_record(one) for one in evaluations]
    return {
        "resourceLogs": [
            {
                "resource": {"attributes": _attributes(resource)},
                "scopeLogs": [{"scope": scope, "logRecords": records}],
            }
        ]
    }


def _record(one: Evaluation) -> dict[str, Any]:
    # A float has no room for nanoseconds.
    since = one.at.replace(tzinfo=UTC) - _EPOCH
    time = str((since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1_000)
    attributes = {
        "gen_ai.evaluation.name": one.name,
        "gen_ai.evaluation.score.value": one.score,
        "gen_ai.evaluation.score.label": one.label,
        "gen_ai.evaluation.explanation": one.explanation,
        "error.type": one.failure,
        "claimflow.evaluation.id": one.evaluation_id,
        **{f"claimflow.{name}": value for name, value in one.provenance.items()},
    }
    record = {
        "timeUnixNano": time,
        "observedTimeUnixNano": time,
        "severityNumber": _INFO,
        "severityText": "INFO",
        "eventName": _EVENT,
        "attributes": _attributes(attributes),
        "traceId": one.trace_id.lower(),
    }
    return record if one.span_id is None else record | {"spanId": one.span_id.lower()}


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": name, "value": _value(value)} for name, value in values.items() if value is not None
    ]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(one) for one in value]}}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}


def _address() -> tuple[str, str]:
    """The variable that names the address, and the address."""
    if own := os.environ.get(_LOGS):
        return _LOGS, checked_address(_LOGS, own)
    if base := os.environ.get(_ALL):
        return _ALL, address_on(_ALL, base, "/v1/logs", known=_SIGNALS)
    raise InputError([Fault(_ALL, "is not set", "set it as in http://localhost:4318, or --file")])


def _headers() -> dict[str, str]:
    """Headers for all signals, and those for logs, which come first."""
    headers: dict[str, str] = {}
    for variable in ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_LOGS_HEADERS"):
        headers |= parsed_headers(variable, os.environ.get(variable, ""))
    return headers
