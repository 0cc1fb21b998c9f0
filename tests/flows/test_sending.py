"""Scores that are sent to servers on the loopback."""

import base64
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData

from claimflow.flows.cli.main import main
from claimflow.flows.errors import InputError
from claimflow.flows.pipeline import schedules
from claimflow.flows.sending import delivery, endpoint
from claimflow.flows.store.sendings import Sending, begin_sending, end_sending
from claimflow.flows.store.store import Store
from claimflow.stages.rows import content_key
from tests.flows.trace_servers import Got, Said, TraceServer, langfuse, phoenix, records
from tests.flows.traced_runs import put_many, put_traced, run_embedded, score, span, trace, traced

SECRET = "sk-lf-very-secret"
VARIABLES = {
    "otlp": ("OTEL_EXPORTER_OTLP_ENDPOINT", ""),
    "langfuse": ("LANGFUSE_HOST", ""),
    "phoenix": ("PHOENIX_COLLECTOR_ENDPOINT", ""),
}


@pytest.fixture
def server() -> Iterator[TraceServer]:
    with TraceServer(lambda _: Said()).running() as running:
        yield running


@pytest.fixture(autouse=True)
def environment(server: TraceServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("OTEL_", "LANGFUSE_", "PHOENIX_", "MLFLOW_")):
            monkeypatch.delenv(name)
    for name, path in VARIABLES.values():
        monkeypatch.setenv(name, server.url + path)
    monkeypatch.setenv("LANGFUSE_PUBLIC_KEY", "pk-lf-public")
    monkeypatch.setenv("LANGFUSE_SECRET_KEY", SECRET)
    monkeypatch.setattr(endpoint, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(endpoint, "_PATIENCE", 0.3)


def send(store: Store, *options: str) -> int:
    return main(["send", *options, "--store", str(store.path)])


def sent(store: Store) -> int:
    with store.reading() as connection:
        ((count,),) = connection.execute("SELECT count(*) FROM audit.sent").fetchall()
    return int(count)


def attributes(record: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for one in record.attributes:
        kind = one.value.WhichOneof("value")
        value = getattr(one.value, kind)
        values[one.key] = (
            [part.string_value for part in value.values] if kind == "array_value" else value
        )
    return values


@pytest.fixture
def mixed(tmp_path: Path) -> tuple[Store, str]:
    """Samples with a score, undefined, failed, without a trace, and with ids that are not hex."""
    store = Store(tmp_path / "mixed.duckdb")
    samples = [
        traced("good", 0),
        traced("undefined", 1),
        traced("failed", 2),
        traced("untraced", 3, metadata="{}"),
        traced("odd", 4, metadata='{"trace_id": "run-7", "span_id": 12}'),
    ]
    scores = [
        score("good", 0.25),
        score("undefined", None, "undefined"),
        score("failed", None, "failed"),
        score("untraced", 1.0),
        score("odd", 1.0),
    ]
    return store, put_traced(store, samples, scores)


def test_a_collector_gets_events_of_the_genai_conventions(
    server: TraceServer,
    mixed: tuple[Store, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, run_id = mixed
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Basic%20abcd,x-team=evals")
    assert send(store, "--to", "otlp") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"otlp: run {run_id}: 3 evaluations sent",
        "1 of 5 samples has no trace id; not sent",
        "1 not sent: the trace id is not 32 hexadecimal digits",
    ]
    (request,) = server.got
    assert request.path == "/v1/logs"
    assert request.headers["authorization"] == "Basic abcd"
    assert request.headers["x-team"] == "evals"
    found = {
        attributes(one)["claimflow.sample_id"]: (one, attributes(one)) for one in records([request])
    }
    record, values = found["good"]
    assert record.event_name == "gen_ai.evaluation.result"
    assert record.trace_id.hex() == trace(0)
    assert record.span_id.hex() == span(0)
    assert record.time_unix_nano > 10**18
    assert values["gen_ai.evaluation.name"] == "faithfulness"
    assert values["gen_ai.evaluation.score.value"] == 0.25
    assert values["gen_ai.evaluation.explanation"] == (
        "1 verdict: 1 neutral; neutral: good is red."
    )
    assert values["claimflow.judge_models"] == ["openai/strict"]
    assert len(values["claimflow.prompt_hashes"]) == 1
    assert values["claimflow.run_id"] == run_id
    assert "claimflow.version" in values
    _, values = found["undefined"]
    assert "gen_ai.evaluation.score.value" not in values
    assert values["gen_ai.evaluation.score.label"] == "undefined"
    assert "error.type" not in values
    _, values = found["failed"]
    assert values["error.type"] == "failed"
    assert values["gen_ai.evaluation.explanation"] == "because it is failed"


def test_models_that_run_here_are_sent_by_name_and_hash(
    server: TraceServer, tmp_path: Path
) -> None:
    store = run_embedded(tmp_path)
    with store.reading() as connection:
        kept = connection.execute("SELECT tools FROM audit.artifacts").fetchall()
    identities = {
        name: identity for (tools,) in kept for name, identity in json.loads(tools).items()
    }
    names = {"model": "embedded judge", "parser": "embedded parser", "embedder": "all-MiniLM-L6-v2"}
    hashed = {
        tool: f"{name}@{content_key('model', identities[tool])}" for tool, name in names.items()
    }
    assert send(store, "--to", "otlp") == 0
    found = {one["gen_ai.evaluation.name"]: one for one in map(attributes, records(server.got))}
    of_claims, of_texts = found["faithfulness"], found["semantic_similarity"]
    assert of_claims["claimflow.judge_models"] == [hashed["model"]]
    assert of_claims["claimflow.other_models"] == [hashed["parser"]]
    assert "claimflow.judge_models" not in of_texts
    assert of_texts["claimflow.other_models"] == [hashed["embedder"]]
    server.answer = phoenix
    assert send(store, "--to", "phoenix", "--metrics", "faithfulness") == 0
    (annotation,) = server.got[-1].content["data"]
    assert annotation["annotator_kind"] == "CODE"
    assert annotation["metadata"]["judge_models"] == [hashed["model"]]


def test_a_file_for_a_collector_is_lines_of_logs_data(server: TraceServer, tmp_path: Path) -> None:
    store, _ = put_many(tmp_path, 3)
    path = tmp_path / "out.jsonl"
    assert send(store, "--to", "otlp", "--file", str(path)) == 0
    assert path.stat().st_mode & 0o777 == 0o600
    (line,) = path.read_text("utf-8").splitlines()
    parsed = json_format.Parse(line, LogsData())
    assert len(parsed.resource_logs[0].scope_logs[0].log_records) == 3
    assert server.got == []
    assert sent(store) == 0
    assert send(store, "--to", "otlp", "--file", str(store.path)) == 2
    assert send(store, "--to", "otlp") == 0


def test_a_file_to_write_replaces_regular_files_only(
    server: TraceServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, _ = put_many(tmp_path, 1)
    pipe, link, lead = (tmp_path / name for name in ("pipe", "link", "lead.jsonl"))
    os.mkfifo(pipe)
    link.symlink_to(lead)
    monkeypatch.chdir(tmp_path)
    for given, kind in (
        (str(pipe), "a device, pipe or socket"),
        (str(link), "a symbolic link"),
        (".", "a folder"),
        ("", "a folder"),
        ("..", "a folder"),
        ("/", "a folder"),
    ):
        assert send(store, "--to", "otlp", "--file", given) == 2
        error = capsys.readouterr().err
        assert f"is {kind}, which is not replaced; name a new file" in error
    assert pipe.is_fifo()
    assert link.is_symlink()
    assert not lead.exists()
    assert not list(tmp_path.glob(".*.part"))
    # Tables and reports are written by renaming as well.
    folder = tmp_path / "tables"
    folder.mkdir()
    os.mkfifo(folder / "scores.parquet")
    assert main(["export", "scores", "-o", str(folder), "--store", str(store.path)]) == 2
    assert "is a device, pipe or socket" in capsys.readouterr().err
    assert (folder / "scores.parquet").is_fifo()


def test_langfuse_gets_scores_with_ids_that_stay(
    server: TraceServer, mixed: tuple[Store, str], capsys: pytest.CaptureFixture[str]
) -> None:
    store, _ = mixed
    server.answer = langfuse
    assert send(store, "--to", "langfuse") == 0
    assert "2 not sent: there is no score" in capsys.readouterr().out
    assert send(store, "--to", "langfuse") == 0
    assert "0 evaluations sent, 2 were sent before" in capsys.readouterr().out
    assert send(store, "--to", "langfuse", "--again") == 0
    first, again = server.got
    assert first.path == "/api/public/ingestion"
    login = base64.b64decode(first.headers["authorization"].removeprefix("Basic ")).decode()
    assert login == f"pk-lf-public:{SECRET}"
    assert first.content == again.content
    bodies = {one["body"]["traceId"]: one["body"] for one in first.content["batch"]}
    assert bodies.keys() == {trace(0), "run-7"}
    body = bodies[trace(0)]
    # The required and optional fields of a score, by the published interface.
    assert body.keys() <= {
        *("id", "traceId", "observationId", "name", "value", "dataType", "comment", "metadata"),
    }
    assert (body["observationId"], body["value"], body["dataType"]) == (span(0), 0.25, "NUMERIC")
    assert {one["type"] for one in first.content["batch"]} == {"score-create"}


def test_scores_that_langfuse_refuses_are_told_and_sent_again(
    server: TraceServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, _ = put_many(tmp_path, 3)

    def refuse_one(got: Got) -> Said:
        first, *others = (one["id"] for one in got.content["batch"])
        error = {"id": first, "status": 400, "message": f"bad {SECRET}"}
        said = {"successes": [{"id": one, "status": 201} for one in others], "errors": [error]}
        return Said(207, json.dumps(said).encode())

    server.answer = refuse_one
    assert send(store, "--to", "langfuse") == 1
    assert "1 not sent: Langfuse refuses it: bad ***" in capsys.readouterr().out
    assert sent(store) == 2
    server.answer = langfuse
    assert send(store, "--to", "langfuse") == 0
    assert len(server.got[-1].content["batch"]) == 1
    assert sent(store) == 3


def test_phoenix_gets_annotations_of_spans(
    server: TraceServer, mixed: tuple[Store, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = mixed
    monkeypatch.setenv("PHOENIX_API_KEY", "phoenix-key-1")
    server.answer = phoenix
    assert send(store, "--to", "phoenix") == 0
    (request,) = server.got
    assert request.path == "/v1/span_annotations?sync=true"
    assert request.headers["authorization"] == "Bearer phoenix-key-1"
    found = {one["span_id"]: one for one in request.content["data"]}
    assert found.keys() == {span(0), span(1), span(2)}
    one = found[span(0)]
    # As SpanAnnotationData of the published interface, which forbids further fields.
    assert one.keys() == {
        *("span_id", "name", "annotator_kind", "result", "metadata", "identifier"),
    }
    assert one["annotator_kind"] == "LLM"
    assert one["result"].keys() == {"score", "explanation"}
    assert found[span(1)]["result"].keys() == {"label", "explanation"}


OF_TRACES = """
name: traced
samples: {traces: "*.jsonl"}
store: traced.duckdb
read_copy: false
steps:
  context_matches: {use: lexical_match, against: retrieved_contexts}
  faithful: {use: deterministic_faithfulness}
"""


@pytest.fixture
def of_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A run over two rows of Langfuse's traces, of which one has a root observation, and a chat."""
    asked = {"input": "Is tin a metal?", "output": "Tin is a metal."}
    found = {"id": "found", "type": "RETRIEVER", "output": ["Tin is a metal."]}
    root = {"id": span(1), "type": "SPAN", "output": "Tin is a metal."}
    rows = [
        {"id": trace(number), **asked, "observations": observations}
        for number, observations in enumerate(([found], [root, found]))
    ]
    chat = {"id": "chatcmpl-1", "messages": [{"role": "user", "content": "Is it?"}]}
    files = {"traces.jsonl": rows, "chat.jsonl": [chat | {"response": "It is."}]}
    for name, lines in files.items():
        (tmp_path / name).write_text("".join(f"{json.dumps(one)}\n" for one in lines), "utf-8")
    (tmp_path / "p.yaml").write_text(OF_TRACES, "utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["run", "p.yaml"]) == 0
    return Store(tmp_path / "traced.duckdb")


def test_a_score_without_a_span_is_one_of_its_trace(
    server: TraceServer, of_traces: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    untraced = "1 of 3 samples has no trace id; not sent"
    metrics = ("--metrics", "token_overlap_faithfulness")
    server.answer = langfuse
    assert send(of_traces, "--to", "langfuse", *metrics) == 0
    assert untraced in capsys.readouterr().out
    bodies = [one["body"] for one in server.got[-1].content["batch"]]
    ids = {one["traceId"]: one.get("observationId") for one in bodies}
    assert ids == {trace(0): None, trace(1): span(1)}
    server.answer = lambda _: Said()
    assert send(of_traces, "--to", "otlp", *metrics) == 0
    assert "2 evaluations sent" in capsys.readouterr().out
    ids = {one.trace_id.hex(): one.span_id.hex() for one in records([server.got[-1]])}
    assert ids == {trace(0): "", trace(1): span(1)}
    server.answer = phoenix
    assert send(of_traces, "--to", "phoenix", *metrics) == 0
    printed = capsys.readouterr().out
    assert "1 evaluation sent" in printed
    assert "1 not sent: there is no span, and Phoenix annotates spans only" in printed
    assert [one["span_id"] for one in server.got[-1].content["data"]] == [span(1)]


def test_a_span_that_phoenix_does_not_know_takes_no_other_with_it(
    server: TraceServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, _ = put_many(tmp_path, 9)

    def without_one(got: Got) -> Said:
        if any(one["span_id"] == span(4) for one in got.content["data"]):
            return Said(404, f"Spans with IDs {span(4)} do not exist.".encode())
        return phoenix(got)

    server.answer = without_one
    assert send(store, "--to", "phoenix") == 1
    printed = capsys.readouterr().out
    assert "8 evaluations sent" in printed
    assert (
        f"1 not sent: Phoenix refuses it with 404: Spans with IDs {span(4)} do not exist."
        in printed
    )


def test_a_server_that_refuses_everything_is_left_soon(
    server: TraceServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, _ = put_many(tmp_path, 300)
    server.answer = lambda _: Said(400, b"no such thing")
    assert send(store, "--to", "phoenix") == 2
    why = "the first 20 evaluations are all refused (Phoenix refuses it with 400: no such thing)"
    assert why in capsys.readouterr().err
    assert len(server.got) < 100


def test_a_busy_server_is_asked_again(
    server: TraceServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "_PATIENCE", 20.0)
    store, _ = put_many(tmp_path, 2)
    busy = iter([429, 502, 503, 504])

    def answer(_: Got) -> Said:
        status = next(busy, None)
        return Said(status, b"busy", (("retry-after", "0"),)) if status else Said()

    server.answer = answer
    assert send(store, "--to", "otlp") == 0
    assert len(server.got) == 5
    assert len({one.body for one in server.got}) == 1


@pytest.mark.parametrize("after", ["0", "Thu, 01 Jan 1970 00:00:00 GMT"])
@pytest.mark.parametrize("target", ["otlp", "langfuse"])
def test_a_server_that_names_no_time_to_wait_is_asked_after_pauses(
    target: str, after: str, server: TraceServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "_FIRST_PAUSE", 0.2)
    monkeypatch.setattr(endpoint, "_PATIENCE", 1.0)
    store, _ = put_many(tmp_path, 2)
    server.answer = lambda _: Said(503, b"busy", (("retry-after", after),))
    assert send(store, "--to", target) == 2
    # Pauses of at least 0.1, 0.2, 0.4 and 0.8 s.
    assert len(server.got) <= 4


def test_a_server_that_is_down_is_told_once_before_it_is_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(endpoint, "_PATIENCE", 1.0)
    store, _ = put_many(tmp_path, 2)
    assert send(store, "--to", "otlp") == 2
    (told,) = (one.getMessage() for one in caplog.records if "tried again" in one.getMessage())
    assert told.startswith("OTEL_EXPORTER_OTLP_ENDPOINT (http://127.0.0.1:9): cannot be")
    assert told.endswith("; tried again for 1 s")


def test_records_that_a_collector_refuses_are_told(
    server: TraceServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, _ = put_many(tmp_path, 3)
    partial = {"partialSuccess": {"rejectedLogRecords": "2", "errorMessage": "too\x1b old"}}
    server.answer = lambda _: Said(200, json.dumps(partial).encode())
    assert send(store, "--to", "otlp") == 1
    printed = capsys.readouterr().out
    assert "1 evaluation sent" in printed
    assert "2 not sent: the server refuses records: too" in printed
    assert "\x1b" not in printed
    # Which ones it refused is not known: all are sent again.
    assert sent(store) == 0
    assert send(store, "--to", "otlp") == 1
    assert server.got[0].content == server.got[1].content
    server.answer = lambda _: Said()
    assert send(store, "--to", "otlp") == 0
    assert sent(store) == 3


@pytest.mark.parametrize("body", [b"<html>log in</html>", b"null", b"[1]", b"7"])
def test_a_reply_that_is_no_object_is_no_success(
    body: bytes, server: TraceServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, _ = put_many(tmp_path, 2)
    server.answer = lambda _: Said(200, body)
    assert send(store, "--to", "otlp") == 2
    assert f"replies 200: {body.decode()}" in capsys.readouterr().err
    assert sent(store) == 0
    # OTLP: the reply may be empty.
    server.answer = lambda _: Said(200, b"")
    assert send(store, "--to", "otlp") == 0
    assert sent(store) == 2


def test_phoenix_has_an_id_for_each_annotation(
    server: TraceServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, _ = put_many(tmp_path, 3)
    for stored in ([], [{"id": "n1"}]):
        body = json.dumps({"data": stored}).encode()
        server.answer = lambda _, body=body: Said(200, body)  # type: ignore[misc]
        assert send(store, "--to", "phoenix") == 2
        assert f"replies 200 with {len(stored)} ids for 3 annotations" in capsys.readouterr().err
    assert sent(store) == 0


@pytest.mark.parametrize(
    "said",
    [
        {"errors": [{"id": ["a"], "status": "z"}], "successes": []},
        {"errors": 7, "successes": [{"id": {}}, 7, None, {"id": None}]},
    ],
)
def test_an_event_that_langfuse_does_not_name_is_not_taken(
    said: Any, server: TraceServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, _ = put_many(tmp_path, 2)
    server.answer = lambda _: Said(207, json.dumps(said).encode())
    assert send(store, "--to", "langfuse") == 1
    assert "2 not sent: Langfuse does not say that it took it" in capsys.readouterr().out
    assert sent(store) == 0


@pytest.mark.parametrize("target", ["otlp", "langfuse"])
def test_one_evaluation_that_is_too_large_takes_no_other_with_it(
    target: str, server: TraceServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, _ = put_many(tmp_path, 9)

    def without_one(got: Got) -> Said:
        if trace(4) in json.dumps(got.content):
            return Said(413, b"too much")
        return langfuse(got) if target == "langfuse" else Said()

    server.answer = without_one
    assert send(store, "--to", target) == 1
    printed = capsys.readouterr().out
    assert "8 evaluations sent" in printed
    assert "1 not sent: it is too large for the server: too much" in printed
    assert sent(store) == 8


GZIP = (("content-encoding", "gzip"),)


def test_a_reply_may_be_compressed(server: TraceServer, tmp_path: Path) -> None:
    store, _ = put_many(tmp_path, 2)
    server.answer = lambda _: Said(200, gzip.compress(b'{"partialSuccess": {}}'), GZIP)
    assert send(store, "--to", "otlp") == 0
    assert sent(store) == 2


def test_the_log_has_nothing_of_a_server_that_steers_a_terminal(
    server: TraceServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, run_id = put_many(tmp_path, 2)
    server.answer = lambda _: Said(503, b"\x1b]0;busy\x07")
    with pytest.raises(InputError) as raised:
        list(delivery.send(store, run_id, "otlp"))
    for text in (caplog.text, str(raised.value)):
        assert "replies 503: \u241b]0;busy\u2407" in text
        assert "\x1b" not in text
    partial = {"partialSuccess": {"rejectedLogRecords": "2", "errorMessage": "too\x9b old"}}
    server.answer = lambda _: Said(200, json.dumps(partial, ensure_ascii=False).encode())
    (done,) = delivery.send(store, run_id, "otlp")
    assert done.lines[-1] == "2 not sent: the server refuses records: too\ufffd old"


def drip(handler: BaseHTTPRequestHandler) -> None:
    """A header that never ends."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nx-slow: ")
    for _ in range(200):
        handler.wfile.write(b"a")
        handler.wfile.flush()
        time.sleep(0.02)


def flood(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n")
    for _ in range(100):
        handler.wfile.write(b" " * 1_000_000)


def no_http(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"hello\r\n\r\n")


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (Said(401, f"no {SECRET}".encode()), "replies 401; check its key"),
        (Said(500, b"oops"), "replies 500: oops; send again later"),
        (Said(503, b"busy", (("retry-after", "600"),)), "and asks to wait 600 s"),
        (
            Said(302, b"", (("location", "http://me:x@evil.test:81/x"),)),
            "to http://evil.test:81, and",
        ),
        (Said(200, b"[[[[" * 50_000), "replies 200"),
        (Said(200, b"<html>"), "replies 200: <html>"),
        (Said(200, b'{"successes": 7}'), "replies 200"),
        (Said(500, b"a\x1b[31m\r\n\x9bred"), "replies 500: a\u241b[31m \ufffdred; send"),
        (
            Said(200, gzip.compress(b" " * 2_000_000), GZIP),
            "replies with more than 1,048,576 bytes",
        ),
        (Said(200, gzip.compress(b"{}")[:-4], GZIP), "replies with gzip that is cut off; have it"),
        (Said(200, b"{}", GZIP), "replies with what is not gzip, as it says; have it"),
        (Said(200, b"{}", (("content-encoding", "br"),)), "replies in the encoding 'br'; have it"),
        (Said(raw=drip), "does not reply within 1 s"),
        (Said(raw=flood), "replies with more than 1,048,576 bytes"),
        (Said(raw=no_http), "cannot be reached"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_server_that_fails_is_told_without_keys(
    said: Said,
    message: str,
    server: TraceServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoint, "_ATTEMPT", 1.0)
    store, _ = put_many(tmp_path, 2)
    server.answer = lambda _: said
    assert send(store, "--to", "langfuse") == 2
    error = capsys.readouterr().err
    assert message in error
    assert f"LANGFUSE_HOST ({server.url}): " in error
    assert SECRET not in error
    assert sent(store) == 0


@pytest.mark.parametrize("status", [200, 500, 404])
@pytest.mark.parametrize(
    "said",
    [
        "x" * 190 + SECRET,
        "x" * 791 + SECRET,
        " " * 790 + SECRET,
        "no sk-lf- very-\nsecret",
        "no path-key-1 at all",
    ],
)
def test_a_key_in_a_reply_is_hidden_before_the_reply_is_cut(
    said: str,
    status: int,
    server: TraceServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, _ = put_many(tmp_path, 1)
    monkeypatch.setenv("LANGFUSE_HOST", f"{server.url}/path-key-1")
    for body in (said, json.dumps([said])):
        server.answer = lambda _, body=body: Said(status, body.encode())  # type: ignore[misc]
        assert send(store, "--to", "langfuse") == 2
        error = capsys.readouterr().err
        for part in ("sk-l", "very", "secret", "path-key"):
            assert part not in error


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ("Content-Length=5", "gives the header 'content-length', which claimflow sets itself"),
        ("a=1,HOST=elsewhere", "gives the header 'host', which claimflow sets itself"),
        ("Transfer-Encoding=chunked", "'transfer-encoding', which claimflow sets itself"),
        ("Content-Type=text/plain", "'content-type', which claimflow sets itself"),
        ("Bearer hush-1=1", "gives a header whose name has a sign that no name can have"),
        ("=hush", "gives a header whose name has a sign that no name can have"),
        ("x-key=hush%0Ahush", "gives the header 'x-key' a value with a sign that none can have"),
        ("x-key=%20hush", "gives the header 'x-key' a value with a sign that none can have"),
    ],
)
def test_headers_that_cannot_be_sent_are_told_without_their_values(
    headers: str,
    message: str,
    server: TraceServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, _ = put_many(tmp_path, 1)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", headers)
    assert send(store, "--to", "otlp") == 2
    error = capsys.readouterr().err
    assert message in error
    assert "hush" not in error
    assert server.got == []


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("LANGFUSE_HOST", "", "LANGFUSE_HOST: is not set"),
        ("LANGFUSE_SECRET_KEY", "", "LANGFUSE_SECRET_KEY: is not set"),
        ("LANGFUSE_HOST", "ftp://host", "LANGFUSE_HOST: is no address"),
        ("LANGFUSE_HOST", "http://me:hush@host", "LANGFUSE_HOST: has a user or a key in it"),
        ("LANGFUSE_HOST", "http://[::1", "LANGFUSE_HOST: is no address"),
    ],
)
def test_an_environment_that_lacks_something_is_told(
    variable: str,
    value: str,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, _ = put_many(tmp_path, 1)
    monkeypatch.setenv(variable, value)
    assert send(store, "--to", "langfuse") == 2
    error = capsys.readouterr().err
    assert message in error
    assert "hush" not in error


@pytest.mark.parametrize(
    ("target", "variable", "given", "posted"),
    [
        ("phoenix", "PHOENIX_COLLECTOR_ENDPOINT", "/", "/v1/span_annotations?sync=true"),
        ("phoenix", "PHOENIX_COLLECTOR_ENDPOINT", "/v1/traces", "/v1/span_annotations?sync=true"),
        ("phoenix", "PHOENIX_COLLECTOR_ENDPOINT", "/s/a/v1/traces/", "/s/a/v1/span_annotations?"),
        ("phoenix", "PHOENIX_COLLECTOR_ENDPOINT", "?a=1", "/v1/span_annotations?a=1&sync=true"),
        ("otlp", "OTEL_EXPORTER_OTLP_ENDPOINT", "/", "/v1/logs"),
        ("otlp", "OTEL_EXPORTER_OTLP_ENDPOINT", "/v1/traces", "/v1/logs"),
        ("otlp", "OTEL_EXPORTER_OTLP_ENDPOINT", "/otlp/", "/otlp/v1/logs"),
        ("otlp", "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "/own/logs", "/own/logs"),
        ("langfuse", "LANGFUSE_HOST", "/", "/api/public/ingestion"),
        ("langfuse", "LANGFUSE_HOST", "/lf/api/public/otel/", "/lf/api/public/ingestion"),
        ("langfuse", "LANGFUSE_HOST", "/api/public", "/api/public/ingestion"),
    ],
)
def test_an_address_may_end_in_a_slash_or_in_a_path_of_its_server(
    target: str,
    variable: str,
    given: str,
    posted: str,
    server: TraceServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, _ = put_many(tmp_path, 1)
    monkeypatch.setenv(variable, server.url + given)
    server.answer = {"otlp": lambda _: Said(), "langfuse": langfuse, "phoenix": phoenix}[target]
    assert send(store, "--to", target) == 0
    (request,) = server.got
    assert request.path.startswith(posted)


def test_unknown_targets_and_metrics_are_answered_with_the_nearest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, _ = put_many(tmp_path, 1)
    assert send(store, "--to", "langfus") == 2
    assert "did you mean 'langfuse'?" in capsys.readouterr().err
    assert send(store, "--to", "otlp", "--metrics", "faithfulnes") == 2
    assert "did you mean 'faithfulness'?" in capsys.readouterr().err


def sendings(store: Store) -> list[tuple[str, list[str], bool]]:
    """The sendings in the store: target, metrics, and whether it ended."""
    with store.reading() as connection:
        return connection.execute(
            "SELECT target, metrics, ended_at IS NOT NULL FROM audit.sendings"
        ).fetchall()


@pytest.mark.parametrize(
    ("options", "unset"),
    [
        (("--to", "otlp", "--metrics", "faithfullness"), ""),
        (("--to", "foo"), ""),
        (("--to", "otlp"), "OTEL_EXPORTER_OTLP_ENDPOINT"),
        (("--to", "mlflow"), ""),
    ],
)
def test_a_sending_that_cannot_be_is_not_stored(
    options: tuple[str, ...], unset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, run_id = put_many(tmp_path, 2)
    if unset:
        monkeypatch.delenv(unset)
    assert send(store, *options) == 2
    assert sendings(store) == []
    done = Sending(run_id, options[1], ())
    begin_sending(store, done)
    end_sending(store, done)
    assert send(store, *options) == 2
    assert sendings(store) == [(options[1], [], True)]


def test_an_ended_sending_stays_so_unless_there_is_something_new(
    server: TraceServer, tmp_path: Path
) -> None:
    store, _ = put_many(tmp_path, 2)
    assert send(store, "--to", "otlp") == 0
    assert send(store, "--to", "otlp", "--metrics", "faithfulness") == 0
    assert sendings(store) == [("otlp", [], True)]
    server.answer = lambda _: Said(500)
    assert send(store, "--to", "otlp", "--again") == 2
    assert sendings(store) == [("otlp", [], False)]


def test_an_earlier_sending_of_an_unknown_metric_is_skipped(
    server: TraceServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, first = put_many(tmp_path, 2)
    begin_sending(store, Sending(first, "otlp", ("faithfullness",)))
    _, second = put_many(tmp_path, 2)
    assert send(store, "--to", "otlp") == 0
    printed = capsys.readouterr().out
    assert f"otlp: run {first}: skipped: --metrics: no step makes the metric" in printed
    assert f"otlp: run {second}: 2 evaluations sent" in printed


KILLED = """
import sys
from claimflow.flows.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_sending_that_is_killed_goes_on_where_it_was(server: TraceServer, tmp_path: Path) -> None:
    store, _ = put_many(tmp_path, 1_200)
    pause: list[subprocess.Popen[bytes]] = []

    def answer(_: Got) -> Said:
        # The third request is never answered: its process is killed.
        if len(server.got) == 3:
            pause[0].send_signal(signal.SIGKILL)
            time.sleep(0.5)
        return Said()

    server.answer = answer
    command = ["send", "--to", "otlp", "--store", str(store.path)]
    pause.append(subprocess.Popen([sys.executable, "-c", KILLED, *command]))
    assert pause[0].wait(60) == -signal.SIGKILL
    assert sent(store) == 1_000
    assert send(store, "--to", "otlp") == 0
    names = [attributes(one)["claimflow.sample_id"] for one in records(server.got)]
    assert set(names) == {f"s{number:04}" for number in range(1_200)}
    assert len(names) - len(set(names)) <= 500
    ids = [attributes(one)["claimflow.evaluation.id"] for one in records(server.got)]
    assert len(set(ids)) == 1_200


def test_two_sendings_at_once_send_once(
    server: TraceServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, run_id = put_many(tmp_path, 1_200)

    def answer(_: Got) -> Said:
        time.sleep(0.3)
        return Said()

    server.answer = answer
    command = [sys.executable, "-c", KILLED, "send", "--to", "otlp", "--store", str(store.path)]
    both = [subprocess.Popen(command) for _ in range(2)]
    assert [one.wait(60) for one in both] == [0, 0]
    assert len(records(server.got)) == 1_200
    assert not list(tmp_path.glob("*.sending"))
    # A sending that does not end in time is told.
    monkeypatch.setattr(delivery, "_PATIENCE", 0.1)
    first = delivery.send(store, run_id, "otlp")
    next(first)
    assert send(store, "--to", "otlp") == 2
    assert "another process sends from this store to otlp" in capsys.readouterr().err
    first.close()  # type: ignore[attr-defined]
    assert send(store, "--to", "otlp") == 0


def test_what_an_earlier_run_could_not_send_is_sent_with_the_newest(
    server: TraceServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, first = put_many(tmp_path, 2)
    server.answer = lambda _: Said(500)
    assert send(store, "--to", "otlp") == 2
    _, second = put_many(tmp_path, 2)
    _, other = put_many(tmp_path, 2, pipeline="other")
    server.answer = lambda _: Said()
    capsys.readouterr()
    assert send(store, other, "--to", "otlp") == 0
    assert first not in capsys.readouterr().out
    _, third = put_many(tmp_path, 2)
    assert send(store, "--to", "otlp") == 0
    printed = capsys.readouterr().out
    assert f"run {first}: 2 evaluations sent" in printed
    assert f"run {third}: 2 evaluations sent" in printed
    # It was never asked for.
    assert second not in printed


def test_records_of_a_run_that_is_removed_go_with_it(server: TraceServer, tmp_path: Path) -> None:
    store, _ = put_many(tmp_path, 2)
    assert send(store, "--to", "otlp") == 0
    put_many(tmp_path, 2)
    assert main(["prune", "--store", str(store.path), "--keep-runs", "1"]) == 0
    assert sent(store) == 0
    assert main(["verify", "--store", str(store.path)]) == 0


class Listed:
    """A target of another package."""

    largest = 2

    def __init__(self) -> None:
        self.given: list[int] = GIVEN

    def unfit(self, evaluation: Any) -> str | None:
        return None

    def lines(self, evaluations: Any) -> list[Any]:
        return [one.sample_id for one in evaluations]

    def address(self) -> str:
        return "memory"

    def send(self, evaluations: Any) -> Any:
        from claimflow.flows.sending.targets import Answer

        self.given.append(len(evaluations))
        return Answer()

    def close(self) -> None:
        self.given.append(-1)


GIVEN: list[int] = []


def test_a_package_can_add_a_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from claimflow.flows.sending import targets

    names: Callable[[str], set[str]] = lambda group: (  # noqa: E731
        {"listed"} if group == "claimflow.targets" else set()
    )
    monkeypatch.setattr(schedules, "entry_point_names", names)
    monkeypatch.setattr(targets, "load_entry_point", lambda group, name: Listed)
    store, _ = put_many(tmp_path, 5)
    assert send(store, "--to", "listed") == 0
    assert GIVEN == [2, 2, 1, -1]
