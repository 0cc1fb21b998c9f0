"""The batch protocols of OpenAI, which Azure and servers of one's own speak as well, and Anthropic.

To OpenAI a file of requests is uploaded, a batch of it created, and a file of replies read when it
ends. Anthropic takes the requests with the batch, and keeps no name with it.
"""

import json
import re
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from claimflow.flows.judge.provider import BatchState, ProviderError
from claimflow.flows.judge.provider_errors import classify
from claimflow.flows.judge.usage import is_count, whole_number

_ADDRESS: Final = "/v1/chat/completions"

_NAME: Final = "claimflow"
"""The key of a batch's metadata that holds our name of it."""

MOST_BYTES: Final = 2**29
"""Most bytes of the replies of a batch, which hold its requests as well at some providers."""

_MOST_LISTED: Final = 2_000
"""Batches of an account that are searched for one, the newest first."""

_ENDED: Final = frozenset({"completed", "failed", "expired", "cancelled"})

_TOO_MANY: Final = f"the account has more than {_MOST_LISTED:,} newer batches"

_ID: Final = re.compile(r"[\w.:-]{1,200}")

EXPIRED: Final = "the batch expired before this request was done"

_CLOCKS_DIFFER: Final = timedelta(hours=1)
"""By how much the clock of a provider may be behind ours."""

_STATUSES: Final = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "overloaded_error": 529,
}
"""The status that Anthropic gives with each type of error; 500 with the others."""


class LineError(Exception):
    """What a provider says of one request of a batch, with the status of its reply."""

    def __init__(self, status: int, error: Any) -> None:
        message = error.get("message") if isinstance(error, dict) else None
        super().__init__(str(message or error or "no reply"))
        self.status_code = status
        self.body = error
        self.response: Any = None


class BatchApi(Protocol):
    """The batches of an account. Raises the exceptions of its client, and `ProviderError`."""

    async def check(self) -> None:
        """Check that the place for files of batches is there, if the user has to provide it."""

    async def submit(self, name: str, bodies: Mapping[str, Mapping[str, Any]]) -> str:
        """Submit chat requests by their ids; returns the provider's id of the batch."""

    async def find(self, name: str, requests: Collection[str], since: datetime) -> str | None:
        """The provider's id of the batch of that name, with those requests; None without one.

        It was submitted after `since`, if at all.
        """

    async def state(self, batch_id: str) -> BatchState:
        """How far a batch is."""

    def replies(self, batch_id: str) -> AsyncIterator[tuple[str, Any]]:
        """The body of each reply, or a `ProviderError`, with the id of its request.

        A line that is no reply is left out.
        """


