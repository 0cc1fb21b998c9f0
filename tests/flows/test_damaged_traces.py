"""Files of traces that are damaged in part: the rest is read, and the damage is told."""

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.pipeline.sample_choice import RedactedPattern
from claimflow.flows.samples import json_files, table_files
from claimflow.flows.samples.reader import SampleSource
from claimflow.flows.samples.redaction import Redactor
from claimflow.flows.traces.reader import read_traces

DATA = Path(__file__).parent.parent / "data/traces"
HEADER = "id,name,input,output\n"


def read(path: Path, **options: Any) -> SampleSource:
    return read_traces([path.name], base=path.parent, **options).samples


def ids(source: SampleSource) -> list[str]:
    return [row["sample_id"] for shard in source.shards(1_000) for row in shard.to_dicts()]


def told(source: SampleSource) -> list[tuple[str, str]]:
    return [(fault.what, fault.hint) for fault in source.warnings]


def csv_row(number: int) -> str:
    return f'{number},chat,"Is tin\na ""metal""?",Yes.\n'


def chat(number: int) -> str:
    asked = [{"role": "user", "content": "Is tin a metal?"}]
    return json.dumps({"id": str(number), "messages": asked, "response": "Yes."})


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        (b"x,y\n", "fewer cells than the header names"),
        (b"x,y,z,a,b\n", "more cells than the header names"),
        (b'3,chat,"Is it" so?,Yes.\n', "text behind a closing quote, or no closing quote"),
        (b'3,chat,"Is it,Yes.\n', "text behind a closing quote, or no closing quote"),
        (b'3,chat,Is it "so,Yes.\n', "text behind a closing quote, or no closing quote"),
        (b"3,chat\r4,chat\n", "mixed line ends, or not CSV"),
        (b"3,chat,Caf\xe9?,Yes.\n", "bytes that are not UTF-8"),
    ],
)
def test_rows_around_a_bad_one_are_read(bad: bytes, what: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = [csv_row(number).encode() for number in (1, 2, 4, 5)]
    path.write_bytes(b"".join([HEADER.encode(), *rows[:2], bad, *rows[2:]]))
    source = read(path)
    assert ids(source) == ["1", "2", "4", "5"]
    ((reason, hint),) = told(source)
    assert reason.startswith("left out: damaged records ")
    assert hint.startswith(f"first damaged record: t.csv:6: {what}; ")


def test_a_row_that_is_half_written_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(HEADER + csv_row(1) + '2,chat,"Is ti', "utf-8")
    source = read(path)
    assert (ids(source), told(source)[0][0]) == (["1"], "left out: damaged records 1")


def test_cells_are_those_of_a_csv_writer(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    values = [["1", "", '"a"\r\n, b', "c" * 200_000], ["2", "x", "\n", ""]]
    buffer = io.StringIO()
    csv.writer(buffer).writerows([HEADER.strip().split(","), *values])
    path.write_bytes(b"\xef\xbb\xbf" + buffer.getvalue().encode() + b"\r\n")
    found = [record.values for record in table_files.read_damaged_csv(path)]
    names = HEADER.strip().split(",")
    expected = [{n: v or None for n, v in zip(names, row, strict=True)} for row in values]
    assert found == expected


def test_other_readers_of_csv_keep_their_limit(tmp_path: Path) -> None:
    before = csv.field_size_limit()
    path = tmp_path / "t.csv"
    path.write_text(f"{HEADER}1,chat,{'x' * (before + 1)},Yes.\n", "utf-8")
    assert ids(read(path)) == ["1"]
    assert csv.field_size_limit() == before


@pytest.mark.parametrize(
    ("header", "what"),
    [
        ("id;name;input\n", "one column, named 'id;name;input'"),
        ("id,input,id\n", "two columns are named 'id'"),
    ],
)
def test_a_header_that_cannot_be_used_is_an_error(header: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "good.jsonl").write_text(chat(1), "utf-8")
    (tmp_path / "t.csv").write_text(header + "1;2;3\n", "utf-8")
    (fault,) = read_traces(["*"], base=tmp_path).samples.faults
    assert fault.hint.startswith(f"first damaged record: t.csv:1: {what}; ")


@pytest.mark.parametrize(
    ("text", "read_ids", "place", "what"),
    [
        (f"[{chat(1)}, {chat(2)}, {{]", ["1", "2"], 3, "broken JSON"),
        (f"[{chat(1)}, {chat(2)}, {chat(3)[:40]}", ["1", "2"], 3, "broken JSON"),
        (f"[{chat(1)}, {chat(2)}", ["1", "2"], 3, "broken JSON (the end of the file"),
        (f"[{chat(1)} {chat(2)}]", ["1"], 2, "broken JSON ('{' instead of"),
        (f"[{chat(1)}] {chat(2)}", ["1"], 2, "'{' behind the end of the array"),
    ],
)  # fmt: skip
def test_elements_before_damage_are_read(
    text: str, read_ids: list[str], place: int, what: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.json"
    path.write_text(text, "utf-8")
    source = read(path)
    assert ids(source) == read_ids
    ((reason, hint),) = told(source)
    assert reason == "left out: damaged records 1"
    assert hint.startswith(f"first damaged record: t.json:{place}: {what}")
    assert "the rest of the file was not read" in hint


def test_an_element_that_is_too_large_ends_an_array(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_files, "RECORD_BYTES", 1 << 20)
    path = tmp_path / "t.json"
    path.write_text(f"[{chat(1)}, {json.dumps({'id': 'x' * 5_000_000})}, {chat(2)}]", "utf-8")
    source = read(path)
    assert ids(source) == ["1"]
    assert (
        "or one sample of more than 1 MiB; the rest of the file was not read" in told(source)[0][1]
    )


def test_elements_behind_one_that_is_not_utf8_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    latin = chat(2).replace("tin", "\xe9tain").encode("latin-1")
    path.write_bytes(f"\ufeff[{chat(1)}, 5,".encode() + latin + f", {chat(3)}]".encode())
    source = read(path)
    assert ids(source) == ["1", "3"]
    assert told(source)[0][0] == "left out: damaged records 2"


@pytest.mark.parametrize("ending", ["jsonl", "json", "csv"])
def test_what_comes_before_the_end_of_a_cut_gzip_file_is_read(ending: str, tmp_path: Path) -> None:
    numbers = range(5_000)
    lines = {
        "jsonl": "".join(f"{chat(n)}\n" for n in numbers),
        "json": f"[{','.join(map(chat, numbers))}]",
        "csv": HEADER + "".join(map(csv_row, numbers)),
    }
    path = tmp_path / f"t.{ending}.gz"
    path.write_bytes(gzip.compress(lines[ending].encode())[:-500])
    source = read(path)
    assert 1_000 < source.count < len(numbers)
    ((reason, hint),) = told(source)
    assert reason == "left out: damaged records 1"
    assert "the compressed data are damaged or cut off; write it again" in hint


@pytest.mark.parametrize("name", ["t.jsonl.gz", "t.jsonl"])
def test_a_file_without_a_readable_record_is_an_error(name: str, tmp_path: Path) -> None:
    (tmp_path / "good.jsonl").write_text(chat(1), "utf-8")
    (tmp_path / name).write_text("a note without an end of line", "utf-8")
    for trace_format in ("auto", "chat"):
        (fault,) = read_traces(["*"], base=tmp_path, trace_format=trace_format).samples.faults
        assert fault.place == name
        assert fault.hint.startswith(f"first damaged record: {name}:1: ")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.json", json.dumps([{"id": "2", "messages": []}], indent=1)[:30].encode()),
        ("t.json", b'{\n "resourceSpans": [\n  {"scopeSp'),
        ("t.jsonl", chat(2)[:30].encode()),
        ("t.csv", f"{HEADER}2,chat".encode()),
        ("t.jsonl.gz", gzip.compress(chat(2).encode(), mtime=0)[:10]),
        ("t.json.gz", gzip.compress(f"[{chat(2)}]".encode(), mtime=0)[:-30]),
    ],
)
def test_a_file_that_is_being_written_is_no_error(
    name: str, content: bytes, tmp_path: Path
) -> None:
    (tmp_path / "good.jsonl").write_text(chat(1), "utf-8")
    (tmp_path / name).write_bytes(content)
    source = read_traces(["*"], base=tmp_path).samples
    assert source.faults == ()
    assert source.count == 1
    assert [(fault.place, fault.what.rsplit(" ", 1)[0]) for fault in source.warnings] == [
        (name, "left out: damaged records")
    ]


def test_the_command_shows_what_is_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(f"{chat(1)}\n{{\n{{\n", "utf-8")
    assert main(["traces", str(path)]) == 0
    out = capsys.readouterr().out
    assert f"first damaged record: {path}:2: broken JSON at column 2" in out


def test_what_is_told_of_damage_is_redacted(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(f'{chat(1)}\n{{"a@b.org": 1, "a@b.org": 2}}\n', "utf-8")
    redactor = Redactor([RedactedPattern(pattern=r"\w+@[\w.]+")], tmp_path, "redact")
    ((_, hint),) = told(read(path, redactor=redactor))
    assert "'[REDACTED]' is written twice in one object" in hint


@pytest.mark.parametrize(
    "far",
    [
        pl.Series([2**31 - 1]).cast(pl.Int32).cast(pl.Date),
        pl.Series([9 * 10**18]).cast(pl.Datetime("ms")),
        pl.Series([-(2**63)]).cast(pl.Datetime("us", "UTC")),
    ],
)
def test_times_far_away_are_damaged_records(
    far: pl.Series, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    spans = pl.read_parquet(DATA / "phoenix.parquet").head(1)
    near = spans.with_columns(start_time=pl.lit(None, far.dtype))
    frame = pl.concat([near, near.with_columns(start_time=far)])
    frame.write_parquet(tmp_path / "t.parquet")
    assert "damaged records 1" in read(tmp_path / "t.parquet").warnings[0].what
    assert capfd.readouterr().err == ""


def test_a_column_of_intervals_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT 'a' AS id, INTERVAL 1 DAY AS took) TO '{path}'")
    (fault,) = read(path).faults
    what = "the column 'took' holds intervals of time; write it as text, or leave it out"
    assert fault.hint == f"first damaged record: t.parquet row 1: {what}"
    assert capfd.readouterr().err == ""
