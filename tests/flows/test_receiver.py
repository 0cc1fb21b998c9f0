"""`claimflow receive`: what is answered 200 is on the disk, and whatever comes is bounded."""

import gzip
import json
import math
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from claimflow.flows.cli.main import main
from claimflow.flows.errors import InputError
from claimflow.flows.traces import protobuf, received, receiver
from claimflow.flows.traces.reader import read_traces
from claimflow.flows.traces.received import NotStoredError, ReceivedFolder
from claimflow.flows.traces.receiver import Receiver
from tests.flows.receiving import (
    JSON,
    PROTOBUF,
    SECONDS,
    export,
    json_export,
    json_span,
    post,
    receiver_process,
    receiving,
    trace_id,
)

GZIP = gzip.compress(b"{}", mtime=0)
TOKEN = "a token of the tests"


def make_parts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """End each segment after one request, and make its part soon."""
    monkeypatch.setattr(received, "SEGMENT_BYTES", 10)
    monkeypatch.setattr(received, "_PAUSE", 0.02)


def stored(folder: Path) -> list[str]:
    """The ids of the samples in a folder, as a pipeline reads it; none of them twice."""
    source = read_traces([f"{folder.name}/*"], base=folder.parent).samples
    assert source.faults == ()
    found = [row["sample_id"] for shard in source.shards(500) for row in shard.to_dicts()]
    assert len(found) == len(set(found))
    return sorted(found)


def ids(numbers: Sequence[int] | range) -> list[str]:
    return sorted(map(trace_id, numbers))


def wait_for(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jsonl"))


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.parquet"))


@pytest.mark.parametrize("compressed", [False, True])
def test_protobuf_and_json_are_stored_before_the_answer(compressed: bool, tmp_path: Path) -> None:
    pack = gzip.compress if compressed else bytes
    headers = {"Content_Encoding": "gzip"} if compressed else {}
    with receiving(tmp_path / "in") as server:
        message = export(range(3)).SerializeToString()
        answer = post(server.url, pack(message), **headers)
        assert (answer.status, answer.body) == (200, b"")
        assert answer.headers["Content-Type"] == PROTOBUF
        assert stored(tmp_path / "in") == ids(range(3))
        document = protobuf.decode("traces", export([3]).SerializeToString())
        answer = post(server.url, pack(json.dumps(document).encode()), JSON, **headers)
        assert (answer.status, json.loads(answer.body)) == (200, {})
        assert stored(tmp_path / "in") == ids(range(4))
    assert stored(tmp_path / "in") == ids(range(4))


def test_a_body_may_come_in_chunks(tmp_path: Path) -> None:
    message = export(range(2)).SerializeToString()
    blocks = [message[:100], message[100:]]
    with receiving(tmp_path / "in") as server:
        assert post(server.url, iter(blocks)).status == 200
    assert stored(tmp_path / "in") == ids(range(2))


def test_events_are_stored_and_other_logs_dropped(tmp_path: Path) -> None:
    question = {"stringValue": json.dumps([{"role": "user", "content": "Is it?"}])}
    answer = {"stringValue": json.dumps([{"role": "assistant", "content": "It is."}])}
    details = {
        "eventName": "gen_ai.client.inference.operation.details",
        "attributes": [
            {"key": "gen_ai.input.messages", "value": question},
            {"key": "gen_ai.output.messages", "value": answer},
        ],
    }
    records = [json_span(0, **details), json_span(1, body={"stringValue": "started"}), details]
    body = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}).encode()
    with receiving(tmp_path / "in") as server:
        post(server.url, json_export(json_span(0)), JSON)
        found = post(server.url, body, JSON, path="/v1/logs")
    assert json.loads(found.body)["partialSuccess"]["rejectedLogRecords"] == "1"
    assert server.counts == {"traces": 1, "logs": 1}
    assert stored(tmp_path / "in") == ids([0])


