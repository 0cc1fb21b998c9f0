"""Samples from Python objects are those of the same rows in a file."""

import csv
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import polars as pl
import pytest
from pydantic import BaseModel

from claimflow.flows.pipeline.limits import COLUMNS, LIST_TEXTS
from claimflow.flows.samples.memory import samples_from
from claimflow.flows.samples.reader import SampleSource, read_samples

ROWS: list[dict[str, Any]] = [
    {
        "question": f"Where is {n}?",
        "answer": None if n == 3 else f"In the {n}th street, naïve 日本 👩‍👩‍👧.",
        "contexts": [f"{n} is there.", ""] if n % 3 else [],
        "ground_truth": "" if n == 5 else "There.",
        "topic": "a" if n % 2 else None,
        "rank": n,
        "score": n / 4,
        "new": n % 2 == 0,
    }
    for n in range(600)
]


NESTED: list[dict[str, Any]] = [
    {"answer": f"a{n}", "metadata": {"topic": "law", "rank": n, "by": {"name": None}}}
    for n in range(2)
]


@dataclass
class Answer:
    question: str
    answer: str | None
    contexts: list[str] = field(default_factory=list)


class AnswerModel(BaseModel):
    question: str
    answer: str | None
    contexts: list[str] = []


class AnswerTuple(NamedTuple):
    question: str
    answer: str | None
    contexts: list[str]


class Kind(StrEnum):
    SHORT = "short"


@pytest.fixture(scope="module")
def in_file(tmp_path_factory: pytest.TempPathFactory) -> SampleSource:
    folder = tmp_path_factory.mktemp("samples")
    (folder / "s.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    return read_samples("s.jsonl", base=folder, rename={})


def rows(source: SampleSource) -> list[dict[str, Any]]:
    assert source.faults == ()
    return [row for shard in source.shards(1_000) for row in shard.iter_rows(named=True)]


def only(answers: Any, **options: Any) -> dict[str, Any]:
    (row,) = rows(samples_from(answers, **options))
    return row


def messages(answers: Any, **options: Any) -> list[str]:
    return [str(fault) for fault in samples_from(answers, **options).faults]


def assert_same(answers: Any, expected: SampleSource) -> None:
    found = samples_from(answers)
    assert rows(found) == rows(expected)
    assert (found.digest, found.count, found.present) == (
        expected.digest,
        expected.count,
        expected.present,
    )
    assert found.mapping == expected.mapping


def pandas() -> Any:
    return pytest.importorskip("pandas", reason="pandas is not installed")


def pyarrow() -> Any:
    return pytest.importorskip("pyarrow", reason="pyarrow is not installed")


def datasets() -> Any:
    return pytest.importorskip("datasets", reason="datasets is not installed")


class ArrowStream:
    """A table of another library, of which only the Arrow stream is known."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._frame.__arrow_c_stream__(requested_schema)


class RagasDataset:
    """What ragas' `EvaluationDataset` has in public: `to_list` leaves out what is None."""

    def __init__(self, samples: list[AnswerModel]) -> None:
        self.samples = samples

    def to_list(self) -> list[dict[str, Any]]:
        return [sample.model_dump(exclude_none=True) for sample in self.samples]


@pytest.mark.parametrize(
    "make",
    [
        lambda: ROWS,
        lambda: tuple(ROWS),
        lambda: iter(ROWS),
        lambda: (dict(row) for row in ROWS),
        lambda: pl.DataFrame(ROWS),
        lambda: pl.LazyFrame(ROWS),
        lambda: ArrowStream(pl.DataFrame(ROWS)),
        lambda: pandas().DataFrame(ROWS),
        lambda: pandas().DataFrame(ROWS).convert_dtypes(),
        lambda: pyarrow().Table.from_pylist(ROWS),
        lambda: pyarrow().Table.from_pylist(ROWS).to_reader(max_chunksize=7),
        lambda: datasets().Dataset.from_list(ROWS),
        lambda: datasets().Dataset.from_list(ROWS).with_format("numpy"),
        lambda: datasets().DatasetDict({"test": datasets().Dataset.from_list(ROWS)}),
    ],
    ids=[
        "list",
        "tuple",
        "iterator",
        "generator",
        "polars",
        "lazy",
        "stream",
        "pandas",
        "pandas nullable",
        "arrow",
        "reader",
        "dataset",
        "formatted dataset",
        "split",
    ],
)
def test_the_same_samples_as_in_a_file(make: Any, in_file: SampleSource) -> None:
    assert_same(make(), in_file)


def test_objects_as_rows(tmp_path: Path) -> None:
    answers: list[tuple[str, str | None, list[str]]] = [("q", "a", ["c", "d"]), ("r", None, [])]
    lines = [{"question": q, "answer": a, "contexts": c} for q, a, c in answers]
    (tmp_path / "s.jsonl").write_text("\n".join(map(json.dumps, lines)))
    expected = read_samples("s.jsonl", base=tmp_path, rename={})
    assert_same([Answer(*answer) for answer in answers], expected)
    assert_same([AnswerTuple(*answer) for answer in answers], expected)
    models = [AnswerModel(question=q, answer=a, contexts=c) for q, a, c in answers]
    assert_same(models, expected)
    assert_same(RagasDataset(models), expected)
    assert_same(tmp_path / "s.jsonl", expected)
    assert_same(str(tmp_path / "s.jsonl"), expected)


def test_rename_limit_and_no_id(in_file: SampleSource) -> None:
    first = samples_from(ROWS, limit=2)
    assert (first.count, first.available, first.selection) == (2, 600, "--limit 2")
    assert rows(first) == rows(in_file)[:2]
    assert only([{"text": "x", "answer": "y"}], rename={"text": "response"})["response"] == "x"
    same, copy = rows(samples_from([{"answer": "x"}, {"answer": "x"}]))
    assert same["sample_id"] != copy["sample_id"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: NESTED,
        lambda: pl.DataFrame(NESTED),
        lambda: pandas().DataFrame(NESTED),
        lambda: pyarrow().Table.from_pylist(NESTED),
        lambda: datasets().Dataset.from_list(NESTED),
    ],
    ids=["list", "polars", "pandas", "arrow", "dataset"],
)
def test_nested_metadata_is_as_if_it_stood_in_the_row(make: Any, tmp_path: Path) -> None:
    flat = [{"answer": row["answer"], **row["metadata"]} for row in NESTED]
    (tmp_path / "flat.jsonl").write_text("\n".join(map(json.dumps, flat)))
    (tmp_path / "nested.jsonl").write_text("\n".join(map(json.dumps, NESTED)))
    expected = read_samples("flat.jsonl", base=tmp_path, rename={})
    in_file = read_samples("nested.jsonl", base=tmp_path, rename={})
    for found in (samples_from(make()), in_file):
        assert rows(found) == rows(expected)
        assert found.metadata == {"topic", "rank", "by"}
        assert found.warnings == ()


