"""The batches of Vertex AI and Amazon Bedrock: files in a bucket, and a job that reads them.

Requests are a file of lines in a bucket of the user's, and so are the replies. A job has our name
of the batch, by which it is found again. The files stay in the bucket.
"""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit
from uuid import UUID

from claimflow.flows.judge.batch_protocol import (
    EXPIRED,
    LineError,
    checked_id,
    json_lines,
    read_body,
)
from claimflow.flows.judge.provider import BatchState, BatchTerms, ProviderError
from claimflow.flows.judge.provider_errors import classify
from claimflow.flows.judge.usage import is_count

_FOLDER: Final = "claimflow"
"""The folder of a bucket where the files of batches are."""

_MOST_BYTES: Final = 2**28
"""Most bytes of the replies of a batch."""

_GOOGLE_BUCKETS: Final = ("GCS_BATCH_BUCKET_NAME", "GCS_BUCKET_NAME")
_AMAZON_BUCKETS: Final = ("AWS_S3_BUCKET_NAME",)
_AMAZON_ROLES: Final = ("AWS_BATCH_ROLE_ARN",)
"""Environment variables, of the names that litellm gives them; the first that is set counts."""

_AMAZON_FEWEST: Final = 100
"""Fewest requests of a job of Bedrock."""

_LABEL: Final = "claimflow_request"
"""The label of a request to Gemini that holds its id."""

_MODEL: Final = re.compile(
    r"(?P<address>https?://[^/]+)/v[\w.]+/(?P<parent>projects/[^/]+/locations/[^/]+)/"
    r"(?P<model>.+):\w+"
)
"""The address of a model of Vertex AI, as a single call has it."""


def cloud_terms(provider: str, model: str) -> BatchTerms | None:
    """What batches of a model of `vertex_ai` or `bedrock` need; None where it takes none."""
    if provider == "vertex_ai":
        if not any(kind in model for kind in ("gemini", "claude")):
            return None
        bucket = _first_set(_GOOGLE_BUCKETS)
        what = "set GCS_BUCKET_NAME to a bucket of Google Cloud Storage for its files"
        return BatchTerms(missing=None if bucket else what)
    if "agent" in model:
        return None
    lacking = [names[0] for names in (_AMAZON_BUCKETS, _AMAZON_ROLES) if not _first_set(names)]
    what = (
        f"set {' and '.join(lacking)}: a bucket of S3 for its files, and a role that may read and "
        "write them"
    )
    return BatchTerms(_AMAZON_FEWEST, what if lacking else None)


def fewest_in_batch(model: str) -> int:
    """The fewest calls that a batch of a model takes, by its name alone."""
    return _AMAZON_FEWEST if model.startswith("bedrock/") else 1


