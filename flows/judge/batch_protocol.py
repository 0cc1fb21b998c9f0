"""The batch protocol of OpenAI, which Azure and servers of one's own speak as well.

A file of requests is uploaded, a batch of it created, and a file of replies read when it ends.
"""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from claimflow.flows.judge.provider import BatchState, ProviderError
from claimflow.flows.judge.provider_errors import classify

_ADDRESS: Final = "/v1/chat/completions"

_NAME: Final = "claimflow"
"""The key of a batch's metadata that holds our name of it."""

_MOST_LISTED: Final = 2_000
"""Batches of an account that are searched for one, the newest first."""

_ENDED: Final = frozenset({"completed", "failed", "expired", "cancelled"})


class LineError(Exception):
    """What a provider says of one request of a batch, with the status of its reply."""

    def __init__(self, status: int, error: Any) -> None:
        message = error.get("message") if isinstance(error, dict) else None
        super().__init__(str(message or error or "no reply"))
        self.status_code = status
        self.body = error


async def submit(client: Any, name: str, bodies: Mapping[str, Mapping[str, Any]]) -> str:
    """Submit chat requests by their ids; returns the provider's id of the batch."""
    lines = (
        {"custom_id": request_id, "method": "POST", "url": _ADDRESS, "body": body}
        for request_id, body in bodies.items()
    )
    content = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    file = (f"{name}.jsonl", content.encode("utf-8", "replace"), "application/jsonl")
    uploaded = await client.files.create(file=file, purpose="batch")
    made = await client.batches.create(
        input_file_id=uploaded.id,
        endpoint=_ADDRESS,
        completion_window="24h",
        metadata={_NAME: name},
    )
    return str(made.id)


async def find(client: Any, name: str) -> str | None:
    """The provider's id of the batch with a name; None if none of the newest ones has it."""
    seen = 0
    async for batch in client.batches.list(limit=100):
        if (batch.metadata or {}).get(_NAME) == name:
            return str(batch.id)
        seen += 1
        if seen == _MOST_LISTED:
            break
    return None


async def state(client: Any, batch_id: str) -> BatchState:
    """How far a batch is."""
    batch = await client.batches.retrieve(batch_id)
    counts = batch.request_counts
    done = counts.completed + counts.failed if counts else 0
    if batch.status not in _ENDED:
        return BatchState(False, done)
    if batch.status == "completed":
        return BatchState(True, done)
    faults = (batch.errors.data if batch.errors else None) or []
    why = next((one.message for one in faults if one.message), None)
    return BatchState(True, done, f"the batch {batch.status}" + (f": {why}" if why else ""))


async def replies(client: Any, batch_id: str) -> AsyncIterator[tuple[str, Any | ProviderError]]:
    """The body of each reply, or why there is none, with the id of its request.

    A line that is no reply is left out.
    """
    batch = await client.batches.retrieve(batch_id)
    for file in (batch.output_file_id, batch.error_file_id):
        if not file:
            continue
        content = await client.files.content(file)
        for line in content.content.splitlines():
            try:
                read = json.loads(line)
                request_id = read["custom_id"]
                reply = _reply(read)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                continue
            if isinstance(request_id, str):
                yield request_id, reply


def _reply(line: dict[str, Any]) -> Any | ProviderError:
    response = line.get("response")
    if response is None:
        error = line.get("error") or {}
        if error.get("code") == "batch_expired":
            return ProviderError("timeout", "the batch expired before this request was done")
        return classify(LineError(500, error))
    status, body = response["status_code"], response["body"]
    if status == 200:
        return body
    return classify(LineError(int(status), body.get("error") if isinstance(body, dict) else body))