def test_members_of_metadata_that_the_sample_has_itself() -> None:
    nested = {"topic": "law", "id": "x7", "metadata": {"deep": 1}, "same": [1], "messages": "m"}
    row = {"id": "s1", "answer": "a", "topic": "art", "same": [1], "empty": None}
    found = samples_from([{**row, "metadata": {**nested, "empty": 5, "gold": "g"}}])
    (sample,) = rows(found)
    assert (sample["sample_id"], sample["response"], sample["reference"]) == ("s1", "a", None)
    assert json.loads(sample["metadata"]) == {
        "topic": "art",
        "same": [1],
        "empty": 5,
        "gold": "g",
        "metadata": {name: nested[name] for name in ("topic", "id", "metadata", "messages")},
    }
    assert [str(warning) for warning in found.warnings] == [
        "answers[0]: the sample and its metadata have another 'topic'; that of the sample counts; "
        "keep one of them"
    ]


def test_metadata_fills_no_field_unless_it_is_renamed() -> None:
    answers = [{"answer": "a", "metadata": {"reference": "r", "gold": "g"}}] * 2
    found = samples_from(answers)
    assert [row["reference"] for row in rows(found)] == [None, None]
    assert [str(warning) for warning in found.warnings] == [
        "answers[0]: the metadata has 'reference', which is not taken as 'reference' (and 1 more); "
        "write rename: {reference: reference}, or a column 'reference'"
    ]
    for name, text in (("reference", "r"), ("gold", "g")):
        renamed = samples_from(answers, rename={name: "reference"})
        assert [row["reference"] for row in rows(renamed)] == [text, text]
        assert renamed.warnings == ()
    text = only([{"answer": "a", "metadata": "m"}], rename={"metadata": "reference"})
    assert text["reference"] == "m"


