"""The batch protocols of OpenAI, Anthropic and two clouds: batches that take a while."""

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import parse_qs

from tests.endpoint.clouds import Clouds

Body = dict[str, Any]
Reply = tuple[int, Body | bytes]

_FILE: Final = re.compile(r"/v1/files/([\w-]+)/content")
_BATCH: Final = re.compile(r"/v1/batches/([\w-]+)")
_MESSAGES: Final = "/v1/messages/batches"
_MESSAGE_BATCH: Final = re.compile(rf"{_MESSAGES}/([\w-]+)(/results)?")
_PAGE: Final = 2
"""Batches of Anthropic on a page of their list."""


@dataclass
class BatchBehaviour:
    """What becomes of batches.

    A batch takes `seconds`, and ends with the results of its lines in reverse order. `expired`
    says of a line that it was not done in time, `failed` why a batch is not done at all. `lost`
    submissions are accepted, and their replies are lost. `instead` gives another reply to a
    request by its method and path; None where it is answered as usual. `noise` are lines before the
    results in the files of a cloud.
    """

    seconds: float = 0.0
    expired: Callable[[Body], bool] = lambda _: False
    failed: str | None = None
    lost: int = 0
    noise: bytes = b""
    instead: Callable[[str, str], Reply | None] = lambda _method, _path: None


@dataclass
class Batch:
    """A batch that was created."""

    id: str
    input_file_id: str
    metadata: dict[str, str]
    created: float
    results: tuple[str, str] | None = None


