"""Every fault of the input is reported at once, with its place and a hint."""

import json
import os
import random
from collections.abc import Mapping
from pathlib import Path

import duckdb
import polars as pl
import pytest

from claimflow.flows.pipeline.limits import (
    COLUMNS,
    ID_CHARACTERS,
    LIST_TEXTS,
    TEXT_CHARACTERS,
)
from claimflow.flows.samples.reader import read_samples

LINE = "write one JSON object on each line"
ARRAY = "write one array of objects"


def messages(folder: Path, path: str, rename: Mapping[str, str] | None = None) -> list[str]:
    return [str(f) for f in read_samples(path, base=folder, rename=rename or {}).faults]


def messages_of(folder: Path, name: str, text: str | bytes) -> list[str]:
    raw = text if isinstance(text, bytes) else text.encode()
    (folder / name).write_bytes(raw)
    return messages(folder, name)


def test_every_fault_of_every_line_at_once(tmp_path: Path) -> None:
    lines = [
        '{"id": 1, "answer": "x"}',
        "",
        '{"id": 2, "answer": "x"',
        "not JSON",
        '[{"id": 3}]',
        '{"id": "", "answer": 5, "contexts": ["c", 7], "ground_truth": {"a": 1}}',
        '{"id": true, "question": ["q"]}',
        '{"id": 1}',
        '{"id": 4} {"id": 5}',
        '{"id": 6, "score": NaN}',
        '{"id": 7, "score": 1e999}',
        '{"id": 8, "id": 9}',
        '{"contexts": [{"doc_id": 1}]}',
        '{"contexts": {"text": "t"}}',
        '{"ground_truth": [{"text": "t", "by": 1}]}',
        f'{{"x": {"[" * 200_000}{"]" * 200_000}}}',
        f'{{"x": {"1" * 5000}}}',
        '{"answer": null, "contexts": [null]}',
    ]
    assert messages_of(tmp_path, "s.jsonl", "\n".join(lines)) == [
        f"s.jsonl:3: broken JSON at column 24 (Expecting ',' delimiter); {LINE}",
        f"s.jsonl:4: broken JSON at column 1 (Expecting value); {LINE}",
        f"s.jsonl:5: a list instead of an object; {LINE}",
        "s.jsonl:6: 'id' is empty; write an id, or leave it out to have one made",
        "s.jsonl:6: 'answer' is a number; write it as text",
        "s.jsonl:6: 'contexts' holds a number in place 2; write a list of texts",
        "s.jsonl:6: 'ground_truth' is an object; write a list of texts",
        "s.jsonl:7: 'id' is true or false; write a text or a number",
        "s.jsonl:7: question[0] is text; "
        'write a message such as {"role": "user", "content": "..."}',
        "s.jsonl:8: sample_id '1' is already at s.jsonl:1; give every sample an id of its own",
        f"s.jsonl:9: broken JSON at column 11 (Extra data); {LINE}",
        "s.jsonl:10: NaN is not JSON; write null",
        "s.jsonl:11: a number is NaN or beyond 64-bit floats; write null or text",
        "s.jsonl:12: 'id' is written twice in one object; keep one of them",
        "s.jsonl:13: 'contexts' holds an object in place 1 without a text in it; "
        "name its text one of text, page_content, content, doc",
        "s.jsonl:14: 'contexts' is an object; write a list of texts",
        "s.jsonl:15: 'ground_truth' holds objects; write a list of texts",
        "s.jsonl:16: brackets nested about a thousand deep; use less nesting",
        "s.jsonl:17: a number of thousands of digits; write it as text",
        "s.jsonl:18: 'contexts' holds null in place 1; write a list of texts",
    ]


@pytest.mark.parametrize("blank", ["", "  ", "\u3000\n"])
def test_a_blank_id_is_refused(tmp_path: Path, blank: str) -> None:
    assert messages_of(tmp_path, "s.jsonl", json.dumps({"id": blank})) == [
        "s.jsonl:1: 'id' is empty; write an id, or leave it out to have one made",
    ]