def test_metadata_may_be_an_object_in_a_text(tmp_path: Path) -> None:
    nested = '{"topic": "law", "n": 3, "nan": NaN, "wide": 1e999, "of": {"a": [1]}}'
    content = io.StringIO()
    csv.writer(content).writerows([["answer", "metadata"], ["a", nested], ["b", "{x"]])
    (tmp_path / "a.csv").write_text(content.getvalue())
    in_file = rows(read_samples("a.csv", base=tmp_path, rename={}))
    in_memory = rows(
        samples_from([{"answer": "a", "metadata": nested}, {"answer": "b", "metadata": "{x"}])
    )
    for found in (in_file, in_memory):
        assert [json.loads(row["metadata"]) for row in found] == [
            {"topic": "law", "n": 3, "nan": None, "wide": None, "of": {"a": [1]}},
            {"metadata": "{x"},
        ]


def test_turns_whose_conversation_is_in_the_metadata() -> None:
    answers = [{"answer": "a", "metadata": {"conversation_id": "c", "turn": n}} for n in (1, 1)]
    (message,) = messages(answers)
    assert message.startswith("answers[1]: turn 1 of conversation 'c' is already at answers[0]")


def test_hostile_metadata() -> None:
    deep: dict[str, Any] = {}
    for _ in range(200_000):
        deep = {"x": deep}
    many = {f"m{n}": n for n in range(COLUMNS)}
    for nested, wrong in ((many, "10,001 columns"), ({"x": deep}, "brackets nested")):
        (message,) = messages([{"answer": "a"}, {"answer": "b", "metadata": nested}][1:])
        assert wrong in message
    # A stranger cannot make a warning for each of a million names.
    clashes = [{"answer": "a", f"m{n}": 1, "metadata": {f"m{n}": 2}} for n in range(100)]
    assert len(samples_from(clashes).warnings) == 20


def test_missing_values_of_numpy_and_pandas() -> None:
    nan = float("nan")
    row = only([{"answer": nan, "reference": np.float64("nan"), "score": nan, "n": [1.0, nan]}])
    assert (row["response"], row["reference"]) == (None, None)
    assert json.loads(row["metadata"]) == {"score": None, "n": [1.0, None]}
    pd = pandas()
    columns = {
        "answer": ["a", None, nan, pd.NA],
        "time": [pd.Timestamp("2026-01-02T03:04:05Z"), pd.NaT, None, pd.NaT],
        "count": pd.array([1, None, 3, None], dtype="Int64"),
    }
    found = rows(samples_from(pd.DataFrame(columns)))
    assert [row["response"] for row in found] == ["a", None, None, None]
    assert [json.loads(row["metadata"]) for row in found] == [
        {"time": "2026-01-02T03:04:05+00:00", "count": 1},
        {"time": None, "count": None},
        {"time": None, "count": 3},
        {"time": None, "count": None},
    ]


def test_a_named_index_of_pandas_is_a_column() -> None:
    frame = pandas().DataFrame({"id": ["x", "y"], "answer": ["a", "b"]}).set_index("id")
    assert [row["sample_id"] for row in rows(samples_from(frame))] == ["x", "y"]
    assert messages(frame.assign(id=1)) == [
        "answers: two columns are named 'id'; name every column once"
    ]


