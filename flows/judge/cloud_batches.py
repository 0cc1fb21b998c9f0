"""The batches of Vertex AI and Amazon Bedrock: files in a bucket, and a job that reads them.

Requests are a file of lines in a bucket of the user's, and so are the replies. A job has our name
of the batch, by which it is found again. The files stay in the bucket.
"""

import asyncio
import json
import os
import re
import threading
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from importlib.util import find_spec
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit
from uuid import UUID

from claimflow.flows.judge.batch_protocol import (
    EXPIRED,
    MOST_BYTES,
    LineError,
    checked_id,
    json_lines,
    read_body,
)
from claimflow.flows.judge.provider import BatchState, BatchTerms, ProviderError
from claimflow.flows.judge.provider_errors import classify
from claimflow.flows.judge.usage import is_count, whole_number

_FOLDER: Final = "claimflow"
"""The folder of a bucket where the files of batches are."""

_MOST_PAGES: Final = 1_000
"""Most pages of a list of files."""

_ENDLESS: Final = f"the list of its files has more than {_MOST_PAGES:,} pages"

_GOOGLE_BUCKETS: Final = ("GCS_BATCH_BUCKET_NAME", "GCS_BUCKET_NAME")
_AMAZON_BUCKETS: Final = ("AWS_S3_BUCKET_NAME",)
_AMAZON_ROLE: Final = "AWS_BATCH_ROLE_ARN"
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
        tuned = model.rpartition("/")[2].isdigit()
        if tuned or not any(kind in model for kind in ("gemini", "claude")):
            return None
        if _lacks("google.auth"):
            return BatchTerms(missing="pip install google-auth requests")
        what = "set GCS_BUCKET_NAME to a bucket of Google Cloud Storage for its files"
        return BatchTerms(missing=None if _bucket(_GOOGLE_BUCKETS).name else what)
    if "agent" in model:
        return None
    if _lacks("boto3"):
        return BatchTerms(_AMAZON_FEWEST, "pip install boto3")
    lacking = []
    if not _bucket(_AMAZON_BUCKETS).name:
        lacking.append(f"{_AMAZON_BUCKETS[0]} to a bucket of S3 for its files")
    if not os.environ.get(_AMAZON_ROLE, "").startswith("arn:"):
        lacking.append(f"{_AMAZON_ROLE} to the ARN of a role that reads and writes the bucket")
    return BatchTerms(_AMAZON_FEWEST, f"set {' and '.join(lacking)}" if lacking else None)


def fewest_in_batch(model: str) -> int:
    """The fewest calls that a batch of a model takes, by its name alone."""
    return _AMAZON_FEWEST if model.startswith("bedrock/") else 1


