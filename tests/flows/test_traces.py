"""Files of traces become samples: real exports, any order of spans, and hostile values."""

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import chdir
from datetime import datetime
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.flows.cli.main import main
from claimflow.flows.errors import InputError
from claimflow.flows.pipeline import limits
from claimflow.flows.pipeline.schema import TraceFormat
from claimflow.flows.runner.prepare import prepare
from claimflow.flows.samples.reader import SampleSource
from claimflow.flows.store.store import Store
from claimflow.flows.traces import assembly, reader
from claimflow.flows.traces.assembly import assemble
from claimflow.flows.traces.formats import FORMATS, read_spans
from claimflow.flows.traces.reader import AUTO, read_traces
from claimflow.flows.traces.spans import Span, span_of

DATA = Path(__file__).parent.parent / "data/traces"
GOLDEN = json.loads((DATA / "samples.json").read_text("utf-8"))
FIELDS = ("sample_id", "user_input", "response", "retrieved_contexts")
PIPELINE = """
name: traced
samples: {traces: FILE, tools: true, select: {since: last_run}}
store: traced.duckdb
steps:
  context_matches: {use: lexical_match, against: retrieved_contexts}
  faithful: {use: deterministic_faithfulness}
  summary: {use: summarize_scores}
"""
WITHOUT_CONTEXTS = """
name: traced
samples: {traces: FILE, select: {since: last_run}}
store: traced.duckdb
steps:
  claims: {use: decompose_claims, of: response}
"""


def read(path: Path, **options: Any) -> SampleSource:
    return read_traces([path.name], base=path.parent, **options).samples


def rows(source: SampleSource) -> list[dict[str, Any]]:
    """The samples: their fields that have a value, and their metadata."""
    found = [row for shard in source.shards(100) for row in shard.to_dicts()]
    return [
        {name: row[name] for name in FIELDS if row[name] is not None}
        | {"metadata": json.loads(row["metadata"])}
        for row in found
    ]


def left_out(source: SampleSource) -> list[str]:
    return [fault.what for fault in source.warnings]


def otlp_span(trace: str, span: str, parent: str = "", **attributes: str) -> dict[str, Any]:
    """A span of OTLP whose attributes are named with __ for a dot."""
    return {
        "traceId": trace,
        "spanId": span,
        "parentSpanId": parent,
        "attributes": [
            {"key": name.replace("__", "."), "value": {"stringValue": value}}
            for name, value in attributes.items()
        ],
    }


def chat(trace: str, span: str, parent: str = "", **more: str) -> dict[str, Any]:
    """A call of a model that was asked and has answered."""
    given = {
        "gen_ai__operation__name": "chat",
        "gen_ai__input__messages": json.dumps([{"role": "user", "content": "Is tin a metal?"}]),
        "gen_ai__output__messages": json.dumps([{"role": "assistant", "content": "Yes."}]),
    }
    return otlp_span(trace, span, parent, **{**given, **more})


def line(*spans: Mapping[str, Any]) -> str:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})


@pytest.mark.parametrize("name", GOLDEN)
def test_an_export_gives_its_samples(name: str) -> None:
    source = read(DATA / name, tools=True)
    assert source.faults == ()
    assert {"samples": rows(source), "left_out": left_out(source)} == GOLDEN[name]


def test_every_export_has_golden_samples() -> None:
    files = {path.name for path in DATA.iterdir()} - {"README.md", "samples.json"}
    assert files == {*GOLDEN}


@pytest.mark.parametrize("name", GOLDEN)
def test_nights_over_an_export(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = GOLDEN[name]["samples"]
    has_contexts = any("retrieved_contexts" in one for one in samples)
    config = tmp_path / "traced.yaml"
    text = PIPELINE if has_contexts else WITHOUT_CONTEXTS
    config.write_text(text.replace("FILE", str(DATA / name)), "utf-8")
    with chdir(tmp_path):
        assert main(["run", "traced.yaml"]) == 0
        capsys.readouterr()
        assert main(["run", "traced.yaml"]) == 0
    told = f"0 of {len(samples)} samples; left out: since {len(samples)}"
    assert told in capsys.readouterr().out
    with Store(tmp_path / "traced.duckdb").reading() as connection:
        stored = connection.sql("SELECT sample_id, response FROM samples").fetchall()
    assert sorted(stored) == sorted((one["sample_id"], one["response"]) for one in samples)


def test_the_schema_names_the_formats() -> None:
    assert {*get_args(TraceFormat)} == {AUTO, *FORMATS}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_format_may_be_named(name: str) -> None:
    detected = read(DATA / name)
    named = [source for one in FORMATS if (source := read(DATA / name, trace_format=one)).count]
    assert [source.digest for source in named] == [detected.digest] * len(named) != []


def test_tools_are_no_contexts_unless_asked_for() -> None:
    without = {
        row["sample_id"]: row.get("retrieved_contexts") for row in rows(read(DATA / "otlp.jsonl"))
    }
    assert without["4bf92f3577b34da60000000000000003"] is None


@given(st.randoms(use_true_random=False))
def test_any_order_of_lines_gives_the_same_samples(
    tmp_path_factory: pytest.TempPathFactory, order: random.Random
) -> None:
    path = tmp_path_factory.mktemp("shuffled") / "otlp.jsonl"
    lines = (DATA / "otlp.jsonl").read_text("utf-8").splitlines()
    order.shuffle(lines)
    path.write_text("\n".join(lines), "utf-8")
    assert read(path).digest == read(DATA / "otlp.jsonl").digest


def test_a_trace_may_be_spread_over_files(tmp_path: Path) -> None:
    lines = (DATA / "otlp.jsonl").read_text("utf-8").splitlines()
    for number, one in enumerate(lines[:7]):
        (tmp_path / f"traces-{number}.json").write_text(one, "utf-8")
    source = read_traces(["traces-*.json"], base=tmp_path).samples
    assert source.faults == ()
    whole = {row["sample_id"]: row for row in rows(read(DATA / "otlp.jsonl"))}
    assert {row["sample_id"]: row for row in rows(source)} == whole


def test_traces_and_observations_of_langfuse_may_be_files_of_their_own(tmp_path: Path) -> None:
    lines = (DATA / "langfuse_traces.jsonl").read_text("utf-8").splitlines()
    traces = [json.loads(one) for one in lines]
    observations = [member for one in traces for member in one.pop("observations")]
    for name, records in (("traces", traces), ("observations", observations[::-1])):
        text = "\n".join(json.dumps(record) for record in records)
        (tmp_path / f"{name}.jsonl").write_text(text, "utf-8")
    source = read_traces(["*.jsonl"], base=tmp_path).samples
    assert rows(source) == GOLDEN["langfuse_traces.jsonl"]["samples"]


def test_the_last_message_of_a_trace_of_langfuse_is_its_answer(tmp_path: Path) -> None:
    said = [{"role": "assistant", "content": text} for text in ("Let me see.", "Tin is a metal.")]
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"id": "t", "input": "Tin?", "output": said}), "utf-8")
    (row,) = rows(read(path))
    assert row["response"] == "Tin is a metal."