def test_values_of_other_types_become_json() -> None:
    values = {
        "answer": np.str_("a"),
        "contexts": np.array(["c", "d"]),
        "kind": Kind.SHORT,
        "day": date(2026, 1, 2),
        "at": datetime(2026, 1, 2, tzinfo=UTC),
        "price": Decimal("1.50"),
        "key": UUID(int=1),
        "n": np.int64(3),
        "yes": np.bool_(True),
        "raw": b"\x01",
        "nested": [{"a": (1, 2)}],
        7: AnswerTuple("q", None, []),
    }
    row = only([values])
    assert (row["response"], row["retrieved_contexts"]) == ("a", ["c", "d"])
    assert json.loads(row["metadata"]) == {
        "kind": "short",
        "day": "2026-01-02",
        "at": "2026-01-02T00:00:00+00:00",
        "price": "1.50",
        "key": str(UUID(int=1)),
        "n": 3,
        "yes": True,
        "raw": "01",
        "nested": [{"a": [1, 2]}],
        "7": {"question": "q", "answer": None, "contexts": []},
    }
    polars = pl.DataFrame({"answer": ["a"], "day": [date(2026, 1, 2)], "d": [Decimal("1.5")]})
    assert json.loads(only(polars)["metadata"]) == {"day": "2026-01-02", "d": "1.5"}


def test_a_name_that_two_columns_of_arrow_have() -> None:
    table = pyarrow().table([["a"], ["b"]], names=["response", "response"])
    [message] = messages(table)
    assert message.startswith("answers: two columns have one name (")
    assert message.endswith('["response"]); name every column once')


@pytest.mark.parametrize("kind", ["arrow", "polars", "lazy", "parquet"])
def test_times_that_python_cannot_hold(kind: str, tmp_path: Path) -> None:
    times = pl.Series("at", [*range(40), 2**62, 5]).cast(pl.Datetime("us"))
    frame = pl.DataFrame({"answer": [f"a{n}" for n in range(42)], "at": times})
    path = tmp_path / "s.parquet"
    frame.write_parquet(path)
    answers = {"arrow": ArrowStream(frame), "polars": frame, "lazy": frame.lazy(), "parquet": path}
    place = f"{path} row 41" if kind == "parquet" else "answers[40]"
    what = "a time that Python cannot hold (year 148108 is out of range)"
    assert messages(answers[kind]) == [f"{place}: {what}; write it as text"]
    assert samples_from(answers[kind], skip_unusable=True).count == 41


def test_lists_that_are_text_are_read_as_in_csv() -> None:
    frame = pl.DataFrame({"contexts": ['["a", "b"]', "['a', 'b']", "[1] a source"]})
    found = [row["retrieved_contexts"] for row in rows(samples_from(frame))]
    assert found == [["a", "b"], ["a", "b"], ["[1] a source"]]


def test_surrogates_are_those_of_json(tmp_path: Path) -> None:
    row = {"answer": "a\ud800b \ud83d\ude00", "topic": "\udfff", "\ud800": [{"\udfff": 1}]}
    (tmp_path / "s.jsonl").write_text(json.dumps(row))
    assert_same([row], read_samples("s.jsonl", base=tmp_path, rename={}))


def test_nothing_of_the_caller_is_changed() -> None:
    row = {"ground_truths": ["a", "b"], "contexts": [{"text": "c", "n": 1}], "other": [[1]]}
    before = json.dumps(row)
    assert only([row])["other_references"] == ["b"]
    assert json.dumps(row) == before
    frame = pandas().DataFrame([row])
    copy = frame.copy(deep=True)
    samples_from(frame)
    assert frame.equals(copy)
    assert list(frame.columns) == list(copy.columns)


def test_results_of_ragchecker() -> None:
    result = {
        "query_id": "7",
        "query": "q",
        "gt_answer": "g",
        "response": "r",
        "retrieved_context": [{"doc_id": "1", "text": "c"}],
        "response_claims": [["r", "is", "it"]],
        "gt_answer_claims": ["g is it"],
        "metrics": {},
    }
    row = only({"results": [result], "metrics": {"overall_metrics": {}}})
    assert row["sample_id"] == "7"
    assert (row["user_input"], row["reference"], row["response"]) == ("q", "g", "r")
    assert row["retrieved_contexts"] == ["c"]
    assert (row["response_claims"], row["reference_claims"]) == (["r is it"], ["g is it"])
    assert json.loads(row["metadata"]) == {"retrieved_context": [{"doc_id": "1"}], "metrics": {}}

    class RAGResults:
        def __init__(self) -> None:
            self.results = [result]

    assert only(RAGResults()) == row
    assert messages({"results": [result, {"response": 1}, 2]}) == [
        "answers['results'][1]: 'response' is a number; write it as text",
        "answers['results'][2]: is of type int; give a dict of its columns",
    ]