def test_spans_without_ids_are_rejected_and_the_others_stored(tmp_path: Path) -> None:
    request = export(range(3))
    request.resource_spans[0].scope_spans[0].spans[1].trace_id = b""
    request.resource_spans[0].scope_spans[0].spans[2].span_id = bytes(8)
    with receiving(tmp_path / "in") as server:
        answer = post(server.url, request.SerializeToString())
    partial = ExportTraceServiceResponse.FromString(answer.body).partial_success
    assert (partial.rejected_spans, partial.error_message) == (
        2,
        "spans without a valid trace id and span id",
    )
    assert stored(tmp_path / "in") == ids([0])


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"[]", {}, 400),
        (b'{"resourceSpans": 1}', {}, 400),
        (b'{"resourceSpans": [1]}', {}, 400),
        (b'{"resourceSpans": [{"scopeSpans": [{"spans": [1]}]}]}', {}, 400),
        (b'{"resourceSpans": [NaN]}', {}, 400),
        (b'{"resourceSpans": [{"resource": NaN, "scopeSpans": [{"spans": [%s]}]}]}'
         % json.dumps(json_span(0)).encode(), {}, 400),
        (b"[" * 100_000, {}, 400),
        (b"\xff", {}, 400),
        (b"\xff", {"Content_Type": PROTOBUF}, 400),
        (b"plain", {"Content_Encoding": "gzip"}, 400),
        (GZIP[:-9], {"Content_Encoding": "gzip"}, 400),
        (GZIP + b"more", {"Content_Encoding": "gzip"}, 400),
        (GZIP + GZIP[:-1], {"Content_Encoding": "gzip"}, 400),
        (GZIP * 65, {"Content_Encoding": "gzip"}, 400),
        (b"{}", {"Content_Encoding": "zstd"}, 415),
        (b"{}", {"Content_Type": "text/plain"}, 415),
        (b"{}", {"path": "/v1/metrics"}, 404),
        (b"{}", {"Host": "rebound.example:4318"}, 421),
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_taken_is_refused(
    body: bytes, headers: dict[str, str], status: int, tmp_path: Path
) -> None:
    kind = headers.pop("Content_Type", JSON)
    with receiving(tmp_path / "in") as server:
        answer = post(server.url, body, kind, **headers)
        assert answer.status == status
        if kind == JSON:
            assert json.loads(answer.body)["message"]
        assert post(server.url, json_export(json_span(0)), JSON).status == 200


@pytest.mark.parametrize("signal", ["traces", "logs"])
@pytest.mark.parametrize(
    "value", [b"NaN", b"-Infinity", b"1e999", b"-1e999", b"9" * 5_000, b"9" * 10_000, rb'"\ud800"']
)
def test_a_member_that_json_cannot_hold_takes_no_other_with_it(
    value: bytes, signal: str, tmp_path: Path
) -> None:
    texts = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "Is it é😀?"}]}])
    said = texts.replace("user", "assistant")
    parts_ = {"operation.name": "chat", "input.messages": texts, "output.messages": said}
    attributes = [
        {"key": f"gen_ai.{name}", "value": {"stringValue": text}} for name, text in parts_.items()
    ]
    more = {"eventName": "gen_ai.client.inference.operation.details", "attributes": attributes}
    spans = [json_span(number, **more) for number in range(3)]
    spans[1]["flags"] = "here"
    del spans[2]["spanId"]
    names = ("resourceSpans", "scopeSpans", "spans", "rejectedSpans")
    if signal == "logs":
        names = ("resourceLogs", "scopeLogs", "logRecords", "rejectedLogRecords")
    document = {names[0]: [{names[1]: [{names[2]: spans}]}]}
    body = json.dumps(document).encode().replace(b'"here"', value)
    with receiving(tmp_path / "in") as server:
        answer = post(server.url, body, JSON, path=f"/v1/{signal}")
        if signal == "logs":
            # The span that the event belongs to.
            post(server.url, json_export(json_span(0)), JSON)
    assert answer.status == 200
    kind = "spans" if signal == "traces" else "events"
    assert json.loads(answer.body)["partialSuccess"] == {
        names[3]: "2",
        "errorMessage": f"{kind} without a valid trace id and span id, "
        f"{kind} with a number or a text that JSON cannot hold",
    }
    assert stored(tmp_path / "in") == ids([0])