def test_the_span_of_a_trace_of_langfuse_is_its_top_observation_with_the_same_answer(
    tmp_path: Path,
) -> None:
    top = {"id": "0a" * 8, "type": "SPAN", "output": "Yes."}
    # An observation with the id of its trace is one of its own.
    call = {"id": "t", "type": "GENERATION", "parentObservationId": top["id"], "model": "m"}
    whole = {"id": "t", "input": "Is tin a metal?", "output": "Yes."}
    path = tmp_path / "t.jsonl"
    found = []
    for observations in ([top, call], [top | {"output": "Yes"}, call], []):
        path.write_text(json.dumps(whole | {"observations": observations}), "utf-8")
        source = read(path)
        (row,) = rows(source)
        assert left_out(source) == []
        found.append((row["metadata"]["trace_id"], row["metadata"].get("span_id")))
    assert found == [("t", "0a" * 8), ("t", None), ("t", None)]


def test_a_bulk_export_of_langsmith_holds_objects_as_text(tmp_path: Path) -> None:
    lines = (DATA / "langsmith.jsonl").read_text("utf-8").splitlines()
    columns = ("id", "trace_id", "parent_run_id", "name", "run_type")
    found = [
        {name: run.get(name) for name in columns}
        | {name: json.dumps(run.get(name)) for name in ("inputs", "outputs", "extra")}
        | {name: datetime.fromisoformat(run[name]) for name in ("start_time", "end_time")}
        | {name: run.get(name) for name in ("prompt_tokens", "completion_tokens")}
        for run in map(json.loads, lines)
    ]
    pl.DataFrame(found, infer_schema_length=None).write_parquet(tmp_path / "runs.parquet")
    source = read(tmp_path / "runs.parquet", tools=True)
    assert rows(source) == GOLDEN["langsmith.jsonl"]["samples"]


def test_a_run_of_langsmith_may_lack_the_id_of_its_own_trace(tmp_path: Path) -> None:
    run = {"id": "r", "run_type": "llm", "inputs": {"input": "Tin?"}, "outputs": {"output": "Yes."}}
    lost = {**run, "id": "s", "parent_run_id": "r"}
    (tmp_path / "t.jsonl").write_text(f"{json.dumps(run)}\n{json.dumps(lost)}", "utf-8")
    source = read(tmp_path / "t.jsonl")
    assert [row["sample_id"] for row in rows(source)] == ["r"]
    assert left_out(source) == ["left out: spans without a trace id or a span id 1"]


def test_an_older_trace_of_mlflow_is_read(tmp_path: Path) -> None:
    attributes = {
        "mlflow.spanType": '"LLM"',
        "mlflow.spanInputs": '"Is tin a metal?"',
        "mlflow.spanOutputs": '"[1] says so."',
    }
    span = {
        "context": {"trace_id": "0xaa", "span_id": "0xbb"},
        "parent_id": None,
        "start_time": 10**18,
        "end_time": 10**18 + 10**9,
        "attributes": attributes,
    }
    metadata = {"mlflow.trace.session": "s"}
    trace = {
        "info": {"request_id": "tr-1", "request_metadata": metadata},
        "data": {"spans": [span, {"name": "nameless"}]},
    }
    (tmp_path / "t.json").write_text(json.dumps(trace, indent=1), "utf-8")
    source = read(tmp_path / "t.json")
    (row,) = rows(source)
    assert (row["sample_id"], row["response"]) == ("tr-1", "[1] says so.")
    assert (row["metadata"]["latency_ms"], row["metadata"]["session"]) == (1_000, "s")
    assert left_out(source) == ["left out: spans without a trace id or a span id 1"]


