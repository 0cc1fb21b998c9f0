"""Google Cloud Storage and Vertex AI, S3 and Bedrock, as far as batches use them."""

import json
import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, unquote
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from tests.endpoint.batches import Batch, BatchService

Body = dict[str, Any]
Reply = tuple[int, Body | bytes]

BUCKET: Final = "claims-bucket"
_TOKEN: Final = "/token"
_UPLOAD: Final = f"/upload/storage/v1/b/{BUCKET}/o"
_OBJECTS: Final = f"/storage/v1/b/{BUCKET}/o"
_VERTEX: Final = re.compile(r"(/v1/projects/[^/]+/locations/[^/]+)/batchPredictionJobs(?:/(\w+))?")
_BEDROCK: Final = re.compile(r"/model-invocation-jobs?(?:/(\w+))?")
_PAGE: Final = 1
"""Objects of Google's on a page of their list."""


class Clouds:
    """The jobs of Vertex AI and Bedrock, among the batches of a `BatchService`."""

    def __init__(self, service: "BatchService") -> None:
        self._service = service
        self._made: dict[str, Body] = {}
        """The jobs, as they were asked for, by the id of the batch."""

    def handles(self, path: str) -> bool:
        """Whether a path is one of these clouds."""
        bucket = path.partition("?")[0].startswith((f"/{BUCKET}", _UPLOAD, _OBJECTS, _TOKEN))
        return bucket or bool(_VERTEX.match(path) or _BEDROCK.match(path))

    def handle(self, method: str, path: str, query: str, body: bytes) -> Reply | None:
        """Status and body of a reply; None where the reply is to be lost."""
        asked = {name: values[0] for name, values in parse_qs(query).items()}
        if path == _TOKEN:
            return 200, {"access_token": "token", "expires_in": 3600, "token_type": "Bearer"}
        if path == _UPLOAD:
            self._service.files[asked["name"]] = body
            return 200, {"name": asked["name"]}
        if path.startswith(_OBJECTS):
            return self._google_object(unquote(path.removeprefix(_OBJECTS)).lstrip("/"), asked)
        if found := _VERTEX.fullmatch(path):
            return self._vertex(method, found[1], found[2], body)
        if found := _BEDROCK.fullmatch(path):
            return self._bedrock(method, found[1], asked, body)
        key = unquote(path.removeprefix(f"/{BUCKET}").lstrip("/"))
        if method == "PUT":
            self._service.files[key] = body
            return 200, b""
        return (200, self._service.files[key]) if key else (200, self._listed(asked["prefix"]))

    def _google_object(self, name: str, asked: Mapping[str, str]) -> Reply:
        if name:
            return 200, self._service.files[name]
        found = sorted(one for one in self._service.files if one.startswith(asked["prefix"]))
        start = int(asked.get("pageToken", 0))
        items = [{"name": one} for one in found[start : start + _PAGE]]
        more = {"nextPageToken": str(start + _PAGE)} if start + _PAGE < len(found) else {}
        return 200, {"items": items, **more}

    def _listed(self, prefix: str) -> bytes:
        found = {one: of for one, of in self._service.files.items() if one.startswith(prefix)}
        listed = "".join(
            f"<Contents><Key>{escape(one)}</Key><Size>{len(of)}</Size></Contents>"
            for one, of in found.items()
        )
        whole = f"<IsTruncated>false</IsTruncated>{listed}"
        return f"<ListBucketResult>{whole}</ListBucketResult>".encode()

    def _create(self, name: str, file: str, asked: Body, read: Callable[[Body], Body]) -> "Batch":
        """A batch of the requests in a file, whose lines `read` brings into OpenAI's form."""
        lines = [read(json.loads(line)) for line in self._service.files[file].splitlines()]
        written = "".join(json.dumps(line) + "\n" for line in lines).encode()
        batch = self._service.add_batch(self._service.add_file(written)["id"], {"claimflow": name})
        self._made[batch.id] = asked
        return batch

    def _vertex(self, method: str, parent: str, number: str | None, body: bytes) -> Reply | None:
        if method == "POST":
            job = json.loads(body)
            (uri,) = job["inputConfig"]["gcsSource"]["uris"]
            path = f"{parent}/{job['model']}:generateContent"

            def read(line: Body) -> Body:
                labels = line["request"]["labels"]
                return {
                    "custom_id": labels["claimflow_request"],
                    "url": path,
                    "body": line["request"],
                }

            file = uri.removeprefix(f"gs://{BUCKET}/")
            batch = self._create(job["displayName"], file, job, read)
            return None if self._service.loses() else (200, self._vertex_job(parent, batch))
        known = {one.id: one for one in self._service.batches if one.id in self._made}
        if number is None:
            listed = [self._vertex_job(parent, one) for one in known.values()]
            return 200, {"batchPredictionJobs": listed}
        if number not in known:
            error = {"code": 404, "message": "The job does not exist.", "status": "NOT_FOUND"}
            return 404, {"error": error}
        return 200, self._vertex_job(parent, known[number])

    def _vertex_job(self, parent: str, batch: "Batch") -> Body:
        behaviour, lines = self._service.behaviour, self._service.lines(batch)
        job = self._made[batch.id] | {"name": f"{parent[4:]}/batchPredictionJobs/{batch.id}"}
        if time.monotonic() - batch.created < behaviour.seconds:
            return job | {"state": "JOB_STATE_RUNNING"}
        if behaviour.failed is not None:
            error = {"code": 8, "message": behaviour.failed}
            return job | {"state": "JOB_STATE_FAILED", "error": error}
        prefix = job["outputConfig"]["gcsDestination"]["outputUriPrefix"]
        folder = f"{prefix}/prediction-model-{batch.id}"
        late = [line for line in lines if behaviour.expired(line)]
        if batch.results is None:
            rows = [self._vertex_row(line) for line in reversed(lines) if line not in late]
            place = folder.removeprefix(f"gs://{BUCKET}/")
            for number, part in enumerate((rows[::2], rows[1::2])):
                written = "".join(json.dumps(row) + "\n" for row in part).encode()
                self._service.files[f"{place}/predictions_{number}.jsonl"] = (
                    behaviour.noise + written
                )
            batch.results = (place, place)
        stats = {"successfulCount": str(len(lines) - len(late)), "incompleteCount": str(len(late))}
        return job | {
            "state": "JOB_STATE_EXPIRED" if late else "JOB_STATE_SUCCEEDED",
            "completionStats": stats,
            "outputInfo": {"gcsOutputDirectory": folder},
        }

    def _vertex_row(self, line: Body) -> Body:
        status, body = self._service.chat(line["url"], line["body"])
        if status == 200:
            return {"status": "", "request": line["body"], "response": body}
        return {"status": json.dumps(body), "request": line["body"], "response": {}}

    def _bedrock(
        self, method: str, number: str | None, asked: Mapping[str, str], body: bytes
    ) -> Reply | None:
        if method == "POST":
            job = json.loads(body)
            assert job["modelInvocationType"] == "Converse"
            path = f"/model/{job['modelId']}/converse"

            def read(line: Body) -> Body:
                return {"custom_id": line["recordId"], "url": path, "body": line["modelInput"]}

            uri = job["inputDataConfig"]["s3InputDataConfig"]["s3Uri"]
            file = uri.removeprefix(f"s3://{BUCKET}/")
            batch = self._create(job["jobName"], file, job, read)
            return None if self._service.loses() else (200, {"jobArn": _arn(batch)})
        jobs = [self._bedrock_job(one) for one in self._service.batches if one.id in self._made]
        if number is None:
            named = [job for job in jobs if asked["nameContains"] in job["jobName"]]
            return 200, {"invocationJobSummaries": named}
        found = [job for job in jobs if job["jobArn"].endswith(f"/{number}")]
        return (200, found[0]) if found else (404, {"message": "The job does not exist."})

    def _bedrock_job(self, batch: "Batch") -> Body:
        behaviour, lines = self._service.behaviour, self._service.lines(batch)
        job = self._made[batch.id] | {"jobArn": _arn(batch)}
        if time.monotonic() - batch.created < behaviour.seconds:
            return job | {"status": "InProgress", "processedRecordCount": 0}
        if behaviour.failed is not None:
            return job | {"status": "Failed", "message": behaviour.failed}
        if batch.results is None:
            folder = job["outputDataConfig"]["s3OutputDataConfig"]["s3Uri"]
            place = folder.removeprefix(f"s3://{BUCKET}/") + batch.id
            rows = [json.dumps(self._bedrock_row(line)) + "\n" for line in reversed(lines)]
            self._service.files[f"{place}/requests.jsonl.out"] = (
                behaviour.noise + "".join(rows).encode()
            )
            self._service.files[f"{place}/manifest.json.out"] = b"{}"
            batch.results = (place, place)
        late = any(map(behaviour.expired, lines))
        status = "PartiallyCompleted" if late else "Completed"
        return job | {"status": status, "processedRecordCount": len(lines)}

    def _bedrock_row(self, line: Body) -> Body:
        row = {"recordId": line["custom_id"], "modelInput": line["body"]}
        if self._service.behaviour.expired(line):
            error = {"errorCode": 408, "errorMessage": "Expired.", "expired": True}
            return row | {"error": error}
        status, body = self._service.chat(line["url"], line["body"])
        if status == 200:
            return row | {"modelOutput": body}
        return row | {"error": {"errorCode": status, "errorMessage": body["message"]}}


def _arn(batch: "Batch") -> str:
    return f"arn:aws:bedrock:us-east-1:123456789012:model-invocation-job/{batch.id}"
