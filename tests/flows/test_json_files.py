"""JSON objects: the fast decoder and the strict one agree."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimflow.flows.samples.json_files import _decode_fast, _decode_strictly, decode_object
from claimflow.flows.samples.reader import read_samples
from claimflow.flows.samples.records import RecordError

TEXTS = st.text(st.sampled_from('ab":, \\é🙂\x00\u2028{}'), max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
SEPARATORS = st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " :\r"), (",", "\t :")])
PIECES = st.sampled_from(
    ['"a":1,', '"', ":", ",", "\\", "{", "}", "NaN", "-0", "1e999", "\\ud800", "\x01", " ", "é"]
)


def strict(line: bytes) -> Any:
    """The strict decoder's result for a line, as text."""
    try:
        return as_text(_decode_strictly(line.decode(), "r"))
    except UnicodeDecodeError:
        return "no UTF-8"


def decoded(line: bytes) -> Any:
    try:
        return as_text(decode_object(line, hint="r"))
    except UnicodeDecodeError:
        return "no UTF-8"


def as_text(value: dict[str, Any] | RecordError) -> str:
    return str(value) if isinstance(value, RecordError) else repr(value)


@settings(max_examples=300)
@given(
    values=st.dictionaries(TEXTS, VALUES, max_size=3),
    separators=SEPARATORS,
    plain=st.booleans(),
    piece=PIECES,
    at=st.integers(0, 200),
    cut=st.integers(0, 2),
)
def test_both_decoders_agree_on_any_line(
    values: dict[str, Any],
    separators: tuple[str, str],
    *,
    plain: bool,
    piece: str,
    at: int,
    cut: int,
) -> None:
    line = json.dumps(values, separators=separators, ensure_ascii=plain).encode()
    damaged = line[:at] + piece.encode()[: 1 + cut] + line[at + cut :]
    for one in (line, damaged):
        assert decoded(one) == strict(one)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (rb'{"a" : 1, "a" : 2, "b": 1, "x": "\":"}', "a"),
        (rb'{"a": 1, "\u0061": 2}', "a"),
        (rb'{"x": [{"y": {"b": 1, "b": 1}}]}', "b"),
        (rb'{"": 1, "" : 2}', ""),
    ],
)
def test_repeated_names_are_found_at_any_depth(line: bytes, name: str) -> None:
    error = decode_object(line, hint="r")
    assert str(error) == f"{name!r} is written twice in one object; keep one of them"


def test_the_fast_decoder_takes_ordinary_lines_and_leaves_quoted_colons() -> None:
    ordinary = b'{"id": 1, "contexts": ["a: b", "c"], "scores": {"x" : {"y": 2.5}}}'
    assert _decode_fast(ordinary) == json.loads(ordinary)
    quoting = rb'{"response": "he said \"yes\": no"}'
    assert _decode_fast(quoting) is None
    assert decode_object(quoting, hint="r") == {"response": 'he said "yes": no'}


def test_faults_before_an_invalid_byte_are_reported_too(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_bytes(b'\nnot JSON\n{"id": "\xe9"}\n')
    assert [str(fault) for fault in read_samples("s.jsonl", base=tmp_path, rename={}).faults] == [
        "s.jsonl:2: broken JSON at column 1 (Expecting value); write one JSON object on each line",
        "s.jsonl:3: the byte 0xe9 is not UTF-8; save the file as UTF-8",
    ]


def test_lines_of_unicode_blanks_are_blank(tmp_path: Path) -> None:
    text = '{"id": 1}\n\u00a0\u2003\n\x85\n \t\r\n{"id": 2}\r'
    (tmp_path / "s.jsonl").write_bytes(text.encode())
    source = read_samples("s.jsonl", base=tmp_path, rename={})
    assert (source.count, source.faults) == (2, ())


def test_other_references_in_only_some_samples(tmp_path: Path) -> None:
    lines = [json.dumps({"id": n}) for n in range(300)]
    lines[280] = '{"id": 280, "ground_truths": ["one", "two"]}'
    (tmp_path / "s.jsonl").write_text("\n".join(lines))
    (table,) = read_samples("s.jsonl", base=tmp_path, rename={}).shards(1_000)
    others = table["other_references"].to_list()
    assert others[280] == ["two"]
    assert others.count([]) == 299