class VertexBatches:
    """The batches of a project at Vertex AI, of Gemini or of Claude.

    `client` is an httpx client; `url` and `headers` are those of a single call to the model.
    """

    def __init__(self, client: Any, url: str, headers: Mapping[str, str]) -> None:
        found = _MODEL.fullmatch(url)
        if found is None:
            raise ProviderError("fatal", f"{url} is no model of Vertex AI")
        self._client = client
        self._headers = {"authorization": headers.get("authorization", "")}
        self._api = f"{found['address']}/v1/{found['parent']}/batchPredictionJobs"
        self._place = found["parent"].rpartition("/")[2]
        self._model = unquote(found["model"])
        self._bucket = _bucket(_GOOGLE_BUCKETS)
        storage = os.environ.get("STORAGE_EMULATOR_HOST") or "https://storage.googleapis.com"
        self._storage = (storage if "//" in storage else f"http://{storage}").rstrip("/")

    async def check(self) -> None:
        """As `BatchApi.check`, by a look into the bucket; it writes nothing."""
        objects = f"{self._storage}/storage/v1/b/{quote(self._bucket.name, safe='')}/o"
        prefix = quote(self._bucket.folder, safe="")
        with self._bucket.errors("read"):
            await self._json("GET", f"{objects}?maxResults=1&prefix={prefix}/")

    async def submit(self, name: str, bodies: Mapping[str, Mapping[str, Any]]) -> str:
        """As `BatchApi.submit`."""
        lines = map(self._line, bodies, bodies.values())
        place = f"{self._bucket.folder}/{name}"
        with self._bucket.errors():
            await self._read(
                "POST",
                f"{self._storage}/upload/storage/v1/b/{quote(self._bucket.name, safe='')}/o"
                f"?uploadType=media&name={quote(f'{place}/requests.jsonl', safe='')}",
                json_lines(lines),
                "application/jsonl",
            )
        folder = f"gs://{self._bucket.name}/{place}"
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
        return _job_id(self._place, made.get("name"))

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
                return _job_id(self._place, job.get("name"))
        return None

    async def state(self, batch_id: str) -> BatchState:
        """As `BatchApi.state`."""
        job = await self._job(batch_id)
        state, counts = _vertex_state(job), _object(job.get("completionStats"))
        # Google writes numbers of 64 bits as text.
        done = sum(_count(counts.get(name)) for name in ("successfulCount", "failedCount"))
        if state in _VERTEX_DONE:
            return BatchState(True, done)
        if state not in ("failed", "cancelled", "expired"):
            return BatchState(False, done)
        error = job.get("error")
        why = error.get("message") if isinstance(error, dict) else error
        return BatchState(True, done, f"the batch {state}" + (f": {why}" if why else ""))

    async def replies(self, batch_id: str) -> AsyncIterator[tuple[str, Any]]:
        """As `BatchApi.replies`."""
        job = await self._job(batch_id)
        # A job that was cut off leaves the replies that it had.
        folder = str(_object(job.get("outputInfo")).get("gcsOutputDirectory") or "")
        bucket, _, prefix = folder.removeprefix("gs://").partition("/")
        objects = f"{self._storage}/storage/v1/b/{quote(bucket, safe='')}/o"
        names = await self._names(objects, prefix.rstrip("/")) if folder else []
        if not names and _vertex_state(job) in _VERTEX_DONE:
            raise ProviderError("bad_request", f"there are no replies in {folder or 'any folder'}")
        urls = [f"{objects}/{quote(name, safe='')}?alt=media" for name in names]
        async for line in _lines_of(urls, lambda url: self._read("GET", url)):
            found = _vertex_reply(line)
            if found is not None:
                yield found

    async def _names(self, objects: str, prefix: str) -> list[str]:
        """The names of the files of lines in a folder."""
        names: list[str] = []
        after = ""
        for _ in range(_MOST_PAGES):
            with _file_errors():
                page = await self._json("GET", f"{objects}?prefix={quote(prefix, safe='')}/{after}")
            names += (str(one["name"]) for one in page.get("items") or [])
            if not page.get("nextPageToken"):
                return [name for name in names if name.endswith(".jsonl")]
            after = f"&pageToken={quote(str(page['nextPageToken']), safe='')}"
        raise ProviderError("bad_request", _ENDLESS)

    async def _job(self, batch_id: str) -> Any:
        number = _number_of(batch_id, self._place, "VERTEXAI_LOCATION")
        return await self._json("GET", f"{self._api}/{number}")

    async def _json(self, method: str, url: str, content: bytes = b"") -> Any:
        return json.loads(await self._read(method, url, content))

    async def _read(
        self, method: str, url: str, content: bytes = b"", kind: str = "application/json"
    ) -> bytes:
        headers = {**self._headers, "content-type": kind} if content else self._headers
        reply = await self._client.request(method, url, content=content, headers=headers)
        return read_body(reply)


_VERTEX_DONE: Final = ("succeeded", "partially_succeeded")


def _vertex_state(job: Any) -> str:
    return str(job["state"]).removeprefix("JOB_STATE_").lower()


def _vertex_reply(content: bytes) -> tuple[str, Any] | None:
    """The id of a request and the body of its reply, or a `ProviderError`; None for no reply."""
    try:
        line = json.loads(content, parse_int=whole_number)
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

    region: str
    model: str
    kind: str
    """The format of bodies: Converse or InvokeModel."""


def read_bedrock_url(url: str) -> BedrockCall:
    """What the address of a single call says."""
    parts = urlsplit(url)
    found = re.search(r"\.([a-z]{2,}(?:-[a-z]+)+-\d)\.", parts.hostname or "")
    region = found[1] if found else os.environ.get("AWS_REGION_NAME", "")
    model, _, action = parts.path.removeprefix("/model/").rpartition("/")
    return BedrockCall(
        region, unquote(model), "Converse" if action == "converse" else "InvokeModel"
    )


