"""Phoenix: annotations of spans, by its REST interface."""

import os
from collections.abc import Sequence
from typing import Any, Final

import httpx

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.sending.endpoint import (
    Endpoint,
    TooMuchError,
    address_on,
    parsed_headers,
)
from claimflow.flows.sending.evaluations import Evaluation
from claimflow.flows.sending.otlp import is_id
from claimflow.flows.sending.targets import Answer
from claimflow.stages.rows import canonical

_SERVER: Final = "PHOENIX_COLLECTOR_ENDPOINT"
_PATH: Final = "/v1/span_annotations"
_KNOWN: Final = "/v1/(traces|span_annotations)"
"""Paths with which the variable may name the server: Phoenix's tracing takes `/v1/traces`."""

_OF_SOME: Final = (400, 404, 413, 422)
"""Statuses of a batch that may be the fault of a few: one unknown span refuses all of them."""


class Phoenix:
    """A Phoenix server or its cloud."""

    largest = 200

    def __init__(self) -> None:
        self._endpoint: Endpoint | None = None

    def unfit(self, evaluation: Evaluation) -> str | None:
        """An evaluation without a span: Phoenix annotates spans."""
        if evaluation.span_id is None:
            return "there is no span, and Phoenix annotates spans only"
        if not is_id(evaluation.span_id, 16):
            return "the span id is not 16 hexadecimal digits"
        if evaluation.score is None and evaluation.label is None and not evaluation.explanation:
            return "there is neither a score nor a reason"
        return None

    def lines(self, evaluations: Sequence[Evaluation]) -> list[Any]:
        """The annotations, one a line."""
        return [_annotation(one) for one in evaluations]

    def address(self) -> str:
        """The address of the server."""
        return _address()

    def send(self, evaluations: Sequence[Evaluation]) -> Answer:
        """Send a batch, and wait until it is stored."""
        if self._endpoint is None:
            url = str(httpx.URL(_address()).copy_merge_params({"sync": "true"}))
            self._endpoint = Endpoint(url, _headers(), _SERVER)
        reply = self._endpoint.post(canonical({"data": self.lines(evaluations)}))
        if reply.status in _OF_SOME:
            if len(evaluations) > 1:
                raise TooMuchError
            said = self._endpoint.excerpt(reply.content)
            return Answer({0: f"Phoenix refuses it with {reply.status}{said}"})
        stored = reply.content.get("data") if isinstance(reply.content, dict) else None
        if reply.status >= 300 or not isinstance(stored, list):
            self._endpoint.refused(reply)
        if len(stored) < len(evaluations):
            why = f" with {len(stored)} ids for {len(evaluations)} annotations"
            self._endpoint.refused(reply, why)
        return Answer()

    def close(self) -> None:
        """Close the connection."""
        if self._endpoint is not None:
            self._endpoint.close()


def _annotation(one: Evaluation) -> dict[str, Any]:
    result = {"score": one.score, "label": one.label, "explanation": one.explanation}
    failure = {} if one.failure is None else {"error_type": one.failure}
    return {
        "span_id": (one.span_id or "").lower(),
        "name": one.name,
        "annotator_kind": "LLM" if one.judging.models else "CODE",
        "result": {name: value for name, value in result.items() if value is not None},
        "metadata": {**one.provenance, **failure},
        # An annotation of the same span, name and identifier is replaced.
        "identifier": one.evaluation_id,
    }


def _address() -> str:
    if base := os.environ.get(_SERVER):
        return address_on(_SERVER, base, _PATH, known=_KNOWN)
    raise InputError(
        [Fault(_SERVER, "is not set", "set it as in http://localhost:6006, or --file")]
    )


def _headers() -> dict[str, str]:
    headers = parsed_headers("PHOENIX_CLIENT_HEADERS", os.environ.get("PHOENIX_CLIENT_HEADERS", ""))
    if key := os.environ.get("PHOENIX_API_KEY"):
        headers.setdefault("authorization", f"Bearer {key}")
    return headers