class OpenaiBatches:
    """The batches of an account at OpenAI, Azure, or a server that speaks the protocol."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def check(self) -> None:
        """As `BatchApi.check`: the provider keeps the files."""

    async def submit(self, name: str, bodies: Mapping[str, Mapping[str, Any]]) -> str:
        """As `BatchApi.submit`."""
        lines = (
            {"custom_id": request_id, "method": "POST", "url": _ADDRESS, "body": body}
            for request_id, body in bodies.items()
        )
        file = (f"{name}.jsonl", json_lines(lines), "application/jsonl")
        uploaded = await self._client.files.create(file=file, purpose="batch")
        made = await self._client.batches.create(
            input_file_id=uploaded.id,
            endpoint=_ADDRESS,
            completion_window="24h",
            metadata={_NAME: name},
        )
        return checked_id(made.id)

    async def find(
        self,
        name: str,
        requests: Collection[str],  # noqa: ARG002
        since: datetime,  # noqa: ARG002
    ) -> str | None:
        """As `BatchApi.find`: by the name, which is stored with it, among the newest ones."""
        seen = 0
        async for batch in self._client.batches.list(limit=100):
            if (batch.metadata or {}).get(_NAME) == name:
                return str(batch.id)
            seen += 1
            if seen == _MOST_LISTED:
                raise ProviderError("throttled", _TOO_MANY)
        return None

    async def state(self, batch_id: str) -> BatchState:
        """As `BatchApi.state`."""
        batch = await self._client.batches.retrieve(batch_id)
        counts = batch.request_counts
        done = _sum(getattr(counts, name, 0) for name in ("completed", "failed"))
        if batch.status not in _ENDED:
            return BatchState(False, done)
        if batch.status == "completed":
            return BatchState(True, done)
        faults = getattr(batch.errors, "data", None) or []
        why = next((text for one in faults if (text := getattr(one, "message", None))), None)
        return BatchState(True, done, f"the batch {batch.status}" + (f": {why}" if why else ""))

    async def replies(self, batch_id: str) -> AsyncIterator[tuple[str, Any]]:
        """As `BatchApi.replies`."""
        batch = await self._client.batches.retrieve(batch_id)
        if batch.status not in _ENDED:
            raise ProviderError("server", f"the batch is {batch.status} again")
        for file in (batch.output_file_id, batch.error_file_id):
            if not file:
                continue
            try:
                content = await self._client.files.content(file)
            except Exception as error:
                if file == batch.error_file_id and batch.output_file_id:
                    return  # Why calls failed cannot be told; the replies are there.
                raise error from None
            for request_id, line in _lines(content.content):
                yield request_id, _openai_reply(line)


class AnthropicBatches:
    """The batches of an account at Anthropic.

    `client` is an httpx client; `url` and `headers` are those of a single call.
    """

    def __init__(self, client: Any, url: str, headers: Mapping[str, str]) -> None:
        self._client = client
        self._address = f"{url}/batches"
        self._headers = headers

    async def check(self) -> None:
        """As `BatchApi.check`: there are no files."""

    async def submit(
        self,
        name: str,  # noqa: ARG002
        bodies: Mapping[str, Mapping[str, Any]],
    ) -> str:
        """As `BatchApi.submit`; no name can be stored with it."""
        requests = [{"custom_id": one, "params": body} for one, body in bodies.items()]
        content = json.dumps({"requests": requests}, ensure_ascii=False)
        made = await self._json("POST", "", content.encode("utf-8", "replace"))
        return checked_id(made.get("id"))

    async def find(
        self,
        name: str,  # noqa: ARG002
        requests: Collection[str],
        since: datetime,
    ) -> str | None:
        """As `BatchApi.find`: by the ids of its requests, which are known when it has ended.

        Raises `ProviderError` while a batch that may be it goes on: it has as many requests.
        """
        unsure = False
        async for batch in self._newest(since - _CLOCKS_DIFFER):
            count = _sum((batch.get("request_counts") or {}).values())
            if batch.get("processing_status") != "ended":
                unsure |= count in (0, len(requests))
                continue
            if count != len(requests):
                continue
            try:
                async for request_id, _ in self.replies(batch["id"]):
                    if request_id in requests:
                        return str(batch["id"])
                    break
            except LineError:
                continue  # Ours can be read when it has ended.
        if unsure:
            what = "a batch of as many requests goes on; when it ends, its replies say whose it is"
            raise ProviderError("throttled", what)
        return None

    async def _newest(self, since: datetime) -> AsyncIterator[dict[str, Any]]:
        """The batches that were created after `since`, the newest first."""
        seen: set[str] = set()
        after = ""
        while len(seen) < _MOST_LISTED:
            page = await self._json("GET", f"?limit=100{after}")
            listed = [one for one in page["data"] if checked_id(one["id"]) not in seen]
            for batch in listed:
                created = datetime.fromisoformat(batch["created_at"])
                if created.replace(tzinfo=created.tzinfo or UTC) < since:
                    return
                seen.add(batch["id"])
                yield batch
            if not page.get("has_more") or not listed:
                return
            after = f"&after_id={listed[-1]['id']}"
        raise ProviderError("throttled", _TOO_MANY)

    async def state(self, batch_id: str) -> BatchState:
        """As `BatchApi.state`."""
        batch = await self._json("GET", f"/{batch_id}")
        counts = batch.get("request_counts") or {}
        done = _sum(count for name, count in counts.items() if name != "processing")
        return BatchState(batch["processing_status"] == "ended", done)

    async def replies(self, batch_id: str) -> AsyncIterator[tuple[str, Any]]:
        """As `BatchApi.replies`."""
        for request_id, line in _lines(await self._read("GET", f"/{batch_id}/results")):
            yield request_id, _anthropic_reply(line)

    async def _json(self, method: str, place: str, content: bytes = b"") -> Any:
        return json.loads(await self._read(method, place, content))

    async def _read(self, method: str, place: str, content: bytes = b"") -> bytes:
        reply = await self._client.request(
            method, self._address + place, content=content, headers=self._headers
        )
        return read_body(reply)


def read_body(reply: Any) -> bytes:
    """The body of a reply of httpx. Raises `LineError` for another status than 200."""
    if reply.status_code == 200:
        return bytes(reply.content)
    try:
        error = json.loads(reply.content)["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        error = reply.reason_phrase
    failure = LineError(reply.status_code, error)
    failure.response = reply  # Its headers may say how long to wait.
    raise failure


def json_lines(lines: Iterable[Mapping[str, Any]]) -> bytes:
    """A line of JSON for each of `lines`, in UTF-8."""
    written = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    return written.encode("utf-8", "replace")


def checked_id(value: Any) -> str:
    """The id of a batch. Raises `ProviderError` where a provider gives none, as if it was lost."""
    if isinstance(value, str) and _ID.fullmatch(value):
        return value
    raise ProviderError("server", "the reply has no id of the batch")


def _sum(counts: Iterable[Any]) -> int:
    """The sum of those that are counts; they serve messages alone."""
    return sum(count for count in counts if is_count(count))


def _lines(content: bytes) -> list[tuple[str, dict[str, Any]]]:
    """The lines of a file of replies that are objects with the id of a request."""
    found = []
    for line in content.splitlines():
        try:
            read = json.loads(line, parse_int=whole_number)
            request_id = read["custom_id"]
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if isinstance(request_id, str):
            found.append((request_id, read))
    return found


def _openai_reply(line: dict[str, Any]) -> Any:
    try:
        response = line.get("response")
        if response is None:
            error = line.get("error") or {}
            if error.get("code") == "batch_expired":
                return ProviderError("timeout", EXPIRED)
            return classify(LineError(500, error))
        status, body = response["status_code"], response["body"]
        error = body.get("error") if isinstance(body, dict) else body
        if status == 200:
            failed = error and not body.get("choices")
            return classify(LineError(500, error)) if failed else body
        return classify(LineError(int(status), error))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        return classify(error)


def _anthropic_reply(line: dict[str, Any]) -> Any:
    try:
        result = line["result"]
        if result["type"] == "succeeded":
            return result["message"]
        if result["type"] == "expired":
            return ProviderError("timeout", EXPIRED)
        error = result.get("error", {}).get("error") or {"message": f"it was {result['type']}"}
        return classify(LineError(_STATUSES.get(str(error.get("type")), 500), error))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return classify(error)