class BedrockBatches:
    """The batches of an account at Amazon Bedrock, by boto3.

    boto3 reads credentials and addresses from where it always does. Its calls block, so they are
    made in threads.
    """

    def __init__(self, call: BedrockCall, timeout: float) -> None:
        self._call = call
        self._bucket = _bucket(_AMAZON_BUCKETS)
        self._timeout = timeout
        self._clients: dict[str, Any] = {}

    async def check(self) -> None:
        """As `BatchApi.check`, by a look into the bucket; it writes nothing."""
        place = {"Bucket": self._bucket.name, "Prefix": f"{self._bucket.folder}/", "MaxKeys": 1}
        with self._bucket.errors("read"):
            await self._ask("s3", "list_objects_v2", **place)

    async def submit(self, name: str, bodies: Mapping[str, Mapping[str, Any]]) -> str:
        """As `BatchApi.submit`."""
        # The ids of records are letters and digits.
        lines = ({"recordId": UUID(one).hex, "modelInput": body} for one, body in bodies.items())
        bucket, place = self._bucket.name, f"{self._bucket.folder}/{name}"
        file = {"Bucket": bucket, "Key": f"{place}/requests.jsonl", "Body": json_lines(lines)}
        with self._bucket.errors():
            await self._ask("s3", "put_object", **file)
        folder = f"s3://{bucket}/{place}"
        made = await self._ask(
            "bedrock",
            "create_model_invocation_job",
            jobName=f"{_FOLDER}-{name}",
            # With this token a submission that is sent twice makes one job.
            clientRequestToken=name,
            roleArn=os.environ.get(_AMAZON_ROLE, ""),
            modelId=self._call.model,
            modelInvocationType=self._call.kind,
            inputDataConfig={"s3InputDataConfig": {"s3Uri": f"{folder}/requests.jsonl"}},
            outputDataConfig={"s3OutputDataConfig": {"s3Uri": f"{folder}/replies/"}},
        )
        return _job_id(self._call.region, made.get("jobArn"))

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
                return _job_id(self._call.region, job.get("jobArn"))
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
        folder = str(job["outputDataConfig"]["s3OutputDataConfig"]["s3Uri"])
        bucket, _, prefix = folder.removeprefix("s3://").partition("/")
        number = batch_id.rpartition(":")[2]
        keys = await self._keys(bucket, f"{prefix.rstrip('/')}/{number}/")
        if not keys and job["status"] in ("Completed", "PartiallyCompleted"):
            raise ProviderError("bad_request", f"there are no replies in {folder}")

        async def read(key: str) -> bytes:
            file = await self._ask("s3", "get_object", Bucket=bucket, Key=key)
            content: bytes = await _in_thread(partial(file["Body"].read, MOST_BYTES + 1))
            return content

        async for line in _lines_of(keys, read):
            found = _bedrock_reply(line)
            if found is not None:
                yield found

    async def _keys(self, bucket: str, prefix: str) -> list[str]:
        """The keys of the files of lines in a folder."""
        keys: list[str] = []
        more: dict[str, str] = {}
        for _ in range(_MOST_PAGES):
            place = {"Bucket": bucket, "Prefix": prefix, **more}
            with _file_errors():
                listed = await self._ask("s3", "list_objects_v2", **place)
            keys += (one["Key"] for one in listed.get("Contents") or [])
            if not listed.get("IsTruncated"):
                return [key for key in keys if key.endswith(".jsonl.out")]
            more = {"ContinuationToken": listed["NextContinuationToken"]}
        raise ProviderError("bad_request", _ENDLESS)

    async def _job(self, batch_id: str) -> Any:
        number = _number_of(batch_id, self._call.region, "AWS_REGION_NAME")
        return await self._ask("bedrock", "get_model_invocation_job", jobIdentifier=number)

    async def _ask(self, service: str, function: str, **parameters: Any) -> Any:
        """The reply of a service of Amazon. Raises `LineError` and `ProviderError`."""
        from botocore.exceptions import ClientError, ConnectionError, HTTPClientError

        try:
            return await _in_thread(lambda: getattr(self._client(service), function)(**parameters))
        except ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
            said = error.response.get("Error", {})
            if said.get("Code") in ("ThrottlingException", "SlowDown", "Throttling"):
                status = 429
            if 300 <= status < 400:
                status = 400  # The bucket is in another region.
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
            # A session of its own: the default one is shared by the threads of this process.
            session = Session(region_name=self._call.region or None)
            self._clients[service] = session.client(service, config=config)
        return self._clients[service]