def test_ids_of_mlflow_are_those_that_it_shows(tmp_path: Path) -> None:
    attributes = {"mlflow.spanInputs": '"Is tin a metal?"', "mlflow.spanOutputs": '"Yes."'}
    ids = {
        # Releases from 3 on write the bytes in base64, 3.5.0 the digits, and those before 3 so.
        "SXfGO8CG5ls=": "4977c63bc086e65b",
        "4977c63bc086e65b": "4977c63bc086e65b",
        "0x4977c63bc086e65b": "0x4977c63bc086e65b",
        "not of base64": "not of base64",
    }
    for written, shown in ids.items():
        root = {"span_id": "5OfUeA2XQ1s="}
        spans = [root, {"span_id": written, "parent_span_id": "5OfUeA2XQ1s="}]
        spans[1] |= {"attributes": {"mlflow.spanType": '"LLM"', **attributes}}
        trace = {"info": {"trace_id": "tr-1"}, "data": {"spans": spans}}
        (tmp_path / "t.json").write_text(json.dumps(trace), "utf-8")
        (row,) = rows(read(tmp_path / "t.json"))
        assert row["metadata"]["span_id"] == shown


@pytest.mark.parametrize(
    "columns", [["trace"], ["trace_id", "trace"], ["trace_id", "trace", "state", "spans"]]
)
def test_some_columns_of_a_search_of_mlflow_are_enough(columns: list[str], tmp_path: Path) -> None:
    traces = (DATA / "mlflow.jsonl").read_text("utf-8").splitlines()
    table = pl.DataFrame(
        {
            "trace": traces,
            "trace_id": [json.loads(one)["info"]["trace_id"] for one in traces],
            "state": ["OK"] * len(traces),
            "spans": [[{"name": "one"}]] * len(traces),
        }
    ).select(columns)
    table.write_parquet(tmp_path / "t.parquet")
    table.write_ndjson(tmp_path / "t.jsonl")
    for name in ("t.parquet", "t.jsonl"):
        source = read(tmp_path / name, tools=True)
        assert source.faults == ()
        assert rows(source) == GOLDEN["mlflow.jsonl"]["samples"]


def test_a_column_called_trace_alone_is_no_trace(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"trace": "{\\"info\\": 1}"}', "utf-8")
    (fault,) = read(tmp_path / "t.jsonl").faults
    assert "no known format of traces; its first record has trace" in fault.what


PHOENIX_DOCUMENTS = [{"document.content": f"It's {text}."} for text in ("tin", "zinc")]


def phoenix_csv(path: Path, documents: str) -> None:
    """A file of Phoenix whose retrieval has the text `documents` as its documents."""
    rows = [
        {"context.span_id": "1", "span_kind": "CHAIN", "attributes.input.value": "Is it?",
         "attributes.output.value": "[{'Yes.'}]"},
        {"context.span_id": "2", "span_kind": "RETRIEVER", "parent_id": "1",
         "attributes.retrieval.documents": documents},
    ]  # fmt: skip
    table = pl.from_dicts([{"context.trace_id": "a", **row} for row in rows])
    table.write_csv(path)


@pytest.mark.parametrize("write", [json.dumps, repr])
def test_a_cell_of_phoenix_may_hold_a_list(write: Callable[[Any], str], tmp_path: Path) -> None:
    phoenix_csv(tmp_path / "t.csv", write(PHOENIX_DOCUMENTS))
    source = read(tmp_path / "t.csv")
    (row,) = rows(source)
    assert (source.faults, left_out(source)) == ((), [])
    assert row["retrieved_contexts"] == ["It's tin.", "It's zinc."]
    assert row["response"] == "[{'Yes.'}]"


def test_a_cell_that_cannot_be_told_is_an_error(tmp_path: Path) -> None:
    # As NumPy prints an array.
    printed = "[{'document.content': 'Tin.'}\n {'document.content': 'Zinc.'}]"
    phoenix_csv(tmp_path / "t.csv", printed)
    (fault,) = read(tmp_path / "t.csv").faults
    assert fault.place == "t.csv:3" or fault.place == f"{tmp_path / 't.csv'}:3"
    assert "as Python prints it" in fault.what
    assert fault.hint == "write the rows as Parquet or JSON Lines instead"
    # In what an application logged it is the fault of one span.
    with (tmp_path / "t.jsonl").open("w", encoding="utf-8") as file:
        for row in pl.read_csv(tmp_path / "t.csv").to_dicts():
            file.write(f"{json.dumps(row)}\n")
    source = read(tmp_path / "t.jsonl")
    assert (source.count, source.faults) == (1, ())
    assert left_out(source) == ["left out: spans with values as Python prints them 1"]


def test_log_records_whose_spans_are_in_another_file_are_told(tmp_path: Path) -> None:
    event = {"traceId": "a", "spanId": "1", "eventName": "gen_ai.user.message"}
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [event]}]}]}
    (tmp_path / "logs.json").write_text(json.dumps(logs), "utf-8")
    (tmp_path / "a.json").write_text(line(otlp_span("a", "1")), "utf-8")
    found = read_traces(["*.json"], base=tmp_path)
    counts = [(one.name, one.spans, one.log_records) for one in found.files]
    assert [(Path(name).name, *more) for name, *more in counts] == [
        ("a.json", 1, 0),
        ("logs.json", 0, 1),
    ]
    assert [fault.what for fault in found.samples.faults] == [
        "no trace gives a sample (traces without an answer 1)",
        "no trace gives a sample (its traces begin in other files)",
    ]


ASKED = {"input": "Is tin a metal?", "output": "Yes."}

LLM = {"openinference__span__kind": "LLM", "input__value": "Is it?", "output__value": "Yes."}