def test_a_sample_with_a_fault_takes_its_id_too(tmp_path: Path) -> None:
    assert messages_of(tmp_path, "s.jsonl", '{"id": 1, "answer": 2}\n{"id": "1"}') == [
        "s.jsonl:1: 'answer' is a number; write it as text",
        "s.jsonl:2: sample_id '1' is already at s.jsonl:1; give every sample an id of its own",
    ]


def test_repeated_ids_are_found_across_files(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"id": 0}, {"id": "x"}]')
    (tmp_path / "b.csv").write_text('id,answer\n1,"two\nlines"\nx,y\n')
    pl.DataFrame({"id": ["2", "x"]}).write_parquet(tmp_path / "c.parquet")
    assert messages(tmp_path, "*") == [
        "b.csv:4: sample_id 'x' is already at a.json sample 2; give every sample an id of its own",
        "c.parquet row 2: sample_id 'x' is already at a.json sample 2; "
        "give every sample an id of its own",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[{"id": 1},\n {"id": 2}}]',
            f"s.json sample 3: broken JSON (unexpected character); {ARRAY}",
        ),
        ('[{"id": 1}, {"id" 2}]', f"s.json sample 2: broken JSON (unexpected character); {ARRAY}"),
        ('[{"id": 1}, 2]', f"s.json sample 2: a number instead of an object; {ARRAY}"),
        (
            '{"id": 1}\n{"id": 2}',
            f"s.json sample 1: the file is not an array; {ARRAY}, or call it .jsonl",
        ),
        ("[]", "s.json: no samples; write at least one"),
    ],
)
def test_malformed_arrays(tmp_path: Path, text: str, message: str) -> None:
    assert messages_of(tmp_path, "s.json", text) == [message]


def test_every_malformed_row_of_a_csv_file(tmp_path: Path) -> None:
    text = 'id,answer\n1,x\n\n2,"x\n\ny"\n3\n4,a,b\n5,"b"x"\n6,z\n'
    assert messages_of(tmp_path, "s.csv", text) == [
        "s.csv:7: fewer cells than the header names; write every cell",
        's.csv:8: more cells than the header names; quote a comma: "one, two"',
        "s.csv:9: text behind a closing quote, or no closing quote; "
        'write a quote twice: "a ""b"" c"',
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,a,id\n1,2,3\n", "s.csv:1: two columns are named 'id'; name every column once"),
        (
            "id,a\r\n1,2\n3,4\r\n",
            r"s.csv:1: mixed line ends, or not CSV; end every line in \n",
        ),
        ("id,answer\n", "s.csv: no samples; write at least one"),
        (
            "id;answer\n1;x\n",
            "s.csv:1: one column, named 'id;answer'; separate the cells by commas, not by ';'",
        ),
        (
            "id;answer\n1;x, y\n2;a, b\n",
            "s.csv:1: one column, named 'id;answer'; separate the cells by commas, not by ';'",
        ),
        (
            "id\tanswer\n1\tx\n",
            r"s.csv:1: one column, named 'id\tanswer'; separate the cells by commas, not by '\t'",
        ),
        (
            "id,contexts\n\n1,\"['a' 'b']\"\n",
            "s.csv:3: 'contexts' looks like a list as Python prints it; "
            'write it as JSON: ["one", "two"]',
        ),
        (
            'id,answer\n"",x\n',
            "s.csv:2: 'id' is empty; write an id, or leave it out to have one made",
        ),
    ],
)
def test_malformed_csv_files(tmp_path: Path, text: str, message: str) -> None:
    assert messages_of(tmp_path, "s.csv", text) == [message]


@pytest.mark.parametrize("name", ["s.jsonl", "s.json", "s.csv"])
def test_other_encodings(tmp_path: Path, name: str) -> None:
    text = {"s.jsonl": '{"id": 1}\n{"id": "é"}', "s.json": '[{"id": 1},\n{"id": "é"}]'}
    raw = text.get(name, "id\né\n")
    assert messages_of(tmp_path, name, raw.encode("latin-1")) == [
        f"{name}:2: the byte 0xe9 is not UTF-8; save the file as UTF-8"
    ]
    assert messages_of(tmp_path, name, raw.encode("utf-16")) == [
        f"{name}: UTF-16 text; save the file as UTF-8"
    ]


