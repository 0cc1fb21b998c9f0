"""Samples of every format are read unchanged, in order, with their ids."""

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from claimflow.flows.samples.formats import FORMATS
from claimflow.flows.samples.reader import SampleSource, read_samples
from claimflow.flows.samples.records import Format, Record, RecordError
from claimflow.stages.rows import Sample
from claimflow.stages.tables import schema

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
SAMPLES = st.lists(
    st.fixed_dictionaries(
        {"sample_id": TEXTS.filter(str.strip)},
        optional={
            "user_input": st.none() | TEXTS,
            "response": st.none() | TEXTS,
            "reference": st.none() | TEXTS,
            "retrieved_contexts": st.none() | st.lists(TEXTS, max_size=3),
            "other_references": st.lists(TEXTS, max_size=2),
            "model": st.none() | TEXTS,
            "rank": st.none() | st.integers() | st.booleans(),
        },
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda sample: sample["sample_id"],
)


def write_jsonl(path: Path, samples: list[dict[str, Any]]) -> None:
    path.write_text("\n".join(json.dumps(sample) for sample in samples))


def write_json(path: Path, samples: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps(samples, ensure_ascii=False, indent=1), "utf-8", newline="")


def write_csv(path: Path, samples: list[dict[str, Any]]) -> None:
    """None as an empty cell, texts quoted, lists as JSON."""
    names = sorted({name for sample in samples for name in sample})

    def cell(value: Any) -> str:
        text = json.dumps(value) if isinstance(value, list) else value
        return "" if text is None else '"' + text.replace('"', '""') + '"'

    rows = [",".join(names), *(",".join(cell(s.get(n)) for n in names) for s in samples)]
    path.write_text("\n".join(rows) + "\n", "utf-8", newline="")


def write_parquet(path: Path, samples: list[dict[str, Any]]) -> None:
    types = {**schema(Sample), "model": pl.String}
    names = sorted({name for sample in samples for name in sample})
    columns = {name: [sample.get(name) for sample in samples] for name in names}
    pl.DataFrame(columns, schema={name: types[name] for name in names}).write_parquet(path)


WRITERS = {
    ".jsonl": write_jsonl,
    ".json": write_json,
    ".csv": write_csv,
    ".parquet": write_parquet,
}


def read(
    folder: Path, path: str, *, rename: Mapping[str, str] | None = None, limit: int | None = None
) -> SampleSource:
    source = read_samples(path, base=folder, rename=rename or {}, limit=limit)
    assert source.faults == ()
    return source


def rows(source: SampleSource) -> list[dict[str, Any]]:
    return [row for shard in source.shards(1000) for row in shard.iter_rows(named=True)]


def lines(folder: Path, *samples: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    write_jsonl(folder / "s.jsonl", list(samples))
    return rows(read(folder, "s.jsonl", **options))


def expected(sample: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(metadata, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    known = {name: sample.get(name) for name in Sample.model_fields}
    return known | {"other_references": sample.get("other_references") or [], "metadata": text}


@pytest.mark.parametrize("ending", [".jsonl", ".json"])
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(samples=SAMPLES)
def test_json_is_read_unchanged(tmp_path: Path, ending: str, samples: list[dict[str, Any]]) -> None:
    WRITERS[ending](tmp_path / f"s{ending}", samples)
    wanted = [expected(s, {n: s[n] for n in ("model", "rank") if n in s}) for s in samples]
    assert rows(read(tmp_path, f"s{ending}")) == wanted


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(samples=SAMPLES)
def test_tables_are_read_unchanged(
    tmp_path: Path, ending: str, samples: list[dict[str, Any]]
) -> None:
    samples = [{n: v for n, v in sample.items() if n != "rank"} for sample in samples]
    WRITERS[ending](tmp_path / f"s{ending}", samples)
    table_has_model = any("model" in sample for sample in samples)
    wanted = [expected(s, {"model": s.get("model")} if table_has_model else {}) for s in samples]
    assert rows(read(tmp_path, f"s{ending}")) == wanted


def test_a_file_of_the_csv_module_is_read(tmp_path: Path) -> None:
    with (tmp_path / "s.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "question", "contexts"])
        writer.writerow([7, 'a "quoted", text\nof two lines', '["one", "two"]'])
    (row,) = rows(read(tmp_path, "s.csv"))
    assert row["sample_id"] == "7"
    assert row["user_input"] == 'a "quoted", text\nof two lines'
    assert row["retrieved_contexts"] == ["one", "two"]


@pytest.mark.parametrize("ending", [".jsonl", ".json", ".csv", ".parquet"])
def test_any_text_is_read_unchanged(tmp_path: Path, ending: str) -> None:
    texts = [
        "",
        " ",
        "a\x00b",
        "日本語",
        "שלום",
        "👩‍👩‍👧",
        "e\u0301",
        "\u2028\x85\x0b",
        "\\ud800",
        "x" * 1_000_000,
    ]
    samples = [{"sample_id": str(n), "response": text} for n, text in enumerate(texts)]
    WRITERS[ending](tmp_path / f"s{ending}", samples)
    assert [row["response"] for row in rows(read(tmp_path, f"s{ending}"))] == texts


@pytest.mark.parametrize("ending", [".jsonl", ".json"])
def test_lone_surrogates_become_replacement_characters(tmp_path: Path, ending: str) -> None:
    text = r'{"response": "a\ud800b \udc00\uD800 \ud83d\ude00 \\ud800", "\udfff": 1}'
    (tmp_path / f"s{ending}").write_text(f"[{text}]" if ending == ".json" else text)
    (row,) = rows(read(tmp_path, f"s{ending}"))
    assert row["response"] == "a\ufffdb \ufffd\ufffd 😀 \\ud800"
    assert row["metadata"] == '{"\ufffd":1}'


@pytest.mark.parametrize("ending", [".jsonl", ".json"])
def test_a_sample_of_twenty_megabytes(tmp_path: Path, ending: str) -> None:
    large = {"response": "x" * 5_000_000, "contexts": ["y" * 5_000_000] * 3}
    WRITERS[ending](tmp_path / f"s{ending}", [large, {"response": ""}])
    assert [len(row["response"]) for row in rows(read(tmp_path, f"s{ending}"))] == [5_000_000, 0]


def test_metadata_keeps_every_other_value_exactly(tmp_path: Path) -> None:
    deep: Any = 1
    for _ in range(500):
        deep = [deep]
    other = {"big": 2**70, "pi": 3.25, "no": None, "yes": True, "in": {"b": [1, "é"]}, "deep": deep}
    (row,) = lines(tmp_path, {"response": "r", **other})
    assert json.loads(row["metadata"]) == other


def test_null_and_empty_are_distinct(tmp_path: Path) -> None:
    empty, null = lines(
        tmp_path,
        {"id": 1, "response": "", "contexts": []},
        {"id": 2, "response": None, "contexts": None},
    )
    assert (empty["response"], empty["retrieved_contexts"]) == ("", [])
    assert (null["response"], null["retrieved_contexts"]) == (None, None)


def test_byte_order_marks_blank_lines_and_crlf(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_bytes(b'\xef\xbb\xbf{"id": 1}\r\n\r\n  \r\n{"id": 2}\r\n')
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbfid,answer\r\n3,x\r\n\r\n4,y\r\n")
    assert [row["sample_id"] for row in rows(read(tmp_path, "*.*"))] == ["1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ("id", "sample_id"),
        ("question", "user_input"),
        ("query", "user_input"),
        ("input", "user_input"),
        ("answer", "response"),
        ("actual_output", "response"),
        ("ground_truth", "reference"),
        ("ground_truths", "reference"),
        ("ground_truth_answers", "reference"),
        ("gt_answer", "reference"),
        ("expected_output", "reference"),
        ("contexts", "retrieved_contexts"),
        ("retrieved_context", "retrieved_contexts"),
        ("retrieval_context", "retrieved_contexts"),
    ],
)
def test_the_field_names_of_other_libraries(tmp_path: Path, given: str, field: str) -> None:
    write_jsonl(tmp_path / "s.jsonl", [{given: "text"}])
    source = read(tmp_path, "s.jsonl")
    assert source.mapping == {field: given}
    (row,) = rows(source)
    assert row[field] == (["text"] if field == "retrieved_contexts" else "text")


def test_files_may_name_a_field_differently(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "1.jsonl", [{"id": "a", "answer": "one", "response": None}])
    write_jsonl(tmp_path / "2.jsonl", [{"id": "b", "response": "two"}, {"answer": None, "id": "c"}])
    write_jsonl(tmp_path / "3.jsonl", [{"id": "d", "response": "three", "answer": None}])
    source = read(tmp_path, "*.jsonl")
    assert source.faults == ()
    assert source.mapping == {"sample_id": "id", "response": "answer or response"}
    assert [row["response"] for row in rows(source)] == ["one", "two", None, "three"]


def test_a_name_that_rename_leaves_out_is_told_where_it_is_missed(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "1.jsonl", [{"id": "a", "answer": "one"}])
    write_jsonl(tmp_path / "2.jsonl", [{"id": n, "response": "two"} for n in "bcd"])
    rename = {"answer": "response"}
    (told,) = read(tmp_path, "*.jsonl", rename=rename).warnings
    assert str(told) == (
        "2.jsonl:1: the sample has no 'response', since rename takes that from 'answer' "
        "(and 2 more); add response: response to rename, so that 'response' fills it, too"
    )
    source = read(tmp_path, "*.jsonl", rename=rename | {"response": "response"})
    assert source.warnings == ()
    assert [row["response"] for row in rows(source)] == ["one", "two", "two", "two"]


def test_rename_takes_precedence_over_known_names(tmp_path: Path) -> None:
    sample = {"answer": "old", "response": "older", "completion": "new", "id": 1}
    write_jsonl(tmp_path / "s.jsonl", [sample])
    source = read(tmp_path, "s.jsonl", rename={"completion": "response"})
    assert source.mapping == {"sample_id": "id", "response": "completion"}
    (row,) = rows(source)
    assert row["response"] == "new"
    assert row["metadata"] == '{"answer":"old","response":"older"}'


def test_present_fields_are_those_with_a_value(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "s.jsonl", [{"answer": None, "question": ""}, {"contexts": []}])
    found = read(tmp_path, "s.jsonl").present
    assert found & {"user_input", "response", "reference", "retrieved_contexts"} == {
        "user_input",
        "retrieved_contexts",
    }


def test_missing_ids_are_made_from_the_content_alone(tmp_path: Path) -> None:
    one, two, three = lines(
        tmp_path,
        {"question": "q", "answer": "a", "x": 1, "y": {"b": 2, "a": 1}},
        {"y": {"a": 1, "b": 2}, "x": 1, "answer": "a", "question": "q"},
        {"question": "q", "answer": "a", "x": 2, "y": {"b": 2, "a": 1}},
    )
    again, first, second = lines(
        tmp_path,
        {"user_input": "other"},
        {"y": {"b": 2, "a": 1}, "x": 1, "response": "a", "user_input": "q"},
        {"user_input": "q", "response": "a", "x": 1, "y": {"b": 2, "a": 1}},
    )
    assert one["sample_id"] == first["sample_id"] == "d1b82d3d-8715-a500-152f-be3c91540fe4"
    assert two["sample_id"] == second["sample_id"] != one["sample_id"]
    assert len({row["sample_id"] for row in (one, two, three, again)}) == 4


def test_numbers_serve_as_ids(tmp_path: Path) -> None:
    samples = [{"id": 3}, {"id": 2.5}, {"id": "x"}]
    assert [row["sample_id"] for row in lines(tmp_path, *samples)] == ["3", "2.5", "x"]


def test_a_glob_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.json", "c.csv", ".hidden.jsonl"):
        WRITERS[Path(name).suffix](tmp_path / name, [{"sample_id": name}])
    (tmp_path / "sub[1]").mkdir()
    write_json(tmp_path / "sub[1]" / "d.json", [{"sample_id": "d.json"}])
    assert [r["sample_id"] for r in rows(read(tmp_path, "*.*"))] == ["a.json", "b.jsonl", "c.csv"]
    assert [r["sample_id"] for r in rows(read(tmp_path, "**/*.json"))] == ["a.json", "d.json"]
    assert [r["sample_id"] for r in rows(read(tmp_path, "sub[1]/d.json"))] == ["d.json"]
    assert [r["sample_id"] for r in rows(read(tmp_path, f"{tmp_path}/b*"))] == ["b.jsonl"]


def test_shards_keep_the_order_and_the_size(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "s.jsonl", [{"id": n} for n in range(1203)])
    source = read(tmp_path, "s.jsonl")
    shards = list(source.shards(500))
    assert [shard.height for shard in shards] == [500, 500, 203]
    assert source.count == 1203
    assert pl.concat(shards)["sample_id"].to_list() == [str(n) for n in range(1203)]
    assert all(shard.schema == schema(Sample) for shard in shards)
    assert {shard.height for shard in source.shards(1)} == {1}
    assert [shard.height for shard in source.shards(5000)] == [1203]


def test_files_that_change_later_have_no_effect(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "s.jsonl", [{"id": 1}])
    source = read(tmp_path, "s.jsonl")
    (tmp_path / "s.jsonl").unlink()
    assert [row["sample_id"] for row in rows(source)] == ["1"]
    assert [row["sample_id"] for row in rows(source)] == ["1"]


def test_a_limit_reads_the_first_samples_only(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n{"id": 2}\nbroken\n')
    source = read(tmp_path, "a.jsonl", limit=2)
    assert source.count == 2
    assert [row["sample_id"] for row in rows(source)] == ["1", "2"]


def test_samples_beyond_the_memory_limit_spill_to_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("claimflow.flows.samples.buffer._SPILL_BYTES", 1000)
    write_jsonl(tmp_path / "s.jsonl", [{"id": n, "response": "x" * 100} for n in range(600)])
    assert [row["sample_id"] for row in rows(read(tmp_path, "s.jsonl"))] == [
        str(n) for n in range(600)
    ]


def test_parquet_values_become_json(tmp_path: Path) -> None:
    frame = pl.select(
        id=pl.lit("p"),
        day=pl.date(2026, 11, 2),
        at=pl.datetime(2026, 11, 2, 3, 4, 5),
        missing=pl.lit(float("nan")),
        price=pl.lit("1.50").cast(pl.Decimal(10, 2)),
        raw=pl.lit(b"\xaa\x01"),
        inner=pl.struct(a=pl.lit(1), t=pl.lit(True)),
        context=pl.lit("kept"),
    )
    frame.write_parquet(tmp_path / "s.parquet")
    (row,) = rows(read(tmp_path, "s.parquet"))
    assert json.loads(row["metadata"]) == {
        "day": "2026-11-02",
        "at": "2026-11-02T03:04:05",
        "missing": None,
        "price": "1.50",
        "raw": "aa01",
        "inner": {"a": 1, "t": True},
        "context": "kept",
    }


def read_colons(path: Path) -> Iterator[Record]:
    """`name: value`, one sample a line."""
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        name, _, value = line.partition(": ")
        yield Record(number, {name: value} if value else RecordError("no value", "write one"))


def test_a_format_is_one_function_and_one_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FORMATS, ".colon", Format(read_colons, "{name} line {number}"))
    (tmp_path / "s.colon").write_text("answer: Yes.\nquestion: Why?\n", "utf-8")
    assert [row["response"] for row in rows(read(tmp_path, "s.colon"))] == ["Yes.", None]
    (tmp_path / "t.colon").write_text("answer\n", "utf-8")
    (fault,) = read_samples("t.colon", base=tmp_path, rename={}).faults
    assert str(fault) == "t.colon line 1: no value; write one"


def test_the_demo_is_read() -> None:
    source = read(Path(__file__).parents[2] / "configs", "demo.jsonl")
    assert source.count == 40
    assert source.mapping == {
        "sample_id": "id",
        "user_input": "user_input",
        "response": "response",
        "reference": "reference",
        "retrieved_contexts": "retrieved_contexts",
    }
    labels = {json.loads(row["metadata"])["human_label"] for row in rows(source)}
    assert labels == {"good", "mixed", "poor"}


RESULT = {
    "query_id": "7",
    "query": "q",
    "gt_answer": "g",
    "response": "r",
    "retrieved_context": [{"doc_id": "1", "text": "c"}],
    "response_claims": [["r", "is", "it"], ["s"]],
    "gt_answer_claims": [["g", "is", "it"]],
}


def test_results_of_ragchecker(tmp_path: Path) -> None:
    metrics = {"overall_metrics": {"f1": 1.5e-3}, "names": ["}", '\\"results\\": [']}
    for results in (
        {"results": [RESULT], "metrics": metrics},
        {"metrics": metrics, "n": -12.5, "results": [RESULT]},
    ):
        text = "\ufeff " + json.dumps(results, indent=1)
        (tmp_path / "s.json").write_text(text, "utf-8", newline="\r\n")
        (row,) = rows(read(tmp_path, "s.json"))
        assert (row["sample_id"], row["user_input"], row["reference"]) == ("7", "q", "g")
        assert (row["response"], row["retrieved_contexts"]) == ("r", ["c"])
        assert (row["response_claims"], row["reference_claims"]) == (["r is it", "s"], ["g is it"])
        assert json.loads(row["metadata"]) == {"retrieved_context": [{"doc_id": "1"}]}


def test_results_of_ragchecker_of_many_blocks(tmp_path: Path) -> None:
    results = [RESULT | {"query_id": str(n), "response": "é" * (n * 300_000)} for n in range(12)]
    text = json.dumps({"results": results, "metrics": {}}, ensure_ascii=False)
    (tmp_path / "s.json").write_text(text, "utf-8")
    found = rows(read(tmp_path, "s.json"))
    assert [len(row["response"]) for row in found] == [n * 300_000 for n in range(12)]


def test_contexts_with_a_separator(tmp_path: Path) -> None:
    samples = [{"contexts": "one\n\ntwo\n\n"}, {"contexts": ["a\n\nb"]}, {"contexts": ""}]
    samples.append({"contexts": None})
    write_jsonl(tmp_path / "s.jsonl", samples)
    source = read_samples("s.jsonl", base=tmp_path, rename={}, contexts_separator="\n\n")
    found = [row["retrieved_contexts"] for row in rows(source)]
    assert found == [["one", "two"], ["a\n\nb"], [], None]
    (tmp_path / "s.csv").write_text("answer,contexts\na,one | two\nb,\"['c | d', 'e']\"\n")
    source = read_samples("s.csv", base=tmp_path, rename={}, contexts_separator=" | ")
    found = [row["retrieved_contexts"] for row in rows(source)]
    assert found == [["one", "two"], ["c | d", "e"]]


def test_byte_order_marks_and_mixed_line_ends(tmp_path: Path) -> None:
    text = '\ufeff{"answer": "a"}\r\n\n{"answer": "b\u2028c"}\n{"answer": "d"}\r\n'
    (tmp_path / "s.jsonl").write_text(text, "utf-8", newline="")
    assert [row["response"] for row in rows(read(tmp_path, "s.jsonl"))] == ["a", "b\u2028c", "d"]
    (tmp_path / "s.csv").write_text("\ufeffanswer,topic\r\na,x\r\nb,y\r\n", "utf-8", newline="")
    assert [row["response"] for row in rows(read(tmp_path, "s.csv"))] == ["a", "b"]