@pytest.mark.parametrize(
    ("records", "cost"),
    [
        # Each call of a model is counted once, and the sum that its root repeats is not.
        ([{"resourceSpans": [{"scopeSpans": [{"spans": [
            otlp_span("a", "1", input__value="Is it?", output__value="Yes."),
            otlp_span("a", "2", "1", llm__cost__total="0.1", **LLM),
            otlp_span("a", "3", "1", llm__cost__total="0.2", **LLM)]}]}]}], 0.3),
        ([{"id": "a", **ASKED, "totalCost": 0.25}], 0.25),
        ([{"id": "a", **ASKED, "totalCost": 9, "observations": [
            {"id": "b", "type": "GENERATION", **ASKED, "costDetails": {"total": 0}}]}], 0),
        ([{"id": "a", "run_type": "llm", "inputs": {"messages": [["user", "Is it?"]]},
           "outputs": {"content": "Yes."}, "total_cost": "0.004"}], 0.004),
        ([{"info": {"trace_id": "a"}, "data": {"spans": [{"span_id": "b", "attributes": {
            "mlflow.spanType": '"LLM"', "mlflow.spanInputs": '"Is it?"',
            "mlflow.spanOutputs": '"Yes."', "mlflow.llm.cost": '{"total_cost": 0.5}'}}]}}], 0.5),
        ([{"id": "a", **ASKED, "totalCost": -1}], None),
        ([{"id": "a", **ASKED, "totalCost": "much"}], None),
    ],
)  # fmt: skip
def test_what_a_trace_cost_is_metadata(
    records: list[dict[str, Any]], cost: float | None, tmp_path: Path
) -> None:
    (tmp_path / "t.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in records), "utf-8")
    (row,) = rows(read(tmp_path / "t.jsonl"))
    assert row["metadata"].get("cost_usd") == cost


def test_a_chat_may_be_logged_as_request_and_response(tmp_path: Path) -> None:
    log = {
        "request": {"model": "m", "messages": [{"role": "user", "content": "Is tin a metal?"}]},
        "response": {
            "id": "c-1",
            "choices": [{"message": {"role": "assistant", "content": "Yes."}}],
        },
    }
    path = tmp_path / "t.json"
    path.write_text(json.dumps([log]), "utf-8")
    (row,) = rows(read(path))
    assert (row["sample_id"], row["user_input"], row["response"]) == (
        "c-1",
        "Is tin a metal?",
        "Yes.",
    )


def test_a_chat_is_of_the_trace_that_its_log_names(tmp_path: Path) -> None:
    log = {"id": "c-1", "messages": [{"role": "user", "content": "Is it?"}], "response": "Yes."}
    path = tmp_path / "t.jsonl"
    found = []
    for ids in ({"trace_id": "t", "span_id": "s"}, {"trace_id": "t"}, {"span_id": "s"}, {}):
        path.write_text(json.dumps(log | ids), "utf-8")
        (row,) = rows(read(path))
        assert row["sample_id"] == "c-1"
        found.append({name: row["metadata"].get(name) for name in ("trace_id", "span_id")})
    assert found == [
        {"trace_id": "t", "span_id": "s"},
        {"trace_id": "t", "span_id": None},
        *([{"trace_id": None, "span_id": None}] * 2),
    ]


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(['{"messages": [[{"role": "user"}]]}', "[[[", "-1", "1e999", "assistant"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            [
                "role", "content", "parts", "type", "text", "message", "messages", "data", "0", "1",
                "input.value", "output", "input", "documents", "choices", "key", "value",
                "stringValue", "arrayValue", "kvlistValue", "values", "spans", "scopeSpans",
                "resourceSpans", "traceId", "spanId", "parentSpanId", "attributes", "events",
                "name", "context", "trace_id", "span_id", "observations", "id", "startTime",
                "usage", "response", "run_type", "extra", "metadata", "info",
                "mlflow.spanInputs", "mlflow.spanOutputs", "mlflow.spanType", "inputs", "outputs",
                "resourceLogs", "scopeLogs", "logRecords", "body", "eventName",
            ]
        ),
        inner,
        max_size=6,
    ),
    max_leaves=30,
)  # fmt: skip


@given(
    record=st.dictionaries(
        st.sampled_from(["resourceSpans", "resourceLogs", "context.trace_id", "context.span_id"])
        | st.sampled_from(["attributes.input.value", "attributes.llm.output_messages", "parent_id"])
        | st.sampled_from(["id", "traceId", "type", "input", "output", "messages", "response"])
        | st.sampled_from(["run_type", "trace_id", "inputs", "outputs", "extra", "info", "data"])
        | st.sampled_from(["trace", "request", "otlp"]),
        VALUES,
        max_size=6,
    ),
    name=st.sampled_from([*FORMATS]),
)
def test_no_record_raises(record: dict[str, Any], name: str) -> None:
    found = list(read_spans(record, name, "file:1"))
    spans = [span for span in found if isinstance(span, Span)]
    assert all(isinstance(one, str) for one in found if one not in spans)
    assemble([span_of(span.text()) for span in spans], tools=True)


@given(attributes=st.dictionaries(st.sampled_from([
    "gen_ai__input__messages", "gen_ai__output__messages", "gen_ai__prompt", "gen_ai__completion",
    "gen_ai__retrieval__documents", "llm__input_messages", "input__value", "output__value",
    "retrieval__documents", "gen_ai__operation__name", "gen_ai__usage__input_tokens",
    "gen_ai__prompt__0__content", "llm__output_messages__0__message__content",
]), st.text(max_size=6) | VALUES.map(json.dumps)))  # fmt: skip
def test_no_attribute_raises(attributes: dict[str, str]) -> None:
    record = json.loads(line(otlp_span("a", "b", **attributes)))
    spans = [one for one in read_spans(record, "otlp", "file:1") if isinstance(one, Span)]
    found = assemble(spans, tools=True)
    assert (found.values is None) == bool(found.left_out - Counter([assembly.NO_TEXTS]))