async def _in_thread(work: Callable[[], Any]) -> Any:
    """The result of `work`, which blocks; a run that is to stop does not wait for it."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Any] = loop.create_future()

    def end(value: Any, error: Exception | None) -> None:
        if result.cancelled():
            return
        if error is None:
            result.set_result(value)
        else:
            result.set_exception(error)

    def run() -> None:
        value, failure = None, None
        try:
            value = work()
        except Exception as error:
            failure = error
        with suppress(RuntimeError):  # The loop may be closed.
            loop.call_soon_threadsafe(end, value, failure)

    threading.Thread(target=run, daemon=True).start()
    return await result


def _bedrock_reply(content: bytes) -> tuple[str, Any] | None:
    """As `_vertex_reply`."""
    try:
        line = json.loads(content, parse_int=whole_number)
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


class _Bucket(NamedTuple):
    """A bucket, the folder in it where the files of batches are, and the variable that says so."""

    variable: str
    name: str
    folder: str

    @contextmanager
    def errors(self, done: str = "written") -> Iterator[None]:
        """Name the variable where the bucket cannot be `done`: written or read."""
        try:
            yield
        except LineError as error:
            if error.status_code not in (400, 401, 403, 404):
                raise
            status = f"{error.status_code}: {error}"
            what = f"{self.variable}: {self.name} cannot be {done}: {status}"
            raise ProviderError("fatal", what) from None


def _bucket(variables: Collection[str]) -> _Bucket:
    """The bucket by the first of these variables that is set; an empty name for none."""
    variable = next((one for one in variables if os.environ.get(one)), "")
    value = os.environ[variable] if variable else ""
    name, _, path = re.sub(r"^(gs|s3)://", "", value).partition("/")
    folder = "/".join([*path.strip("/").split("/"), _FOLDER]).strip("/")
    return _Bucket(variable, name, folder)


def _lacks(package: str) -> bool:
    try:
        return find_spec(package) is None
    except ModuleNotFoundError:
        return True


async def _lines_of(
    files: Iterable[str], read: Callable[[str], Awaitable[bytes]]
) -> AsyncIterator[bytes]:
    """The lines of files that are read one after the other."""
    left = MOST_BYTES
    for file in files:
        with _file_errors():
            content = await read(file)
        left -= len(content)
        if left < 0:
            what = f"the replies of the batch are longer than {MOST_BYTES >> 20} MB"
            raise ProviderError("bad_request", what)
        for line in content.splitlines():
            yield line


@contextmanager
def _file_errors() -> Iterator[None]:
    """Tell files that are not there from a job that is not."""
    try:
        yield
    except LineError as error:
        if error.status_code != 404:
            raise
        raise ProviderError("bad_request", f"a file of its replies is gone: {error}") from None


def _job_id(place: str, name: Any) -> str:
    """The id of a job: where it is, and the last part of its name, which is enough to ask for it.

    A job is not found from another region.
    """
    number = checked_id(name.rpartition("/")[2] if isinstance(name, str) else name)
    return checked_id(f"{place}:{number}")


def _number_of(batch_id: str, place: str, variable: str) -> str:
    """What to ask for a job by. Raises `ProviderError` where it is in another place."""
    where, _, number = batch_id.rpartition(":")
    if where != place:
        what = f"it is in {where or 'no region'}, not in {place or 'no region'}: set {variable}"
        raise ProviderError("fatal", what)
    return number


def _object(value: Any) -> dict[str, Any]:
    """The value where it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int:
    """A count that serves messages alone; 0 where it is none."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    return value if is_count(value) else 0