def test_faults_name_the_row() -> None:
    bad: Iterator[Any] = iter(
        [
            {"id": 1, "answer": "a"},
            {"id": 2, "answer": 5, "contexts": ["c", None]},
            "text",
            {"id": 1},
            {"answer": object()},
            {"score": float("inf")},
            {"x": [SimpleNamespace(a=1)]},
            {"id": 10**5000},
            {"id": 10**3000},
        ]
    )
    assert messages(bad) == [
        "answers[1]: 'answer' is a number; write it as text",
        "answers[1]: 'contexts' holds null in place 2; write a list of texts",
        "answers[2]: is of type str; give a dict of its columns",
        "answers[3]: sample_id '1' is already at answers[0]; give every sample an id of its own",
        "answers[4]: 'answer' holds a object; give text, numbers, lists or dicts",
        "answers[5]: a number is NaN or beyond 64-bit floats; write null or text",
        "answers[6]: 'x' holds a SimpleNamespace; give text, numbers, lists or dicts",
        "answers[7]: 'id' has more than 2,000 digits; divide it, or write less",
        "answers[8]: 'id' has 3,001 characters, more than 2,000; divide it, or write less",
    ]
    assert messages([{"answer": 1}], name="rows") == [
        "rows[0]: 'answer' is a number; write it as text"
    ]
    frame = pandas().DataFrame({"answer": ["a", 5]}, index=["x", "y"])
    assert messages(frame) == ["answers.iloc[1]: 'answer' is a number; write it as text"]


def test_what_is_not_samples() -> None:
    hint = "give a table, a list of dicts, a dataset, or the path of a file"
    assert messages(5) == [f"answers: is of type int; {hint}"]
    assert messages(b"{}") == [f"answers: is of type bytes; {hint}"]
    assert messages([]) == ["answers: no samples; give at least one"]
    assert messages(pl.DataFrame()) == ["answers: no samples; give at least one"]
    assert messages({"answer": "a"}) == [
        "answers: is one mapping instead of many; put it into a list: [answers]"
    ]
    assert messages({"question": ["q"], "answer": ["a"]}) == [
        "answers: is one mapping, of columns; give a table of them: polars.DataFrame(answers)"
    ]
    splits = {"train": [{"answer": "a"}], "test": pl.DataFrame({"answer": [1]})}
    assert messages({"test": splits["test"]}) == [
        "answers['test'][0]: 'answer' is a number; write it as text"
    ]
    tables = {name: pl.DataFrame({"answer": ["a"]}) for name in ("train", "test")}
    assert messages(tables) == [
        "answers: holds several datasets: 'train', 'test'; give one of them, "
        "such as answers['train']"
    ]
    assert messages("no.jsonl")[0].startswith("no.jsonl: no such file; ")


def test_hostile_sizes() -> None:
    deep: list[Any] = []
    deep.append(deep)
    assert messages([{"x": deep}]) == [
        "answers[0]: brackets nested about a thousand deep; use less nesting"
    ]
    assert messages([{"contexts": ["a"] * (LIST_TEXTS + 1)}]) == [
        "answers[0]: 'contexts' holds 10,001 texts, more than 10,000; keep those that matter"
    ]
    wide = {f"c{n}": ["x", "y"] for n in range(COLUMNS + 1)}
    what = "10,001 columns, more than 10,000; keep those that are needed"
    assert messages(pl.DataFrame(wide)) == [f"answers: {what}"]
    assert messages(pl.LazyFrame(wide)) == [f"answers: {what}"]
    assert messages([dict.fromkeys(wide, 1)]) == [f"answers[0]: {what}"]
    assert messages(pandas().DataFrame(wide)) == [f"answers: {what}"]


def test_an_exception_of_the_caller_is_the_callers() -> None:
    def broken() -> Iterator[dict[str, Any]]:
        yield {"answer": "a"}
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        samples_from(broken())


def test_no_library_is_imported() -> None:
    code = """
import sys
from claimflow.flows.samples.memory import samples_from
assert samples_from([{"answer": "a"}]).count == 1
print({"pandas", "pyarrow", "datasets", "ragas", "numpy"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