@given(records=st.lists(st.dictionaries(
    st.sampled_from(["id", "traceId", "type", "input", "output", "messages", "response", "choices",
                     "sessionId", "name", "model", "observations", "context.trace_id",
                     "context.span_id", "attributes.input.value", "attributes.output.value"]),
    VALUES | st.sampled_from(["GENERATION", '[{"role": "user", "content": "x"}]']), max_size=9),
    max_size=4))  # fmt: skip
def test_no_file_is_anything_but_counted(
    tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, Any]]
) -> None:
    path = tmp_path_factory.mktemp("any") / "t.jsonl"
    lines = [json.dumps(one) for one in records]
    path.write_text("\n".join([*lines, line(chat("good", "1"))]), "utf-8")
    for trace_format in (AUTO, *FORMATS):
        source = read(path, trace_format=trace_format)
        expected = ("no trace gives a sample", "no known format of traces")
        assert all(fault.what.startswith(expected) for fault in source.faults)
        assert bool(source.faults) == (source.count == 0)


@pytest.mark.parametrize(("levels", "damaged"), [(250, 0), (2_000, 1)])
def test_attributes_may_be_nested_deep(levels: int, damaged: int, tmp_path: Path) -> None:
    deep = '{"arrayValue":{"values":[' * levels + '{"stringValue":"end"}' + "]}}" * levels
    text = line(chat("a", "1", deep="DEEP")).replace('{"stringValue": "DEEP"}', deep)
    path = tmp_path / "t.jsonl"
    path.write_text(f"{text}\n{line(chat('b', '1'))}", "utf-8")
    source = read(path)
    assert (source.count, source.faults) == (2 - damaged, ())
    assert left_out(source) == (["left out: damaged records 1"] if damaged else [])


@pytest.mark.parametrize(
    ("lines", "samples", "told"),
    [
        ([line(chat("a", "1"), chat("a", "2", parent="9"))], 1, "spans without their root 1"),
        ([line(chat("a", "1"), chat("a", "2"))], 1, "further roots of a trace 1"),
        ([line(chat("a", "1"), chat("b", "1", parent="1"))],
         1, "traces without their root span 1"),
        ([line(chat("a", "1", parent="2"), chat("a", "2", parent="1")), line(chat("b", "1"))],
         1, "traces without their root span 1"),
        ([line(chat("a", "1"), {**chat("a", "1"), "name": "x"})],
         1, "spans whose id is repeated 1"),
        ([line(chat("a", "1"), {"traceId": "b"})], 1, "spans without a trace id or a span id 1"),
        ([line(chat("a", "1"), 1, None, "x", [])], 1, "entries that are no objects 4"),  # type: ignore[arg-type]
        ([line(chat("a", "1")), '{"resourceSpans": [{"scopeSpans": "x"}, 5]}'],
         1, "entries that are no objects 2"),
        ([line(chat("a", "1")), '{"resourceSpans": [{"scopeSpans": [{"spans": {"a": 1}}]}]}'],
         1, "entries that are no objects 1"),
        ([line(chat("a", "1")), '{"messages": []}'], 1, "records of another format 1"),
        ([line(chat("a", "1")), "{", '{"a": 1, "a": 2}'], 1, "damaged records 2"),
        ([line(chat("a", "1")), "[" * 5_000], 1, "damaged records 1"),
        ([line(chat("a", "1"), chat("x" * 3_000, "1"))],
         1, "traces with a value that no sample can hold 1"),
        ([line(chat("a", "1"), chat("b", "1", gen_ai__input__messages=json.dumps(
            [{"role": "user", "content": '[{"role": "user", "content": "x"}]'}])))],
         1, "traces with a value that no sample can hold 1"),
        ([line(chat("a", "1"), chat("b", "1", gen_ai__input__messages="[]"))],
         1, "traces without a question 1"),
        ([line(chat("a", "1"), chat("b", "1", gen_ai__output__messages="[]"))],
         1, "traces without an answer 1"),
        ([line(chat("a", "1"), chat("a", "1"))], 1, ""),
    ],
)  # fmt: skip
def test_what_is_left_out_is_counted(
    lines: list[str], samples: int, told: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(lines), "utf-8")
    source = read(path)
    assert (source.count, source.faults) == (samples, ())
    assert [one.split(": ", 1)[1] for one in left_out(source)] == ([told] if told else [])


def test_a_line_that_is_not_utf8_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"resourceSpans": "\xff"}\n' + line(chat("a", "1")).encode())
    source = read(path)
    assert (source.count, left_out(source)) == (1, ["left out: damaged records 1"])


def test_a_trace_that_is_too_large_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.jsonl"
    calls = [chat("b", str(number), parent="0") for number in range(1, 21)]
    path.write_text(line(chat("a", "1"), chat("b", "0"), *calls), "utf-8")
    monkeypatch.setattr(reader, "RECORD_BYTES", 2_000)
    source = read(path)
    assert [row["sample_id"] for row in rows(source)] == ["a"]
    assert left_out(source) == ["left out: traces of more than 64 MiB 1"]
    assert limits.RECORD_BYTES == 64 << 20


def test_the_format_is_that_of_the_first_record_that_has_one(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"note": "rotated"}\n{"note": "again"}\n' + line(chat("a", "1")), "utf-8")
    source = read(path)
    assert (source.count, left_out(source)) == (1, ["left out: records of another format 2"])