@pytest.mark.parametrize("kind", [JSON, PROTOBUF])
@pytest.mark.parametrize("signal", ["traces", "logs"])
def test_an_export_to_the_path_of_the_other_kind_is_told_the_right_one(
    signal: str, kind: str, tmp_path: Path
) -> None:
    record = {"timeUnixNano": "5", "body": {"stringValue": "started"}, "severityText": "INFO"}
    if signal == "traces":
        message: Any = export(range(2))
        body = json_export(json_span(0))
    else:
        message = ExportLogsServiceRequest()
        body = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}).encode()
        json_format.Parse(body, message)
    if kind == PROTOBUF:
        body = message.SerializeToString()
    right, wrong = ("/v1/traces", "/v1/logs")[:: 1 if signal == "traces" else -1]
    with receiving(tmp_path / "in") as server:
        answer = post(server.url, body, kind, path=wrong)
        assert answer.status == 400
        assert f"the body is an export of {signal}: send it to {right}".encode() in answer.body
        assert post(server.url, body, kind, path=right).status == 200


def test_a_gzip_body_may_have_members(tmp_path: Path) -> None:
    message = export(range(2)).SerializeToString()
    body = gzip.compress(message[:100]) + gzip.compress(message[100:]) + bytes(8)
    with receiving(tmp_path / "in") as server:
        assert post(server.url, body, Content_Encoding="gzip").status == 200
    assert stored(tmp_path / "in") == ids(range(2))


@pytest.mark.parametrize(("lengths", "status"), [(("{}", "{}"), 200), (("{}", "2"), 400)])
def test_lengths_that_differ_are_refused(
    lengths: tuple[str, str], status: int, tmp_path: Path
) -> None:
    body = json_export(json_span(0))
    with receiving(tmp_path / "in") as server:
        host, port = urlsplit(server.url).netloc.split(":")
        more = "".join(f"Content-Length: {length.format(len(body))}\r\n" for length in lengths)
        head = f"POST /v1/traces HTTP/1.1\r\nHost: LOCALHOST:{port}\r\nContent-Type: {JSON}\r\n"
        with socket.create_connection((host, port), SECONDS) as client:
            client.sendall(f"{head}{more}\r\n".encode() + body)
            assert client.recv(999).startswith(f"HTTP/1.1 {status} ".encode())


def test_doubles_without_a_number_are_stored_as_texts(tmp_path: Path) -> None:
    request = export([0])
    span = request.resource_spans[0].scope_spans[0].spans[0]
    for number in (math.nan, math.inf, -math.inf):
        span.attributes.add(key=str(number)).value.double_value = number
    with receiving(tmp_path / "in") as server:
        assert post(server.url, request.SerializeToString()).status == 200
    assert stored(tmp_path / "in") == ids([0])


@given(body=st.binary(max_size=200) | st.text(max_size=99).map(str.encode))
def test_no_body_is_an_error_of_the_receiver(body: bytes) -> None:
    for document in (protobuf.decode("traces", body), receiver._decoded_json(body)):
        if isinstance(document, dict):
            for kind in ("traces", "logs"):
                with suppress(receiver._RefusedError):
                    receiver._export(kind, document)  # type: ignore[arg-type]


def test_a_body_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, "BODY_BYTES", 50_000)
    bomb = gzip.compress(b" " * 9_000_000)
    assert len(bomb) < 50_000
    with receiving(tmp_path / "in") as server:
        assert post(server.url, bomb, JSON, Content_Encoding="gzip").status == 413
        # The answer is read by a client that goes on sending.
        assert post(server.url, b" " * 30_000_000, JSON).status == 413
        blocks = iter([b" " * 30_000, b" " * 30_000])
        assert post(server.url, blocks, JSON).status == 413


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"\x0a\0" * 600_000, PROTOBUF, 413),
        # Behind an unknown group; scopes of one resource.
        (b"\x13\x14" + b"\x0a\0" * 600_000, PROTOBUF, 413),
        (b"\x0a\x80\x9f\x49" + b"\x12\0" * 600_000, PROTOBUF, 413),
        (b'{"resourceSpans": [' + b"{}," * 600_000 + b"{}]}", JSON, 413),
        (b'{"resourceSpans": [' + b"[]," * 600_000 + b"{}]}", JSON, 413),
        (json_export(json_span(0, text="{[" * 400_000)), JSON, 200),
        (json_export(json_span(0, text='"\\{' * 600_000)), JSON, 200),
        (export([0], text="\n\n" * 600_000).SerializeToString(), PROTOBUF, 200),
    ],
    ids=range(8),
)
def test_many_tiny_objects_are_refused(body: bytes, kind: str, status: int, tmp_path: Path) -> None:
    with receiving(tmp_path / "in") as server:
        assert post(server.url, body, kind).status == status