@pytest.mark.parametrize("name", ["s.jsonl", "s.json", "s.csv"])
def test_empty_files(tmp_path: Path, name: str) -> None:
    assert messages_of(tmp_path, name, "") == [f"{name}: no samples; write at least one"]


def test_an_empty_file_among_others_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1}')
    (tmp_path / "b.jsonl").write_text("\n\n")
    pl.DataFrame({"id": []}).write_parquet(tmp_path / "c.parquet")
    assert messages(tmp_path, "*") == [
        "b.jsonl: no samples; write at least one",
        "c.parquet: no samples; write at least one",
    ]


def test_a_file_that_is_no_parquet(tmp_path: Path) -> None:
    (message,) = messages_of(tmp_path, "s.parquet", "id\n1\n")
    assert message.startswith("s.parquet: cannot be read (")
    assert message.endswith("; write it again as .parquet")


def test_a_damaged_parquet_file_is_a_fault(tmp_path: Path) -> None:
    whole = tmp_path / "whole.parquet"
    columns = {"id": [str(n) for n in range(300)], "response": ["Rome is old."] * 300}
    pl.DataFrame(columns | {"contexts": [["a", "b"]] * 300}).write_parquet(whole)
    raw, drawn = whole.read_bytes(), random.Random(1)
    for _ in range(250):
        damaged = bytearray(raw)
        # Most of them in the footer, where Polars panics.
        for _ in range(drawn.choice([1, 2, 8])):
            first = len(raw) - 900 if drawn.random() < 0.7 else 0
            damaged[drawn.randrange(first, len(raw))] = drawn.randrange(256)
        for message in messages_of(tmp_path, "s.parquet", bytes(damaged)):
            assert message.startswith(("s.parquet", "rename"))


TOO_LARGE = "one sample of more than 64 MiB; write its texts without what is around"


@pytest.mark.parametrize(
    ("name", "start", "end", "message"),
    [
        ("s.jsonl", '{"id": 1}\n{"response": "', '"}\n{"id"}', f"s.jsonl:2: {TOO_LARGE}"),
        ("s.json", '[{"id": 1}, {"response": "', '"}]', f"s.json sample 2: {TOO_LARGE}"),
        ("s.csv", 'id,response\n1,a\n2,"', '"\n3,b\n', f"s.csv:3: {TOO_LARGE}"),
    ],
)
def test_a_sample_of_hundred_megabytes(
    tmp_path: Path, name: str, start: str, end: str, message: str
) -> None:
    first, *others = messages_of(tmp_path, name, start + "x" * 100_000_000 + end)
    assert first == message
    # Reading goes on behind a line, where the next one is broken.
    assert [other[:9] for other in others] == (["s.jsonl:3"] if name == "s.jsonl" else [])


def test_an_element_beyond_the_buffer_of_the_reader(tmp_path: Path) -> None:
    text = '[{"id": 1}, {"response": "' + "x" * 200_000_000 + '"}]'
    assert messages_of(tmp_path, "s.json", text) == [
        "s.json sample 1: this sample, or one after it, has more than 64 MiB; "
        "write its texts without what is around"
    ]


def test_texts_lists_and_columns_above_the_limits(tmp_path: Path) -> None:
    samples = [
        {"response": "x" * (TEXT_CHARACTERS + 1)},
        {"contexts": ["x"] * (LIST_TEXTS + 1)},
        {"contexts": [{"text": "x" * (TEXT_CHARACTERS + 1)}]},
        {"response_claims": ["x"] * (LIST_TEXTS + 1)},
        {"id": "x" * (ID_CHARACTERS + 1)},
        {f"c{n}": n for n in range(COLUMNS + 1)},
        {"response": "x" * TEXT_CHARACTERS, "contexts": ["x"] * LIST_TEXTS},
    ]
    text = "\n".join(map(json.dumps, samples))
    assert messages_of(tmp_path, "s.jsonl", text) == [
        "s.jsonl:1: 'response' has 5,000,001 characters, more than 5,000,000; "
        "divide it, or write less",
        "s.jsonl:2: 'contexts' holds 10,001 texts, more than 10,000; keep those that matter",
        "s.jsonl:3: 'contexts' has 5,000,001 characters, more than 5,000,000; "
        "divide it, or write less",
        "s.jsonl:4: 'response_claims' holds 10,001 texts, more than 10,000; keep those that matter",
        "s.jsonl:5: 'id' has 2,001 characters, more than 2,000; divide it, or write less",
        "s.jsonl:6: 10,001 columns, more than 10,000; keep those that are needed",
    ]