@dataclass
class BatchService:
    """Answers the requests of the batch protocol; `chat` answers one line."""

    behaviour: BatchBehaviour
    chat: Callable[[str, Body], tuple[int, Body]]
    files: dict[str, bytes] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._clouds = Clouds(self)

    def handles(self, path: str) -> bool:
        """Whether a path is one of the protocols."""
        openai = path.startswith(("/v1/files", "/v1/batches", _MESSAGES))
        return openai or self._clouds.handles(path)

    def loses(self) -> bool:
        """Whether the reply to a submission is lost."""
        self.behaviour.lost -= 1
        return self.behaviour.lost >= 0

    def submitted(self) -> list[Body]:
        """The bodies of all lines of all batches, in order."""
        return [line["body"] for one in self.batches for line in self.lines(one)]

    def handle(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> Reply | None:
        """Status and body of a reply; None where the reply is to be lost."""
        path, _, query = path.partition("?")
        other = self.behaviour.instead(method, path)
        if other is not None:
            return other
        if self._clouds.handles(path):
            return self._clouds.handle(method, path, query, body)
        if path.startswith(_MESSAGES):
            return self._handle_anthropic(method, path, parse_qs(query), body)
        if method == "POST" and path == "/v1/files":
            return 200, self._upload(headers, body)
        if method == "POST" and path == "/v1/batches":
            made = self._create(json.loads(body))
            return None if self.loses() else (200, made)
        if method == "GET" and path == "/v1/batches":
            listed = [self._written(one) for one in reversed(self.batches)]
            return 200, {"object": "list", "data": listed, "has_more": False}
        if found := _FILE.fullmatch(path):
            return 200, self.files[found[1]]
        if found := _BATCH.fullmatch(path):
            known = {one.id: one for one in self.batches}
            if found[1] in known:
                return 200, self._written(known[found[1]])
        error = {"message": f"Nothing is at {path}.", "type": "invalid_request_error"}
        return 404, {"error": error}

    def _handle_anthropic(
        self, method: str, path: str, query: Mapping[str, list[str]], body: bytes
    ) -> Reply | None:
        if method == "POST":
            lines = [
                {"custom_id": one["custom_id"], "url": "/v1/messages", "body": one["params"]}
                for one in json.loads(body)["requests"]
            ]
            file = self.add_file("".join(json.dumps(line) + "\n" for line in lines).encode())
            batch = self.add_batch(file["id"], {})
            return None if self.loses() else (200, self._message_batch(batch))
        if path == _MESSAGES:
            newest = self.batches[::-1]
            ids = [one.id for one in newest]
            first = ids.index(query["after_id"][0]) + 1 if "after_id" in query else 0
            page = newest[first : first + _PAGE]
            more = first + _PAGE < len(newest)
            listed = [self._message_batch(one) for one in page]
            last = page[-1].id if page else None
            return 200, {"data": listed, "has_more": more, "last_id": last}
        found = _MESSAGE_BATCH.fullmatch(path)
        known = {one.id: one for one in self.batches}
        if not found or found[1] not in known:
            return 404, {"type": "error", "error": {"type": "not_found_error", "message": path}}
        batch = known[found[1]]
        if not found[2]:
            return 200, self._message_batch(batch)
        return 200, "".join(
            json.dumps({"custom_id": line["custom_id"], "result": self._result(line)}) + "\n"
            for line in reversed(self.lines(batch))
        ).encode()

    def _message_batch(self, batch: Batch) -> Body:
        lines = self.lines(batch)
        ended = time.monotonic() - batch.created >= self.behaviour.seconds
        counts = dict.fromkeys(["processing", "succeeded", "errored", "canceled", "expired"], 0)
        counts["succeeded" if ended else "processing"] = len(lines)
        made = datetime.now(UTC) - timedelta(seconds=time.monotonic() - batch.created)
        return {
            "id": batch.id,
            "type": "message_batch",
            "processing_status": "ended" if ended else "in_progress",
            "request_counts": counts,
            "created_at": made.isoformat().replace("+00:00", "Z"),
        }

    def _result(self, line: Body) -> Body:
        if self.behaviour.expired(line):
            return {"type": "expired"}
        status, body = self.chat(line["url"], line["body"])
        if status == 200:
            return {"type": "succeeded", "message": body}
        return {"type": "errored", "error": body}

    def _upload(self, headers: Mapping[str, str], body: bytes) -> Body:
        boundary = headers["content-type"].partition("boundary=")[2].strip('"').encode()
        parts = body.split(b"--" + boundary)
        (content,) = [part for part in parts if b'name="file"' in part]
        return self.add_file(content.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n"))

    def add_file(self, content: bytes) -> Body:
        """Keep a file, and describe it."""
        file_id = f"file-{len(self.files) + 1}"
        self.files[file_id] = content
        about = {"bytes": len(content), "created_at": int(time.time()), "filename": "f.jsonl"}
        return {"id": file_id, "object": "file", "purpose": "batch", "status": "processed", **about}

    def _create(self, asked: Body) -> Body:
        return self._written(self.add_batch(asked["input_file_id"], asked.get("metadata") or {}))

    def add_batch(self, file: str, metadata: dict[str, str]) -> Batch:
        """Keep a batch of the requests in a file."""
        number = f"batch_{len(self.batches) + 1}"
        self.batches.append(Batch(number, file, metadata, time.monotonic()))
        return self.batches[-1]

    def lines(self, batch: Batch) -> list[Body]:
        """The requests of a batch."""
        return [json.loads(line) for line in self.files[batch.input_file_id].splitlines()]

    def _written(self, batch: Batch) -> Body:
        lines = self.lines(batch)
        ended = time.monotonic() - batch.created >= self.behaviour.seconds
        made: Body = {
            "id": batch.id,
            "object": "batch",
            "endpoint": "/v1/chat/completions",
            "input_file_id": batch.input_file_id,
            "completion_window": "24h",
            "created_at": int(time.time()),
            "metadata": batch.metadata,
            "status": "in_progress",
            "request_counts": {"total": len(lines), "completed": 0, "failed": 0},
        }
        if not ended:
            return made
        if self.behaviour.failed is not None:
            errors = {"object": "list", "data": [{"code": "x", "message": self.behaviour.failed}]}
            return made | {"status": "failed", "errors": errors}
        if batch.results is None:
            batch.results = self._results(lines)
        output, error = batch.results
        status = "expired" if any(map(self.behaviour.expired, lines)) else "completed"
        return made | {"status": status, "output_file_id": output, "error_file_id": error}

    def _results(self, lines: list[Body]) -> tuple[str, str]:
        """The files of results and of errors."""
        good: list[Body] = []
        bad: list[Body] = []
        for line in reversed(lines):
            about = {"id": f"r-{line['custom_id']}", "custom_id": line["custom_id"]}
            if self.behaviour.expired(line):
                error = {"code": "batch_expired", "message": "This request expired."}
                bad.append({**about, "response": None, "error": error})
                continue
            status, body = self.chat(line["url"], line["body"])
            response = {"status_code": status, "request_id": "r", "body": body}
            (good if status == 200 else bad).append({**about, "response": response, "error": None})
        written = [
            "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in of).encode()
            for of in (good, bad)
        ]
        return self.add_file(written[0])["id"], self.add_file(written[1])["id"]