def test_messages_may_be_log_records_of_a_span(tmp_path: Path) -> None:
    def record(name: str, second: int, body: dict[str, str]) -> dict[str, Any]:
        pairs = [{"key": key, "value": {"stringValue": text}} for key, text in body.items()]
        return {
            "eventName": name,
            "traceId": "a",
            "spanId": "1",
            "timeUnixNano": str(second * 10**9),
            "body": {"kvlistValue": {"values": pairs}},
        }

    logs = [
        record("gen_ai.choice", 2, {"message": '{"content": "Yes.", "role": "assistant"}'}),
        record("gen_ai.user.message", 1, {"content": "Is tin a metal?"}),
        record("some.other", 1, {"content": "nothing"}),
    ]
    path = tmp_path / "t.jsonl"
    span = otlp_span("a", "1", gen_ai__operation__name="chat")
    logged = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": logs}]}]})
    path.write_text(f"{logged}\n{line(span)}", "utf-8")
    (row,) = rows(read(path))
    assert (row["user_input"], row["response"]) == ("Is tin a metal?", "Yes.")


MESSAGES = [
    {"role": "user", "content": "Is tin a metal?"},
    {"role": "assistant", "content": "Yes."},
    {"role": "user", "content": "And zinc?"},
]
ANSWER = {"role": "assistant", "content": "Also."}
DETAILS = "gen_ai.client.inference.operation.details"
CALL = {
    "gen_ai__input__messages": json.dumps(MESSAGES),
    "gen_ai__output__messages": json.dumps([ANSWER]),
}


def typed(given: Mapping[str, str]) -> list[dict[str, Any]]:
    """Attributes, or the members of a body, whose names have __ for a dot."""
    return [
        {"key": name.replace("__", "."), "value": {"stringValue": text}}
        for name, text in given.items()
    ]


def message_events() -> list[tuple[str, dict[str, str]]]:
    """(name, members) of the events of a call that have one message each."""
    asked = [
        (f"gen_ai.{one['role']}.message", {"role": one["role"], "content": one["content"]})
        for one in MESSAGES
    ]
    return [*asked, ("gen_ai.choice", {"index": "0", "message": json.dumps(ANSWER)})]


def call_of(*sources: str) -> str:
    """The lines of a file with one call, the messages of which stand in all of the sources."""
    span = otlp_span("a", "1", gen_ai__operation__name="chat")
    if "attributes" in sources:
        span["attributes"] += typed(CALL)
    events = [(DETAILS, CALL)] if "details event" in sources else []
    events += message_events() if "message events" in sources else []
    span["events"] = [
        {"name": name, "timeUnixNano": number, "attributes": typed(given)}
        for number, (name, given) in enumerate(events, start=1)
    ]
    place = {"traceId": "a", "spanId": "1"}
    records = []
    if "details record" in sources:
        records.append({"eventName": DETAILS, "attributes": typed(CALL)} | place)
    if "message records" in sources:
        records += [
            {"eventName": name, "timeUnixNano": number}
            | {"body": {"kvlistValue": {"values": typed(given)}}}
            | place
            for number, (name, given) in enumerate(message_events(), start=1)
        ]
    logs = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]})
    return f"{line(span)}\n{logs}\n"


SOURCES = ("attributes", "details event", "message events", "details record", "message records")


@pytest.mark.parametrize(
    "sources", [*combinations(SOURCES, 1), *combinations(SOURCES, 2), SOURCES], ids=", ".join
)
def test_each_message_is_read_once(sources: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(call_of(*sources), "utf-8")
    source = read(path)
    (row,) = rows(source)
    assert (row["user_input"], row["response"]) == ("And zinc?", "Also.")
    assert (row["metadata"]["turn"], row["metadata"]["history"]) == (2, MESSAGES[:2])
    assert left_out(source) == []


def test_questions_and_answers_may_stand_in_different_sources(tmp_path: Path) -> None:
    span = otlp_span("a", "1", gen_ai__output__messages=CALL["gen_ai__output__messages"])
    span["events"] = [
        {"name": name, "attributes": typed(given)} for name, given in message_events()[:-1]
    ]
    (tmp_path / "t.jsonl").write_text(line(span), "utf-8")
    (row,) = rows(read(tmp_path / "t.jsonl"))
    assert (row["user_input"], row["response"]) == ("And zinc?", "Also.")


ERROR = {"code": "STATUS_CODE_ERROR"}
PARTIAL = {"input": "Is tin a metal?", "output": "Let me see."}


def otlp_failure(failed: Mapping[str, Any], **attributes: str) -> list[Any]:
    root, first = otlp_span("a", "1"), chat("a", "2", "1") | {"endTimeUnixNano": 1}
    second = otlp_span("a", "3", "1", gen_ai__operation__name="chat", **attributes)
    return [json.loads(line(root, first, {**second, "endTimeUnixNano": 2, **failed}))]


def mlflow_failure(failed: Mapping[str, Any]) -> list[Any]:
    asked = {"mlflow.spanType": '"LLM"', "mlflow.spanInputs": '"Is tin a metal?"'}
    said = {**asked, "mlflow.spanOutputs": '"Let me see."'}
    spans = [
        {"span_id": "1"},
        {"span_id": "2", "parent_id": "1", "end_time": 1, "attributes": said},
        {"span_id": "3", "parent_id": "1", "end_time": 2, "attributes": asked, **failed},
    ]
    return [{"info": {"trace_id": "a"}, "data": {"spans": spans}}]


def phoenix_span(span: str, **more: Any) -> dict[str, Any]:
    return {"context.trace_id": "a", "context.span_id": span, **more}


@pytest.mark.parametrize(
    "records",
    [
        otlp_failure({"status": {"code": 2}}),
        otlp_failure({"status": ERROR}),
        otlp_failure({}, error__type="timeout"),
        mlflow_failure({"status": ERROR}),
        mlflow_failure({"status": {"code": "ERROR"}}),
        mlflow_failure({"status_code": "ERROR"}),
        [
            phoenix_span("1"),
            phoenix_span("2", parent_id="1", span_kind="LLM", end_time=1)
            | {f"attributes.{name}.value": text for name, text in PARTIAL.items()},
            phoenix_span("3", parent_id="1", span_kind="LLM", end_time=2, status_code="ERROR"),
        ],
        [
            {"id": "a", "observations": [
                {"id": "2", "type": "GENERATION", "endTime": 1, **PARTIAL},
                {"id": "3", "type": "GENERATION", "endTime": 2, "level": "ERROR"}]},
        ],
        [
            {"id": "a", "run_type": "chain"},
            {"id": "2", "trace_id": "a", "parent_run_id": "a", "run_type": "llm", "end_time": 1,
             "inputs": {"input": PARTIAL["input"]}, "outputs": {"output": PARTIAL["output"]}},
            {"id": "3", "trace_id": "a", "parent_run_id": "a", "run_type": "llm", "end_time": 2,
             "inputs": {"input": PARTIAL["input"]}, "error": "TimeoutError()"},
        ],
    ],
)  # fmt: skip
def test_what_was_said_before_a_call_failed_is_no_answer(
    records: list[Any], tmp_path: Path
) -> None:
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, records)), "utf-8")
    source = read(tmp_path / "t.jsonl")
    assert left_out(source) == ["left out: traces whose last call of a model failed 1"]