@pytest.mark.parametrize("name", ["s.csv", "s.parquet"])
def test_a_table_with_too_many_columns(tmp_path: Path, name: str) -> None:
    table = pl.DataFrame({f"c{n}": ["x"] * 3 for n in range(COLUMNS + 1)})
    write = table.write_csv if name == "s.csv" else table.write_parquet
    write(tmp_path / name)
    (message,) = messages(tmp_path, name)
    assert message.endswith(": 10,001 columns, more than 10,000; keep those that are needed")


def test_a_parquet_file_that_unpacks_to_a_gigabyte(tmp_path: Path) -> None:
    # 2 KB on disk: every row has the same text.
    table = f"(SELECT repeat('x', {4 * TEXT_CHARACTERS}) AS response FROM range(50))"
    duckdb.sql(f"COPY {table} TO '{tmp_path}/s.parquet' (COMPRESSION zstd)")
    found = messages(tmp_path, "s.parquet")
    assert len(found) == 50
    assert found[0].startswith("s.parquet row 1: 'response' has 20,000,000 characters")


def test_a_pipe_is_no_file_of_samples(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "s.jsonl")
    assert messages(tmp_path, "s.jsonl") == [
        "s.jsonl: a pipe or a device; write the samples to a file"
    ]


def test_missing_files(tmp_path: Path) -> None:
    (tmp_path / "answers.jsonl").write_text('{"id": 1}')
    (tmp_path / "sub").mkdir()
    assert messages(tmp_path, "answer.jsonl") == [
        "answer.jsonl: no such file; did you mean 'answers.jsonl'?"
    ]
    assert messages(tmp_path, "zzz") == [f"zzz: no such file; the folder searched is {tmp_path}"]
    assert messages(tmp_path, "no/a.jsonl") == [
        f"no/a.jsonl: no such file; there is no folder {tmp_path}/no either"
    ]
    for glob in ("*.csv", "b**.jsonl"):
        assert messages(tmp_path, glob) == [
            f"{glob}: no file matches; the search starts in {tmp_path}"
        ]
    assert messages(tmp_path, "sub") == ["sub: a folder; name its files, such as sub/*.jsonl"]


def test_a_name_that_no_file_can_have(tmp_path: Path) -> None:
    name = "x" * 300
    assert messages(tmp_path, name) == [f"{name}: no such file; the folder searched is {tmp_path}"]
    assert messages(tmp_path, f"{name}/a.jsonl") == [
        f"{name}/a.jsonl: no such file; there is no folder {tmp_path}/{name} either"
    ]
    assert messages(tmp_path, f"{name}*") == [
        f"{name}*: no file matches; the search starts in {tmp_path}"
    ]


def test_files_of_unknown_formats(tmp_path: Path) -> None:
    known = "known are .jsonl, .ndjson, .json, .csv, .parquet; all but .parquet may also end in .gz"
    assert messages_of(tmp_path, "s.txt", "x") == [f"s.txt: unknown ending '.txt'; {known}"]
    assert messages_of(tmp_path, "s", "x") == [f"s: no ending; {known}"]


def test_columns_that_give_the_same_field(tmp_path: Path) -> None:
    records = '{"answer": "a"}\n{"response": "b", "answer": "c"}\n{"response": "d"}'
    assert messages_of(tmp_path, "s.jsonl", records) == [
        "s.jsonl:2: 'answer' and 'response' fill the same field, response; "
        "choose one under rename, such as {answer: response}"
    ]
    assert messages_of(tmp_path, "s.jsonl", records.replace("d", 'd", "answer": "e')) == [
        "s.jsonl:2: 'answer' and 'response' fill the same field, response (and in 1 more); "
        "choose one under rename, such as {answer: response}"
    ]


