"""Files that traces come in: OTLP as protobuf, and text that is compressed."""

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, LogsData, ResourceLogs, ScopeLogs
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Metric,
    MetricsData,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from claimflow.flows.samples import formats
from claimflow.flows.samples.reader import SampleSource, read_samples
from claimflow.flows.traces import protobuf
from claimflow.flows.traces.reader import read_traces

DATA = Path(__file__).parent.parent / "data/traces"
FRAMED = (DATA / "otlp.binpb").read_bytes()


def read(path: Path, **options: Any) -> SampleSource:
    return read_traces([path.name], base=path.parent, **options).samples


def samples(path: Path) -> SampleSource:
    return read_samples(path.name, base=path.parent, rename={})


def left_out(source: SampleSource) -> list[str]:
    return [fault.what.removeprefix("left out: ") for fault in source.warnings]


def messages() -> Iterator[bytes]:
    """The messages of the framed file; the last one is cut off."""
    start = 0
    while start < len(FRAMED):
        end = start + 4 + int.from_bytes(FRAMED[start : start + 4], "big")
        yield FRAMED[start + 4 : end]
        start = end


def framed(*contents: bytes) -> bytes:
    return b"".join(len(one).to_bytes(4, "big") + one for one in contents)


def test_protobuf_has_the_values_of_json() -> None:
    lines = (DATA / "otlp.jsonl").read_text("utf-8").splitlines()[:-1]
    records = [record.values for record in protobuf.read_protobuf(DATA / "otlp.binpb")]
    assert len(records) == len(lines) + 1
    for record, line in zip(records, lines, strict=False):
        assert isinstance(record, dict)
        (found,), (expected,) = (
            [
                (span["traceId"], span["spanId"], span["attributes"])
                for resource in document["resourceSpans"]
                for scope in resource["scopeSpans"]
                for span in scope["spans"]
            ]
            for document in (record, json.loads(line))
        )
        assert found == expected


@pytest.mark.parametrize("name", ["traces.json", "traces.jsonl"])
def test_protobuf_is_told_by_its_beginning_too(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(FRAMED)
    assert read(tmp_path / name).digest == read(DATA / "otlp.jsonl").digest


def test_a_message_alone_may_be_a_file(tmp_path: Path) -> None:
    data = TracesData()
    for one in [*messages()][:-1]:
        data.MergeFromString(one)
    (tmp_path / "t.pb").write_bytes(data.SerializeToString())
    assert read(tmp_path / "t.pb").digest == read(DATA / "otlp.jsonl").digest


def test_log_records_and_metrics_may_stand_beside_spans(tmp_path: Path) -> None:
    body = AnyValue()
    pair = body.kvlist_value.values.add(key="message")
    pair.value.string_value = '{"role": "assistant", "content": "Logged."}'
    said = LogRecord(
        event_name="gen_ai.choice",
        trace_id=bytes.fromhex("0a" * 16),
        span_id=bytes.fromhex("0b" * 8),
        time_unix_nano=5,
        body=body,
    )
    logs = LogsData(resource_logs=[ResourceLogs(scope_logs=[ScopeLogs(log_records=[said])])])
    spans = TracesData()
    span = (
        spans.resource_spans.add()
        .scope_spans.add()
        .spans.add(trace_id=said.trace_id, span_id=said.span_id, start_time_unix_nano=1)
    )
    question = json.dumps([{"role": "user", "content": "Asked?"}])
    for name, text in (("operation.name", "chat"), ("input.messages", question)):
        value = AnyValue(string_value=text)
        span.attributes.append(KeyValue(key=f"gen_ai.{name}", value=value))
    metric = Metric(name="tokens", description="of a day", unit="1")
    metrics = MetricsData(
        resource_metrics=[ResourceMetrics(scope_metrics=[ScopeMetrics(metrics=[metric])])]
    )
    path = tmp_path / "t.binpb"
    contents = [one.SerializeToString() for one in (logs, metrics, spans)]
    path.write_bytes(framed(*contents))
    source = read(path)
    (row,) = [row for shard in source.shards(10) for row in shard.to_dicts()]
    assert (row["sample_id"], row["response"]) == ("0a" * 16, "Logged.")
    assert left_out(source) == []


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (framed(b"\xff\xff") + FRAMED[:20_000], "damaged records 2"),
        (framed(*[*messages()][:-1]) + b"\0\0", "damaged records 1"),
        ((0x7FFFFFFF).to_bytes(4, "big") + FRAMED, "damaged records 1"),
        (b"\n\xff\xff", "damaged records 1"),
    ],
)
def test_damaged_messages_are_counted(content: bytes, told: str, tmp_path: Path) -> None:
    path = tmp_path / "t.binpb"
    path.write_bytes(content)
    source = read(path)
    texts = [*left_out(source), *(fault.what for fault in source.faults)]
    assert any(told in text for text in texts)