@pytest.mark.parametrize(("flags", "samples"), [(0x301, 1), (0x300, 1), (0x100, 0), (0x200, 0),
                                                (None, 0), ("much", 0), (-1, 0)])  # fmt: skip
def test_the_flags_of_a_span_say_that_its_parent_is_remote(
    flags: Any, samples: int, tmp_path: Path
) -> None:
    top = otlp_span("a", "1", "gateway") | {"flags": flags}
    text = f"{line(top, chat('a', '2', '1'))}\n{line(chat('b', '1'))}"
    (tmp_path / "t.jsonl").write_text(text, "utf-8")
    source = read(tmp_path / "t.jsonl")
    assert source.count == samples + 1
    told = [] if samples else ["left out: traces without their root span 1"]
    assert left_out(source) == told


RERANKED = {
    "openinference__span__kind": "RERANKER",
    "reranker__input_documents__0__document__content": "a",
    "reranker__input_documents__1__document__content": "b",
    "reranker__output_documents__0__document__content": "b",
    "output__value": "b",
}


def test_documents_that_a_reranker_drops_are_no_contexts(tmp_path: Path) -> None:
    documents = {
        f"retrieval__documents__{n}__document__content": text for n, text in enumerate("ab")
    }
    found = otlp_span("a", "2", "1", **documents)
    ranked = otlp_span("a", "3", "1", **RERANKED)
    mlflow = [
        {"span_id": "1", "attributes": {
            "mlflow.spanInputs": '"Is it?"', "mlflow.spanOutputs": '"Yes."'}},
        *({"span_id": name, "parent_id": "1", "attributes": {
            "mlflow.spanType": f'"{kind}"', "mlflow.spanOutputs": json.dumps(outputs),
            "mlflow.spanInputs": json.dumps({"query": "Is it?", "documents": ["a", "b"]})}}
          for name, kind, outputs in (("2", "RETRIEVER", ["a", "b"]), ("3", "RERANKER", ["b"]))),
    ]  # fmt: skip
    texts = {
        "otlp": line(chat("a", "1"), found, ranked),
        "mlflow": json.dumps({"info": {"trace_id": "a"}, "data": {"spans": mlflow}}),
    }
    for name, text in texts.items():
        path = tmp_path / f"{name}.jsonl"
        path.write_text(text, "utf-8")
        assert [row["retrieved_contexts"] for row in rows(read(path))] == [["b"]]


def test_documents_with_ids_alone_are_told(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    documents = otlp_span(
        "a", "2", "1",
        gen_ai__operation__name="retrieval",
        gen_ai__retrieval__documents='[{"id": "d1", "score": 0.9}]',
    )  # fmt: skip
    path.write_text(line(chat("a", "1"), documents), "utf-8")
    source = read(path)
    assert "retrieved_contexts" not in source.present
    (told,) = left_out(source)
    assert told.endswith("retrievals without the texts of documents 1")


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        ('{"a": 1, "b": 2}', "no known format of traces; its first record has a, b",
         "resourceSpans (otlp)"),
        ("{", "no trace gives a sample (damaged records 1)",
         "first damaged record: t.jsonl:1: broken JSON at column 2"),
        ("{}", "no known format of traces; its first record is empty", "write at least one span"),
        ("", "no traces", "write at least one"),
        (line(otlp_span("a", "1")), "no trace gives a sample (traces without a question", "traces"),
    ],
)  # fmt: skip
def test_a_file_without_a_sample_is_an_error(
    text: str, what: str, hint: str, tmp_path: Path
) -> None:
    (tmp_path / "t.jsonl").write_text(text, "utf-8")
    (fault,) = read(tmp_path / "t.jsonl").faults
    assert fault.place == str(tmp_path / "t.jsonl") or fault.place == "t.jsonl"
    assert what in fault.what
    assert hint in fault.hint


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("quiet.jsonl", line(otlp_span("b", "1")),
         "traces without a question, an answer or documents 1"),
        ("quiet.jsonl", "", "files without a trace 1"),
        ("quiet.jsonl", "\n", "files without a trace 1"),
        ("quiet.json", "[]", "files without a trace 1"),
        ("quiet.json", '{"resourceSpans": [{"sco', "damaged records 1"),
        ("quiet.csv", "", "files without a trace 1"),
        ("quiet.parquet", "", "files without a trace 1"),
        ("quiet.pb", "", "files without a trace 1"),
    ],
)  # fmt: skip
def test_a_quiet_file_beside_others_is_counted(
    name: str, text: str, told: str, tmp_path: Path
) -> None:
    (tmp_path / "good.jsonl").write_text(line(chat("a", "1")), "utf-8")
    (tmp_path / name).write_text(text, "utf-8")
    source = read_traces(["*"], base=tmp_path).samples
    assert (source.count, source.faults) == (1, ())
    assert [(fault.place, fault.what) for fault in source.warnings] == [(name, f"left out: {told}")]