class VertexBatches:
    """The batches of a project at Vertex AI, of Gemini or of Claude.

    `client` is an httpx client; `url` and `headers` are those of a single call to the model.
    """

    def __init__(self, client: Any, url: str, headers: Mapping[str, str]) -> None:
        found = _MODEL.fullmatch(url)
        bucket = _first_set(_GOOGLE_BUCKETS)
        if found is None or bucket is None:
            raise ProviderError(
                "fatal", f"{url} is no model of Vertex AI with a bucket for batches"
            )
        self._client = client
        self._headers = {"authorization": headers.get("authorization", "")}
        self._api = f"{found['address']}/v1/{found['parent']}/batchPredictionJobs"
        self._model = unquote(found["model"])
        self._bucket, _, path = bucket.removeprefix("gs://").partition("/")
        self._folder = "/".join([*path.strip("/").split("/"), _FOLDER]).strip("/")
        storage = os.environ.get("STORAGE_EMULATOR_HOST") or "https://storage.googleapis.com"
        self._storage = (storage if "//" in storage else f"http://{storage}").rstrip("/")

    async def submit(self, name: str, bodies: Mapping[str, Mapping[str, Any]]) -> str:
        """As `BatchApi.submit`."""
        lines = map(self._line, bodies, bodies.values())
        place = f"{self._folder}/{name}"
        await self._read(
            "POST",
            f"{self._storage}/upload/storage/v1/b/{quote(self._bucket, safe='')}/o"
            f"?uploadType=media&name={quote(f'{place}/requests.jsonl', safe='')}",
            json_lines(lines),
            "application/jsonl",
        )
        folder = f"gs://{self._bucket}/{place}"
        job = {
            "displayName": name,
            "model": self._model,
            "inputConfig": {
                "instancesFormat": "jsonl",
                "gcsSource": {"uris": [f"{folder}/requests.jsonl"]},
            },
            "outputConfig": {
                "predictionsFormat": "jsonl",
                "gcsDestination": {"outputUriPrefix": f"{folder}/replies"},
            },
        }
        made = await self._json("POST", self._api, json.dumps(job).encode())
        return _last_part(made.get("name"))

    def _line(self, request_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        if "publishers/anthropic/" in self._model:
            return {"custom_id": request_id, "request": body}
        labels = {**(body.get("labels") or {}), _LABEL: request_id}
        return {"request": {**body, "labels": labels}}

    async def find(
        self,
        name: str,
        requests: Collection[str],  # noqa: ARG002
        since: datetime,  # noqa: ARG002
    ) -> str | None:
        """As `BatchApi.find`, by the display name of the job."""
        wanted = quote(f'displayName="{name}"', safe="")
        page = await self._json("GET", f"{self._api}?filter={wanted}")
        for job in page.get("batchPredictionJobs") or []:
            if job.get("displayName") == name:
                return _last_part(job.get("name"))
        return None

    async def state(self, batch_id: str) -> BatchState:
        """As `BatchApi.state`."""
        job = await self._json("GET", f"{self._api}/{batch_id}")
        state = str(job["state"]).removeprefix("JOB_STATE_").lower()
        counts = job.get("completionStats") or {}
        # Google writes numbers of 64 bits as text.
        done = sum(_count(counts.get(name)) for name in ("successfulCount", "failedCount"))
        if state in ("succeeded", "partially_succeeded"):
            return BatchState(True, done)
        if state not in ("failed", "cancelled", "expired"):
            return BatchState(False, done)
        why = (job.get("error") or {}).get("message")
        return BatchState(True, done, f"the batch {state}" + (f": {why}" if why else ""))

    async def replies(self, batch_id: str) -> AsyncIterator[tuple[str, Any]]:
        """As `BatchApi.replies`."""
        job = await self._json("GET", f"{self._api}/{batch_id}")
        folder = (job.get("outputInfo") or {}).get("gcsOutputDirectory")
        if not folder:
            return
        # A job that was cut off leaves the replies that it had.
        bucket, _, prefix = str(folder).removeprefix("gs://").partition("/")
        objects = f"{self._storage}/storage/v1/b/{quote(bucket, safe='')}/o"
        left, after = _MOST_BYTES, ""
        while True:
            page = await self._json("GET", f"{objects}?prefix={quote(prefix, safe='')}/{after}")
            for one in page.get("items") or []:
                name = str(one["name"])
                if not name.endswith(".jsonl"):
                    continue
                content = await self._read("GET", f"{objects}/{quote(name, safe='')}?alt=media")
                left -= len(content)
                _check_left(left)
                for line in content.splitlines():
                    found = _vertex_reply(line)
                    if found is not None:
                        yield found
            if not page.get("nextPageToken"):
                return
            after = f"&pageToken={quote(str(page['nextPageToken']), safe='')}"

    async def _json(self, method: str, url: str, content: bytes = b"") -> Any:
        return json.loads(await self._read(method, url, content))

    async def _read(
        self, method: str, url: str, content: bytes = b"", kind: str = "application/json"
    ) -> bytes:
        headers = {**self._headers, "content-type": kind} if content else self._headers
        reply = await self._client.request(method, url, content=content, headers=headers)
        return read_body(reply)


def _vertex_reply(content: bytes) -> tuple[str, Any] | None:
    """The id of a request and the body of its reply, or a `ProviderError`; None for no reply."""
    try:
        line = json.loads(content)
        request_id = line.get("custom_id") or line["request"]["labels"][_LABEL]
        response = line.get("response")
        if isinstance(response, dict) and response and "error" not in response:
            return str(request_id), response
        status = line.get("status") or line.get("error") or (response or {}).get("error")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return str(request_id), classify(_google_error(status))


_GOOGLE_STATUSES: Final = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}