def test_rename_is_checked(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text(json.dumps({"answer": "a", "gold": "b"}))
    rename = {"answer": "responce", "golden": "reference", "gold": "metadata"}
    assert messages(tmp_path, "s.jsonl", rename) == [
        "rename.answer: 'responce' is not a field of a sample; did you mean 'response'?",
        "rename.gold: 'metadata' is not a field of a sample; known are other_references, "
        "reference, reference_claims, response, response_claims, retrieved_contexts, "
        "sample_id, user_input",
        "rename.golden: no sample has 'golden'; did you mean 'gold'?",
    ]


def test_a_rename_is_not_blamed_when_nothing_could_be_read(tmp_path: Path) -> None:
    assert messages(tmp_path, "no.jsonl", {"a": "response"}) == [
        f"no.jsonl: no such file; the folder searched is {tmp_path}"
    ]


def skipped(folder: Path, name: str, text: str) -> tuple[list[str], list[str], int]:
    """(responses, faults, number of samples left out) of a file where unusable ones are skipped."""
    (folder / name).write_text(text, "utf-8")
    source = read_samples(name, base=folder, rename={}, skip_unusable=True)
    responses = [row for table in source.shards(100) for row in table["response"]]
    return responses, [str(fault) for fault in source.faults], source.available - source.count


def test_unusable_samples_can_be_left_out(tmp_path: Path) -> None:
    lines = '{"id": 1, "answer": 5}\n{"id": 1, "answer": "a"}\nno\n{"id": 1, "answer": "b"}\n'
    assert skipped(tmp_path, "s.jsonl", lines) == (["a"], [], 3)
    array = '[{"id": 1, "answer": 5}, {"id": 2, "answer": "a"}]'
    assert skipped(tmp_path, "s.json", array) == (["a"], [], 1)
    cells = "id,answer,contexts\n1,a,\"['a' 'b']\"\n2,b,c\n"
    assert skipped(tmp_path, "s.csv", cells) == (["b"], [], 1)


def test_a_file_that_cannot_be_read_on_is_not_left_out(tmp_path: Path) -> None:
    _, faults, _ = skipped(tmp_path, "s.json", '[{"answer": "a"}, {"answer" 1}, {"answer": "b"}]')
    assert faults == [f"s.json sample 2: broken JSON (unexpected character); {ARRAY}"]
    _, faults, _ = skipped(tmp_path, "s.csv", "id,answer\n1,a,b\n2,c\n")
    assert faults == ['s.csv:2: more cells than the header names; quote a comma: "one, two"']
    _, faults, _ = skipped(tmp_path, "s.jsonl", '{"answer": 1}\n{"answer": 2}\n')
    assert faults == [
        "s.jsonl:1: 'answer' is a number; write it as text",
        "s.jsonl: no sample can be used; correct one or more",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"results": [{"query": "q"}, {"query": }]}', "sample 2: broken JSON (Expecting value)"),
        ('{"results": [{"query": "q"}', "sample 2: broken JSON (the end of the file instead of "
         "',' or ']')"),
        ('{"results": [{"query": "q"} {}]}', "sample 2: broken JSON ('{' instead of ',' or ']')"),
        ('{"results": [5]}', "sample 1: a number instead of an object"),
        ('{"results": {"a": 1}}', "sample 1: broken JSON ('{' instead of '[')"),
        ('{"results": [', "sample 1: broken JSON (Expecting value)"),
        ('{"a" 1}', "sample 1: broken JSON ('1' instead of ':')"),
        ('{"results": [' + "[" * 100_000, "sample 1: brackets nested about a thousand deep"),
    ],
)  # fmt: skip
def test_malformed_results(tmp_path: Path, text: str, message: str) -> None:
    (found,) = messages_of(tmp_path, "s.json", text)
    assert found.startswith(f"s.json {message}; ")


def test_results_in_another_encoding(tmp_path: Path) -> None:
    results = '{"results": [{"response": "é"}]}'.encode("latin-1")
    assert messages_of(tmp_path, "s.json", results) == [
        "s.json:1: the byte 0xe9 is not UTF-8; save the file as UTF-8"
    ]