def test_an_exporter_is_told_to_come_back_when_there_is_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiving(tmp_path / "in") as server:
        monkeypatch.setattr(received, "WAITING_BYTES", 1_000)
        server.folder.reserve(990)
        answer = post(server.url, json_export(json_span(0)), JSON)
        assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
        server.folder.release(990)
        assert post(server.url, json_export(json_span(0)), JSON).status == 200


def test_slow_clients_are_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "REQUEST_SECONDS", 0.3)
    monkeypatch.setattr(receiver, "IDLE_SECONDS", 0.3)
    head = b"POST /v1/traces HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
    with receiving(tmp_path / "in") as server:
        host = urlsplit(server.url).netloc
        for start in (b"", b"POST", head % host.encode() + b"Content-Length: 99\r\n\r\n{"):
            with socket.create_connection(host.split(":"), SECONDS) as client:
                client.sendall(start)
                told = b"".join(iter(lambda client=client: client.recv(999), b""))
                assert told.startswith(b"HTTP/1.1 408" if start.endswith(b"{") else b"")


def test_connections_that_wait_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "_CONNECTIONS", 3)
    with receiving(tmp_path / "in") as server, ExitStack() as stack:
        address = urlsplit(server.url).netloc.split(":")
        clients = [
            stack.enter_context(socket.create_connection(address, SECONDS)) for _ in range(3)
        ]
        # Half a head is no request.
        clients[0].sendall(b"POST /v1/traces HTTP/1.1\r\n")
        assert post(server.url, json_export(json_span(0)), JSON).status == 200
        assert clients[0].recv(99) == b""
        clients[1].settimeout(0.05)
        with pytest.raises(TimeoutError):
            clients[1].recv(99)


def test_a_connection_is_refused_when_all_others_are_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, "_CONNECTIONS", 1)
    with receiving(tmp_path / "in") as server:
        host = urlsplit(server.url).netloc
        head = f"POST /v1/traces HTTP/1.1\r\nHost: {host}\r\nContent-Type: {JSON}\r\n"
        with socket.create_connection(host.split(":"), SECONDS) as client:
            client.sendall(f"{head}Content-Length: 9\r\n\r\n".encode())
            wait_for(lambda: server._answering)
            with socket.create_connection(host.split(":"), SECONDS) as other:
                assert other.recv(999).startswith(b"HTTP/1.1 503 ")


def test_bytes_that_drip_do_not_prolong_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, "REQUEST_SECONDS", 0.5)
    with receiving(tmp_path / "in") as server:

        def drip() -> Iterator[bytes]:
            for _ in range(100):
                time.sleep(0.05)
                yield b" "

        with pytest.raises(OSError, match=r"."):
            post(server.url, drip(), JSON)


def test_other_machines_need_a_token(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match="CLAIMFLOW_RECEIVE_TOKEN"),
        receiving(tmp_path / "in", host="0.0.0.0"),
    ):
        pass
    with receiving(tmp_path / "in", host="0.0.0.0", token=TOKEN) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        body = json_export(json_span(0))
        assert post(url, body, JSON).status == 401
        assert post(url, body, JSON, Authorization="Bearer other").status == 401
        assert post(url, body, JSON, Authorization=f"Basic {TOKEN}").status == 401
        for scheme in ("Bearer", "bearer", "BEARER"):
            assert post(url, body, JSON, Authorization=f"{scheme} {TOKEN}").status == 200


