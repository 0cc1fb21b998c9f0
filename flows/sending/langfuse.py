"""Langfuse: numeric scores of traces and observations, by its interface for batches.

`/api/public/ingestion` is in every version of the server, and says of each score of a batch whether
it took it; the newer `/api/public/scores` names none of those that it refused.
"""

import base64
import os
from collections.abc import Sequence
from typing import Any, Final

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.sending.endpoint import Endpoint, address_on
from claimflow.flows.sending.evaluations import Evaluation
from claimflow.flows.sending.targets import Answer
from claimflow.stages.rows import canonical, content_key

_PUBLIC: Final = "LANGFUSE_PUBLIC_KEY"
_SECRET: Final = "LANGFUSE_SECRET_KEY"  # noqa: S105 - the name of a variable
_HOSTS: Final = ("LANGFUSE_HOST", "LANGFUSE_BASE_URL")
_PATH: Final = "/api/public/ingestion"
_KNOWN: Final = r"/api/public(/[\w/]*)?"
"""Paths with which a variable may name the server, such as `/api/public/otel` of exporters."""


class Langfuse:
    """A Langfuse server or its cloud."""

    largest = 200
    """Far below the 3.5 MB that a batch may have."""

    def __init__(self) -> None:
        self._endpoint: Endpoint | None = None

    def unfit(self, evaluation: Evaluation) -> str | None:
        """An evaluation without a score, of which Langfuse has no notion."""
        return "there is no score" if evaluation.score is None else None

    def lines(self, evaluations: Sequence[Evaluation]) -> list[Any]:
        """The events of a batch, one a line."""
        return [_event(one) for one in evaluations]

    def address(self) -> str:
        """The address of the server; which project it is, its public key says."""
        return f"{_address()[1]}#{_keys()[0]}"

    def send(self, evaluations: Sequence[Evaluation]) -> Answer:
        """Send a batch; Langfuse takes the ones that are right and names the others."""
        if self._endpoint is None:
            variable, url = _address()
            login = base64.b64encode(":".join(_keys()).encode()).decode()
            headers = {"authorization": f"Basic {login}"}
            self._endpoint = Endpoint(url, headers, variable)
        events = self.lines(evaluations)
        reply = self._endpoint.post(canonical({"batch": events}))
        if reply.status == 413:
            return Answer({0: self._endpoint.too_large(reply, len(events))})
        said = reply.content if isinstance(reply.content, dict) else {}
        if reply.status >= 300 or not isinstance(said.get("successes"), list):
            self._endpoint.refused(reply)
        taken = {one["id"] for one in _with_ids(said["successes"])}
        why = {
            one["id"]: self._endpoint.excerpt(one.get("message") or one.get("error"))
            for one in _with_ids(said.get("errors"))
        }
        # An event that the reply does not name, or names as both, is not taken for stored.
        return Answer(
            {
                place: f"Langfuse refuses it{why[event['id']]}"
                if event["id"] in why
                else "Langfuse does not say that it took it"
                for place, event in enumerate(events)
                if event["id"] in why or event["id"] not in taken
            }
        )

    def close(self) -> None:
        """Close the connection."""
        if self._endpoint is not None:
            self._endpoint.close()


def _with_ids(entries: Any) -> list[dict[str, Any]]:
    """The entries of a list in a reply that name an event."""
    return [
        one
        for one in (entries if isinstance(entries, list) else [])
        if isinstance(one, dict) and isinstance(one.get("id"), str)
    ]


def _event(one: Evaluation) -> dict[str, Any]:
    at = f"{one.at.isoformat(timespec='milliseconds')}Z"
    body = {
        "id": one.evaluation_id,
        "traceId": one.trace_id,
        "observationId": one.span_id,
        "name": one.name,
        "value": one.score,
        "dataType": "NUMERIC",
        "comment": one.explanation,
        "metadata": one.provenance,
    }
    body = {name: value for name, value in body.items() if value is not None}
    # The server takes an event once. One that changed, as its ids of trace and span, is another.
    event_id = content_key("langfuse", body)
    return {"id": event_id, "type": "score-create", "timestamp": at, "body": body}


def _address() -> tuple[str, str]:
    """The variable that names the server, and the address for batches."""
    for variable in _HOSTS:
        if value := os.environ.get(variable):
            return variable, address_on(variable, value, _PATH, known=_KNOWN)
    hint = "set it as in https://cloud.langfuse.com, or --file"
    raise InputError([Fault(_HOSTS[0], "is not set", hint)])


def _keys() -> tuple[str, str]:
    """The public and the secret key of a project."""
    faults = [
        Fault(name, "is not set", "set it to the key of the project")
        for name in (_PUBLIC, _SECRET)
        if not os.environ.get(name)
    ]
    if faults:
        raise InputError(faults)
    return os.environ[_PUBLIC], os.environ[_SECRET]