def test_a_file_of_unknown_format_beside_others_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "good.jsonl").write_text(line(chat("a", "1")), "utf-8")
    (tmp_path / "damaged.jsonl").write_text("{\n{\n", "utf-8")
    (tmp_path / "other.jsonl").write_text('{"a": 1}', "utf-8")
    found = read_traces(["*"], base=tmp_path).samples.faults
    assert [fault.place for fault in found] == ["other.jsonl", "damaged.jsonl"]
    (tmp_path / "other.jsonl").unlink()
    (fault,) = read_traces(["*"], base=tmp_path, trace_format="otlp").samples.faults
    assert fault[:2] == ("damaged.jsonl", "no trace gives a sample (damaged records 2)")


@pytest.mark.parametrize(
    ("samples", "told"),
    [
        ("{}", "write either path or traces"),
        ("{path: a.jsonl, traces: b.jsonl}", "write either path or traces"),
        ("{path: a.jsonl, tools: true}", "format and tools belong to traces"),
        ("{traces: a.jsonl, contexts_separator: x}", "contexts_separator belongs to path"),
    ],
)
def test_settings_that_do_not_fit_are_errors(
    samples: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "traced.yaml"
    config.write_text(
        PIPELINE.replace("{traces: FILE, tools: true, select: {since: last_run}}", samples), "utf-8"
    )
    assert main(["run", str(config)]) == 2
    assert told in capsys.readouterr().err


def test_answers_may_stand_in_for_the_traces_of_a_pipeline(tmp_path: Path) -> None:
    config = tmp_path / "traced.yaml"
    config.write_text(PIPELINE.replace("FILE", "none.jsonl"), "utf-8")
    answers = [{"sample_id": "one", "response": "Tin.", "retrieved_contexts": ["Tin."]}]
    assert prepare(config, answers=answers).samples.count == 1


def test_a_trace_of_a_damaged_file_is_not_new_the_night_after(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.json"
    whole = f"[{line(chat('a', '1'))}, {line(chat('b', '1'))}]"
    config = tmp_path / "traced.yaml"
    config.write_text(WITHOUT_CONTEXTS.replace("FILE", "t.json"), "utf-8")
    with chdir(tmp_path):
        for text in (whole, whole[:-200], whole):
            path.write_text(text, "utf-8")
            capsys.readouterr()
            assert main(["run", "traced.yaml"]) == 0
    assert "0 of 2 samples; left out: since 2" in capsys.readouterr().out


def test_a_trace_whose_line_is_damaged_for_a_night_is_not_new_after_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = [line(chat(name, "1")) for name in "abc"]
    config = tmp_path / "traced.yaml"
    config.write_text(WITHOUT_CONTEXTS.replace("FILE", "'*.jsonl'"), "utf-8")
    with chdir(tmp_path):
        for lines in (whole, [whole[0], whole[1][:-9], whole[2]], whole):
            if lines is not whole:
                (tmp_path / "new.jsonl").write_text(line(chat("d", "1")), "utf-8")
            (tmp_path / "t.jsonl").write_text("\n".join(lines), "utf-8")
            capsys.readouterr()
            assert main(["run", "traced.yaml"]) == 0
    assert "0 of 4 samples; left out: since 4" in capsys.readouterr().out


def test_no_file_name_forges_a_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a\x1b[31m\nINFO forged.jsonl").write_text(f"{line(chat('a', '1'))}\n{{\n", "utf-8")
    config = tmp_path / "traced.yaml"
    config.write_text(WITHOUT_CONTEXTS.replace("FILE", "'*.jsonl'"), "utf-8")
    with chdir(tmp_path):
        assert main(["plan", "traced.yaml"]) == 0
    (told,) = [one for one in caplog.messages if "damaged" in one]
    assert told.startswith("claimflow: warning: a\u241b[31m\u240aINFO forged.jsonl: left out: ")
    assert told.isprintable()
    (tmp_path / "b\nINFO forged.jsonl").write_text("no record\n", "utf-8")
    with chdir(tmp_path), pytest.raises(InputError) as caught:
        prepare(config)
    assert "\n" not in str(caught.value)
    assert "b\u240aINFO forged.jsonl: no trace gives a sample" in str(caught.value)


def test_what_is_left_out_is_told_before_a_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = tmp_path / "traced.yaml"
    config.write_text(PIPELINE.replace("FILE", str(DATA / "otlp.jsonl")), "utf-8")
    with chdir(tmp_path):
        assert main(["plan", "traced.yaml"]) == 0
    assert caplog.text.count("left out: damaged records 1") == 1