def _google_error(status: Any) -> LineError:
    """What a line says of a request that failed: an object, JSON of one, or words."""
    if isinstance(status, str):
        with suppress(ValueError, RecursionError):
            status = json.loads(status)
    if not isinstance(status, dict):
        number = 400 if str(status or "").startswith("Bad Request") else 500
        return LineError(number, {"message": str(status or "no reply")})
    inner = status.get("error")
    error = inner if isinstance(inner, dict) else status
    code: Any = error.get("code")
    if is_count(code) and 400 <= code < 600:
        return LineError(code, error)
    return LineError(_GOOGLE_STATUSES.get(str(error.get("status")), 500), error)


class BedrockCall(NamedTuple):
    """What a single call to a model of Bedrock says of it."""

    region: str | None
    model: str
    kind: str
    """The format of bodies: Converse or InvokeModel."""


def read_bedrock_url(url: str) -> BedrockCall:
    """What the address of a single call says."""
    parts = urlsplit(url)
    region = re.search(r"\.([a-z]{2,}(?:-[a-z]+)+-\d)\.", parts.hostname or "")
    model, _, action = parts.path.removeprefix("/model/").rpartition("/")
    kind = "Converse" if action == "converse" else "InvokeModel"
    return BedrockCall(region and region[1], unquote(model), kind)