def test_a_folder_has_one_receiver(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with receiving(tmp_path / "in"):
        assert main(["receive", str(tmp_path / "in"), "--port", "0"]) == 2
        assert "another receiver writes here" in capsys.readouterr().err
    with receiving(tmp_path / "in"):
        pass


def test_many_senders_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(received, "SEGMENT_BYTES", 20_000)
    monkeypatch.setattr(received, "_PAUSE", 0.02)

    def send(first: int) -> None:
        for number in range(first, first + 20):
            assert post(server.url, export([number]).SerializeToString()).status == 200

    with receiving(tmp_path / "in") as server:
        senders = [threading.Thread(target=send, args=(at,)) for at in range(0, 160, 20)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        wait_for(lambda: parts(tmp_path / "in"))
        assert stored(tmp_path / "in") == ids(range(160))


def test_requests_wait_for_one_fsync_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs: list[int] = []
    first, go_on = threading.Event(), threading.Event()

    def sync(file: int) -> None:
        syncs.append(file)
        first.set()
        assert go_on.wait(SECONDS)

    monkeypatch.setattr(os, "fsync", sync)
    answers: list[int] = []
    with receiving(tmp_path / "in") as server:

        def send(number: int) -> None:
            answers.append(post(server.url, export([number]).SerializeToString()).status)

        senders = [threading.Thread(target=send, args=(number,)) for number in range(6)]
        senders[0].start()
        assert first.wait(SECONDS)
        for sender in senders[1:]:
            sender.start()
        wait_for(lambda: len(server.folder._queue) == 5)
        assert answers == []
        go_on.set()
        for sender in senders:
            sender.join()
    assert answers == [200] * 6
    # One for the name of the segment, one for the first request, one for the others.
    assert len(syncs) == 3


def test_a_full_segment_becomes_a_part_and_goes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "in"
    make_parts_at_once(monkeypatch)
    with receiving(folder) as server:
        post(server.url, export([0]).SerializeToString())
        wait_for(lambda: parts(folder))
        # Both stand there for a while, and nothing is read twice.
        assert len(segments(folder)) == 1
        assert stored(folder) == ids([0])
        monkeypatch.setattr(received, "_KEPT_SECONDS", 0.0)
        wait_for(lambda: not segments(folder))
        assert stored(folder) == ids([0])


def test_an_old_segment_becomes_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(received, "SEGMENT_SECONDS", 0.0)
    monkeypatch.setattr(received, "_PAUSE", 0.02)
    with receiving(tmp_path / "in") as server:
        post(server.url, export([0]).SerializeToString())
        wait_for(lambda: parts(tmp_path / "in"))


def test_half_a_line_of_a_killed_receiver_goes_later(tmp_path: Path) -> None:
    half = tmp_path / "received-20260101T000000.000000-0001.jsonl"
    half.write_text('{"resourceSpans": [', "utf-8")
    with receiving(tmp_path) as server:
        server.folder.tidy()
        assert half.exists()
        os.utime(half, (0, 0))
        server.folder.tidy()
        assert not half.exists()
    assert not parts(tmp_path)


def test_what_a_killed_receiver_left_is_recovered(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in (1, 2):
        name = f"received-20260101T000000.000000-{number:04}"
        document = json.dumps(protobuf.decode("traces", export([number]).SerializeToString()))
        # The last line was being written.
        (folder / f"{name}.jsonl").write_text(f"{document}\n{document[:99]}", "utf-8")
    (folder / f".{name}.parquet.unfinished").write_bytes(b"half a file")
    with receiving(folder):
        wait_for(lambda: len(parts(folder)) == 2)
    assert stored(folder) == ids([1, 2])
    assert not [*folder.glob(".*unfinished")]


def test_files_of_others_and_lines_without_an_end_stay(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    document = json.dumps(protobuf.decode("traces", export([1, 2]).SerializeToString()))
    own = "received-20260101T000000.000000"
    left = {
        "received-mine.jsonl": document,
        ".mine.unfinished": "half",
        f"{own}-0001.jsonl": document[:99],
        f"{own}-0002.jsonl": "",
        f"{own}-0003.jsonl": document,
    }
    for name, text in left.items():
        (folder / name).write_text(text, "utf-8")
    with receiving(folder):
        wait_for(lambda: parts(folder) and not (folder / f"{own}-0002.jsonl").exists())
    del left[f"{own}-0002.jsonl"]
    assert {name: (folder / name).read_text("utf-8") for name in left} == left
    assert [path.stem for path in parts(folder)] == [f"{own}-0003"]
    (folder / f"{own}-0001.jsonl").unlink()
    assert stored(folder) == ids([1, 2])


def test_what_is_no_regular_file_is_left_alone_and_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, outside = tmp_path / "in", tmp_path / "outside.jsonl"
    folder.mkdir()
    document = json.dumps(protobuf.decode("traces", export([1]).SerializeToString())) + "\n"
    outside.write_text(document, "utf-8")
    own = "received-20260101T000000.000000"
    pipe, link, zeros, entry, fine, old, blocked = (
        folder / f"{own}-{number:04}.jsonl" for number in range(7)
    )
    os.mkfifo(pipe)
    link.symlink_to(outside)
    zeros.symlink_to("/dev/zero")
    entry.mkdir()
    for segment in (fine, blocked):
        segment.write_text(document, "utf-8")
    # Names of parts that are folders, and a link.
    blocked.with_suffix(".parquet").mkdir()
    (folder / f".{own}-0008.parquet.unfinished").mkdir()
    (folder / f".{own}-0009.parquet.unfinished").symlink_to(outside)
    old_part = old.with_suffix(".parquet")
    old_part.touch()
    os.utime(old_part, (0, 0))
    before = {path.name for path in folder.iterdir()} - {old_part.name}
    with receiving(folder, keep=timedelta(days=7)):
        wait_for(lambda: fine.with_suffix(".parquet").exists() and not old_part.exists())
    found = {path.name for path in folder.iterdir()} - {".receiving"}
    assert found == before | {fine.with_suffix(".parquet").name}
    assert outside.read_text("utf-8") == document
    told = capsys.readouterr().err.splitlines()
    left = "is no regular file, and so none of a receiver: it is left alone"
    for path in (pipe, link, zeros, entry, blocked.with_suffix(".parquet")):
        assert told.count(f"claimflow: {path}: {left}") == 1
    assert len(told) == len(set(told)) == 7


def test_a_segment_without_a_part_stops_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    document = json.dumps(protobuf.decode("traces", export([1]).SerializeToString())) + "\n"
    first, second = (
        folder / f"received-20260101T000000.000000-{number:04}.jsonl" for number in (1, 2)
    )
    for segment in (first, second):
        segment.write_text(document, "utf-8")
    (folder / f".{first.stem}.parquet.unfinished").mkdir()
    with receiving(folder) as server:
        wait_for(second.with_suffix(".parquet").exists)
        server.folder.tidy()
        server.folder.tidy()
    assert [part.stem for part in parts(folder)] == [second.stem]
    assert first.exists()
    assert capsys.readouterr().err.count(f"{first}: is left as it is for now") == 1


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_a_lock_that_is_no_regular_file_is_refused(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    lock = folder / ".receiving"
    if kind == "pipe":
        os.mkfifo(lock)
    elif kind == "link":
        lock.symlink_to(tmp_path / "elsewhere")
    else:
        lock.mkdir()
    assert main(["receive", str(folder), "--port", "0"]) == 2
    assert f"{folder}: .receiving is no regular file; remove it" in capsys.readouterr().err
    assert not (tmp_path / "elsewhere").exists()


def test_other_users_cannot_read_what_is_received(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "in"
    make_parts_at_once(monkeypatch)
    with receiving(folder) as server:
        assert post(server.url, export([0]).SerializeToString()).status == 200
        wait_for(lambda: parts(folder))
        modes = {path.suffix: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert modes[".jsonl"] == modes[".parquet"] == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700


def test_an_address_is_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in (["receive", "s3://a/b"], ["send", "--to", "otlp", "--file", "s3://a/b"]):
        with pytest.raises(SystemExit) as exit_:
            main(command)
        assert exit_.value.code == 2
        assert "must be a path on this machine, not an address" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", ["write", "fsync"])
def test_a_full_disk_is_told_and_loses_nothing(
    where: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "in"
    with receiving(folder) as server:
        assert post(server.url, export([0]).SerializeToString()).status == 200

        def full(file: Any, content: bytes = b"") -> None:
            if content:
                file.write(content[: len(content) // 2])
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            if where == "write":
                patch.setattr(received, "_write_all", full)
            else:
                patch.setattr(os, "fsync", full)
            for _ in range(3):
                answer = post(server.url, export([1]).SerializeToString())
                assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
                # No refused request leaves a segment behind.
                assert len(segments(folder)) == 1
        for _ in range(2):
            assert post(server.url, export([1, 2]).SerializeToString()).status == 200
    assert capsys.readouterr().err.splitlines() == [
        f"claimflow: {folder}: requests are refused until this is mended: the disk is full",
        f"claimflow: {folder}: requests are taken again",
    ]
    assert stored(tmp_path / "in") == ids(range(3))
    # Half a line of the failed write would be told as damaged.
    assert read_traces(["in/*"], base=tmp_path).samples.warnings == ()


def test_a_segment_whose_name_is_not_on_the_disk_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path) -> None:
        raise OSError(5, "Input/output error")

    with receiving(tmp_path / "in") as server:
        with monkeypatch.context() as patch:
            patch.setattr(received, "_sync_folder", fail)
            assert post(server.url, export([0]).SerializeToString()).status == 503
        assert server.folder._segment is None
        assert segments(tmp_path / "in") == []
        assert post(server.url, export([0]).SerializeToString()).status == 200


@pytest.mark.parametrize("change", ["remove", "replace", "truncate", "cut", "extend"])
def test_a_segment_that_others_change_loses_nothing_later(change: str, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    with receiving(folder) as server:
        assert post(server.url, export([0]).SerializeToString()).status == 200
        (segment,) = segments(folder)
        match change:
            case "remove":
                segment.unlink()
            case "replace":
                segment.unlink()
                segment.touch()
            case "truncate" | "cut":
                os.truncate(segment, 0 if change == "truncate" else 50)
            case _:
                with segment.open("ab") as file:
                    file.write(b"half a line")
        assert post(server.url, export([1]).SerializeToString()).status == 200
        (found,) = [one for one in segments(folder) if trace_id(1) in one.read_text("utf-8")]
        source = read_traces([f"in/{found.name}"], base=tmp_path).samples
        assert (source.faults, source.warnings) == ((), ())


@pytest.mark.parametrize("change", ["remove", "truncate"])
def test_a_segment_that_is_changed_while_it_is_written_is_written_again(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "in"
    changed: list[Path] = []
    write_all = received._write_all

    def write(file: Any, content: bytes) -> None:
        if not changed:
            changed.extend(segments(folder))
            if change == "remove":
                changed[0].unlink()
            else:
                os.truncate(changed[0], 0)
        write_all(file, content)

    with receiving(folder) as server:
        assert post(server.url, export([0]).SerializeToString()).status == 200
        monkeypatch.setattr(received, "_write_all", write)
        assert post(server.url, export([1]).SerializeToString()).status == 200
        assert all(b"\0" not in path.read_bytes() for path in segments(folder))
        assert stored(folder) == ids([1])


@pytest.mark.parametrize("second", [False, True])
def test_a_receiver_whose_folder_is_removed_takes_nothing(
    second: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "in"
    with receiving(folder) as server:
        assert post(server.url, export([0]).SerializeToString()).status == 200
        shutil.rmtree(folder)
        with receiving(folder) if second else nullcontext() as other:
            for _ in range(2):
                answer = post(server.url, export([1]).SerializeToString())
                assert (answer.status, b"start the receiver again" in answer.body) == (503, True)
            if other:
                assert post(other.url, export([2]).SerializeToString()).status == 200
                assert stored(folder) == ids([2])
    assert capsys.readouterr().err.count("its lock was removed") == 1


def test_a_part_that_cannot_be_made_leaves_its_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "in"
    make_parts_at_once(monkeypatch)

    def full(*_: object) -> bool:
        failed.set()
        raise OSError(28, "No space left on device")

    failed = threading.Event()
    monkeypatch.setattr(received, "_make_part", full)
    with receiving(folder) as server:
        post(server.url, export([0]).SerializeToString())
        assert failed.wait(SECONDS)
        assert stored(folder) == ids([0])
    assert capsys.readouterr().err.count("is left as it is for now ([Errno 28] No space") == 1


def test_old_parts_are_removed_where_that_is_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    first, second = (f"received-20260101T000000.000000-{number:04}" for number in (1, 2))
    for name, days in ((first, 8), (second, 6), ("received-mine", 8)):
        (folder / f"{name}.parquet").write_bytes(b"")
        moment = time.time() - days * 86_400
        os.utime(folder / f"{name}.parquet", (moment, moment))
    with receiving(folder, keep=timedelta(days=7)):
        wait_for(lambda: len(parts(folder)) == 2)
    assert [path.stem for path in parts(folder)] == [second, "received-mine"]


def test_nothing_is_taken_after_the_end(tmp_path: Path) -> None:
    folder = ReceivedFolder(tmp_path / "in")
    folder.append(b"{}")
    folder.close()
    with pytest.raises(NotStoredError):
        folder.append(b"{}")


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(end: signal.Signals, tmp_path: Path) -> None:
    with receiver_process(tmp_path / "in") as (url, process):
        assert post(url, export(range(5)).SerializeToString()).status == 200
        process.send_signal(end)
        assert process.wait(SECONDS) == 0
        assert process.stdout is not None
        assert process.stdout.read() == "received 5 spans and 0 events\n"
    assert stored(tmp_path / "in") == ids(range(5))


def test_no_span_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    answered: list[int] = []

    def send(url: str, first: int) -> None:
        number = first
        while True:
            numbers = range(number, number + 10)
            try:
                status = post(url, export(numbers).SerializeToString()).status
            except OSError:
                return
            assert status == 200
            answered.extend(numbers)
            number += 10

    for round_number in range(2):
        before = len(answered)
        with receiver_process(folder) as (url, process):
            starts = [round_number * 10_000_000 + at * 1_000_000 for at in range(4)]
            senders = [threading.Thread(target=send, args=(url, start)) for start in starts]
            for sender in senders:
                sender.start()
            wait_for(lambda before=before: len(answered) > before + 300)
            process.kill()
            for sender in senders:
                sender.join()
        assert {*ids(answered)} <= {*stored(folder)}


def test_protobuf_without_its_package_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protobuf, "is_installed", lambda: False)
    with receiving(tmp_path / "in") as server:
        answer = post(server.url, export([0]).SerializeToString())
        assert answer.status == 415
        assert b"claimflow[otlp]" in answer.body
        assert post(server.url, json_export(json_span(0)), JSON).status == 200


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/", "'/' is not received: send to /v1/traces or /v1/logs"),
        ("/v1/trace?a=b", "'/v1/trace' is not received: send to /v1/traces or /v1/logs"),
        ("/v1/metrics", "metrics are not received, only /v1/traces and /v1/logs"),
    ],
)
def test_other_paths_are_told_which_are_received(path: str, told: str, tmp_path: Path) -> None:
    with receiving(tmp_path / "in") as server:
        for method in ("POST", "GET"):
            answer = post(server.url, b"{}", JSON, path=path, method=method)
            assert (answer.status, json.loads(answer.body)) == (404, {"message": told})


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "OTHER"])
@pytest.mark.parametrize("kind", [JSON, PROTOBUF])
def test_other_methods_are_not_allowed(method: str, kind: str, tmp_path: Path) -> None:
    with receiving(tmp_path / "in") as server:
        answer = post(server.url, b"", kind, method=method)
        assert (answer.status, answer.headers["Allow"]) == (405, "POST")
        assert answer.headers["Content-Type"] == kind
        message = b"send exports to /v1/traces by POST"
        assert (message in answer.body) == (method != "HEAD")


def test_a_token_is_needed_for_any_method(tmp_path: Path) -> None:
    with receiving(tmp_path / "in", token=TOKEN) as server:
        assert post(server.url, b"", JSON, method="GET").status == 401


def test_a_folder_in_which_nothing_was_received_says_so(tmp_path: Path) -> None:
    with receiving(tmp_path / "in") as server:
        (fault,) = read_traces(["in/*"], base=tmp_path).samples.faults
        assert (fault.place, fault.what) == ("in/*", "nothing was received yet")
        assert "claimflow receive" in fault.hint
        assert post(server.url, json_export(json_span(0)), JSON).status == 200
        (fault,) = read_traces(["in/*.csv"], base=tmp_path).samples.faults
    assert fault.what == "no file matches"


def test_a_port_in_use_is_an_error(tmp_path: Path) -> None:
    with receiving(tmp_path / "in") as server:
        folder = ReceivedFolder(tmp_path / "other")
        try:
            with pytest.raises(InputError, match="cannot be used"):
                Receiver(folder, host="127.0.0.1", port=server.server_port)
        finally:
            folder.close()


def test_an_export_of_the_sdk_is_read(tmp_path: Path) -> None:
    content = (Path(__file__).parent.parent / "data/traces/otlp_document.pb").read_bytes()
    assert ExportTraceServiceRequest.FromString(content).resource_spans
    with receiving(tmp_path / "in") as server:
        assert post(server.url, content).status == 200
    expected = json.loads(
        (Path(__file__).parent.parent / "data/traces/samples.json").read_text("utf-8")
    )["otlp_document.pb"]["samples"]
    assert stored(tmp_path / "in") == sorted(one["sample_id"] for one in expected)