def test_a_message_that_is_being_written_hides_no_others(tmp_path: Path) -> None:
    (tmp_path / "t.binpb").write_bytes(FRAMED)
    assert not read(tmp_path / "t.binpb").incomplete
    (tmp_path / "t.binpb.gz").write_bytes(gzip.compress(FRAMED)[:-20])
    assert read(tmp_path / "t.binpb.gz").incomplete


@given(at=st.integers(0, len(FRAMED) - 1), byte=st.integers(0, 255), end=st.integers(0, 2_000))
def test_a_changed_or_cut_file_raises_nothing(
    tmp_path_factory: pytest.TempPathFactory, at: int, byte: int, end: int
) -> None:
    path = tmp_path_factory.mktemp("any") / "t.pb"
    content = bytearray(FRAMED)
    content[at] = byte
    path.write_bytes(content[: len(content) - end])
    for fault in read(path).faults:
        assert fault.what.startswith(("no trace gives", "no known format", "no traces"))


@given(content=st.binary(max_size=80))
def test_any_bytes_are_a_message_or_none(content: bytes) -> None:
    for signal in ("traces", "logs"):
        found = protobuf.decode(signal, content)  # type: ignore[arg-type]
        assert found is None or json.loads(json.dumps(found, allow_nan=False)) == found


def test_the_extra_is_named_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.proto.trace.v1.trace_pb2", None)
    (tmp_path / "t.pb.gz").write_bytes(gzip.compress(FRAMED))
    for path in (DATA / "otlp.binpb", tmp_path / "t.pb.gz"):
        (fault,) = read(path).faults
        assert (fault.place, "claimflow[otlp]" in fault.hint) == (path.name, True)


def test_samples_are_no_protobuf(tmp_path: Path) -> None:
    (tmp_path / "t.binpb").write_bytes(FRAMED)
    (fault,) = samples(tmp_path / "t.binpb").faults
    assert fault.what == "unknown ending '.binpb'"


@pytest.mark.parametrize(
    "name",
    [
        "otlp.jsonl", "otlp_document.json", "langfuse_traces.csv", "phoenix.jsonl", "otlp.binpb",
        "otlp_document.pb",
    ],
)  # fmt: skip
def test_text_and_protobuf_may_be_compressed(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.gz"
    path.write_bytes(gzip.compress((DATA / name).read_bytes()))
    assert read(path).digest == read(DATA / name).digest
    path.rename(tmp_path / f"{name}.GZ")
    assert read(tmp_path / f"{name}.GZ").digest == read(DATA / name).digest


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", '{"response": "Tin."}\n{"response": "Zinc."}'),
        ("a.json", '[{"response": "Tin."}, {"response": "Zinc."}]'),
        ("a.csv", "response\nTin.\nZinc.\n"),
    ],
)
def test_samples_may_be_compressed(name: str, text: str, tmp_path: Path) -> None:
    # Several members are one file, as `cat a.gz b.gz` makes it.
    half = len(text) // 2
    members = [gzip.compress(part.encode()) for part in (text[:half], text[half:])]
    (tmp_path / f"{name}.gz").write_bytes(b"".join(members))
    source = samples(tmp_path / f"{name}.gz")
    assert (source.count, source.faults) == (2, ())


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"plain text", "a.jsonl.gz:1: the compressed data are damaged or cut off"),
        (gzip.compress(b'{"response": "Tin."}\n' * 99, mtime=0)[:-9], "damaged or cut off"),
        (
            gzip.compress(b'{"response": "\xff"}', mtime=0),
            "a.jsonl.gz:1: the byte 0xff is not UTF-8",
        ),
    ],
)
def test_a_damaged_gzip_file_is_an_error(content: bytes, told: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(content)
    (fault,) = samples(tmp_path / "a.jsonl.gz").faults
    assert told in str(fault)


def test_a_bomb_is_not_decompressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "RECORD_BYTES", 1_000)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b" " * 4_000_000))
    (fault,) = samples(tmp_path / "a.jsonl.gz").faults
    assert fault.what == "more than 200 times as large when decompressed"


def test_a_bomb_of_protobuf_is_not_decompressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "RECORD_BYTES", 1_000)
    (tmp_path / "a.pb.gz").write_bytes(gzip.compress(bytes(4_000_000)))
    (fault,) = read(tmp_path / "a.pb.gz").faults
    assert fault.what == "no trace gives a sample (damaged records 1)"


def test_a_table_of_parquet_is_not_compressed_again(tmp_path: Path) -> None:
    (tmp_path / "t.parquet.gz").write_bytes(gzip.compress(b"any"))
    (fault,) = samples(tmp_path / "t.parquet.gz").faults
    assert fault.what == "unknown ending '.parquet.gz'"