class BedrockBatches:
    """The batches of an account at Amazon Bedrock, by boto3.

    boto3 reads credentials and addresses from where it always does. Its calls block, so they are
    made in threads.
    """

    def __init__(self, call: BedrockCall, timeout: float) -> None:
        bucket, role = _first_set(_AMAZON_BUCKETS), _first_set(_AMAZON_ROLES)
        if bucket is None or role is None:
            raise ProviderError("fatal", "no bucket or no role is set for the files of batches")
        self._call = call
        self._role = role
        self._bucket, _, path = bucket.removeprefix("s3://").partition("/")
        self._folder = "/".join([*path.strip("/").split("/"), _FOLDER]).strip("/")
        self._timeout = timeout
        self._clients: dict[str, Any] = {}

    async def submit(self, name: str, bodies: Mapping[str, Mapping[str, Any]]) -> str:
        """As `BatchApi.submit`."""
        # The ids of records are letters and digits.
        lines = ({"recordId": UUID(one).hex, "modelInput": body} for one, body in bodies.items())
        key = f"{self._folder}/{name}/requests.jsonl"
        await self._ask("s3", "put_object", Bucket=self._bucket, Key=key, Body=json_lines(lines))
        folder = f"s3://{self._bucket}/{self._folder}/{name}"
        made = await self._ask(
            "bedrock",
            "create_model_invocation_job",
            jobName=f"{_FOLDER}-{name}",
            # With this token a submission that is sent twice makes one job.
            clientRequestToken=name,
            roleArn=self._role,
            modelId=self._call.model,
            modelInvocationType=self._call.kind,
            inputDataConfig={"s3InputDataConfig": {"s3Uri": f"{folder}/requests.jsonl"}},
            outputDataConfig={"s3OutputDataConfig": {"s3Uri": f"{folder}/replies/"}},
        )
        return _last_part(made.get("jobArn"))

    async def find(
        self,
        name: str,
        requests: Collection[str],  # noqa: ARG002
        since: datetime,  # noqa: ARG002
    ) -> str | None:
        """As `BatchApi.find`, by the name of the job."""
        wanted = f"{_FOLDER}-{name}"
        page = await self._ask("bedrock", "list_model_invocation_jobs", nameContains=wanted)
        for job in page.get("invocationJobSummaries") or []:
            if job.get("jobName") == wanted:
                return _last_part(job.get("jobArn"))
        return None

    async def state(self, batch_id: str) -> BatchState:
        """As `BatchApi.state`."""
        job = await self._job(batch_id)
        done, status = _count(job.get("processedRecordCount")), job["status"]
        if status == "Completed":
            return BatchState(True, done)
        if status not in ("PartiallyCompleted", "Failed", "Stopped", "Expired"):
            return BatchState(False, done)
        words = "was partly done" if status == "PartiallyCompleted" else status.lower()
        why = job.get("message")
        return BatchState(True, done, f"the batch {words}" + (f": {why}" if why else ""))

    async def replies(self, batch_id: str) -> AsyncIterator[tuple[str, Any]]:
        """As `BatchApi.replies`."""
        job = await self._job(batch_id)
        place = job["outputDataConfig"]["s3OutputDataConfig"]["s3Uri"]
        bucket, _, prefix = str(place).removeprefix("s3://").partition("/")
        left = _MOST_BYTES
        more: dict[str, str] = {}
        while True:
            listed = await self._ask(
                "s3", "list_objects_v2", Bucket=bucket, Prefix=f"{prefix}{batch_id}/", **more
            )
            for one in listed.get("Contents") or []:
                if not one["Key"].endswith(".jsonl.out"):
                    continue
                left -= one["Size"]
                _check_left(left)
                found = await self._ask("s3", "get_object", Bucket=bucket, Key=one["Key"])
                content = await asyncio.to_thread(found["Body"].read, one["Size"])
                for line in content.splitlines():
                    reply = _bedrock_reply(line)
                    if reply is not None:
                        yield reply
            if not listed.get("IsTruncated"):
                return
            more = {"ContinuationToken": listed["NextContinuationToken"]}

    async def _job(self, batch_id: str) -> Any:
        return await self._ask("bedrock", "get_model_invocation_job", jobIdentifier=batch_id)

    async def _ask(self, service: str, function: str, **parameters: Any) -> Any:
        """The reply of a service of Amazon. Raises `LineError` and `ProviderError`."""
        from botocore.exceptions import ClientError, ConnectionError, HTTPClientError

        try:
            return await asyncio.to_thread(
                lambda: getattr(self._client(service), function)(**parameters)
            )
        except ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
            said = error.response.get("Error", {})
            if said.get("Code") in ("ThrottlingException", "SlowDown", "Throttling"):
                status = 429
            # A reply that boto3 cannot read has an empty message.
            what = {"message": said.get("Message") or said.get("Code")}
            failure: Exception = LineError(status, what)
        except (ConnectionError, HTTPClientError) as error:
            failure = ProviderError("server", f"{service} cannot be reached: {error}")
        except Exception as error:
            # Of credentials, the region, or a parameter.
            failure = ProviderError("fatal", f"{service}: {error}")
        raise failure

    def _client(self, service: str) -> Any:
        if service not in self._clients:
            from boto3.session import Session
            from botocore.config import Config

            once = {"total_max_attempts": 1}
            config = Config(connect_timeout=self._timeout, read_timeout=self._timeout, retries=once)
            region = self._call.region or os.environ.get("AWS_REGION_NAME")
            # A session of its own: the default one is shared by the threads of this process.
            made = Session(region_name=region).client(service, config=config)
            self._clients[service] = made
        return self._clients[service]


def _bedrock_reply(content: bytes) -> tuple[str, Any] | None:
    """As `_vertex_reply`."""
    try:
        line = json.loads(content)
        request_id = str(UUID(hex=line["recordId"]))
        error = line.get("error")
        if error is None:
            return request_id, line["modelOutput"]
        if error.get("expired") is True:
            return request_id, ProviderError("timeout", EXPIRED)
        number = error.get("errorCode")
        status = number if is_count(number) and 400 <= number < 600 else 500
        return request_id, classify(LineError(status, {"message": error.get("errorMessage")}))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _first_set(names: Collection[str]) -> str | None:
    return next((value for name in names if (value := os.environ.get(name))), None)


def _last_part(name: Any) -> str:
    """The last part of the name of a job, which is enough to ask for it."""
    return checked_id(name.rpartition("/")[2] if isinstance(name, str) else name)


def _count(value: Any) -> int:
    """A count that serves messages alone; 0 where it is none."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    return value if is_count(value) else 0


def _check_left(left: int) -> None:
    if left < 0:
        what = f"the replies of the batch are longer than {_MOST_BYTES >> 20} MB"
        raise ProviderError("bad_request", what)
