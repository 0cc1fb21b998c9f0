from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from claimflow.flows.errors import InputError
from claimflow.flows.pipeline.yaml_source import load_yaml, source_from


def write(folder: Path, text: str) -> Path:
    path = folder / "p.yaml"
    path.write_text(text, "utf-8")
    return path


def test_values_and_lines(tmp_path: Path) -> None:
    path = write(tmp_path, "name: x\nsteps:\n  a: {use: b, n: 1.5}\n  c:\n    d: [1, true, null]\n")
    source = load_yaml(path)
    assert source.value == {
        "name": "x",
        "steps": {"a": {"use": "b", "n": 1.5}, "c": {"d": [1, True, None]}},
    }
    assert source.faults == []
    assert source.place("steps", "c", "d", "1") == f"{path}:5 steps.c.d.1"
    assert source.place("steps", "a", "missing") == f"{path}:3 steps.a.missing"
    assert source.place() == f"{path}:1"


def test_an_empty_file_has_no_value(tmp_path: Path) -> None:
    assert load_yaml(write(tmp_path, "# nothing\n")).value is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a: 1\nb: 2\na: 3\n",
            ":3 a: 'a' is written twice; the first is on line 1; rename or remove one",
        ),
        (
            "steps:\n  x: {}\n  x: {}\n",
            ":3 steps.x: two steps are named 'x'; the first is on line 2; rename or remove one",
        ),
        ("1: a\n", ":1: the key '1' is not text; put it in quotes"),
        ("[a]: b\n", ":1: a key is not text; put it in quotes"),
        (
            "a: &x [1]\nb: *x\n",
            ":2 b: aliases are not supported; write it out",
        ),
        (
            "a: &x [*x]\n",
            ":1 a.0: aliases are not supported; write it out",
        ),
        (
            "a: !!python/object:os.system x\n",
            ":1 a: 'x' cannot be read; write plain text or a number",
        ),
        *(
            (
                f"a: !!{tag} {text!r}\n",
                f":1 a: {text!r} cannot be read; write plain text or a number",
            )
            for tag, text in [
                ("timestamp", "soon"),
                ("bool", "perhaps"),
                ("int", "_"),
                ("float", ""),
            ]
        ),
        (
            r'a: "\ud800 half"' "\n",
            r":1 a: '\ud800 half' cannot be read; write plain text or a number",
        ),
        (
            f"a: 0x{'f' * 5000}\n",
            f":1 a: '0x{'f' * 78}…' cannot be read; write plain text or a number",
        ),
        ("a: 2026-99-99\n", ":1 a: '2026-99-99' cannot be read; write plain text or a number"),
    ],
)
def test_faults(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    assert [str(fault) for fault in load_yaml(path).faults] == [f"{path}{message}"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"a: [1\nb: 2\n",
            ":2: is not YAML: expected ',' or ']', but got ':', column 2; "
            "correct this line or the one above",
        ),
        (
            b"a: 1\n\tb: 2\n",
            ":2: is not YAML: found character '\\t' that cannot start any token, column 1; "
            "correct this line or the one above",
        ),
        (b"a: \xff\n", ": is not UTF-8 at byte 3; save it as UTF-8 text"),
        (
            b"a: \x01\n",
            ": is not YAML (unacceptable character #x0001: special characters are "
            "not allowed); write it as UTF-8 text",
        ),
        (b"- " * 5000, ": its brackets or lists are nested hundreds deep; use less nesting"),
        (b"x" * 300_000, ": is larger than 256 KiB; split it into several files"),
        (b"[" * 1500, ": its brackets or lists are nested hundreds deep; use less nesting"),
    ],
)
def test_files_that_are_not_yaml(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_yaml(path)
    assert str(caught.value) == f"{path}{message}"


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_yaml(tmp_path / "none.yaml")
    assert str(caught.value) == (
        f"{tmp_path}/none.yaml: cannot be read (No such file or directory); "
        "name a pipeline's YAML file"
    )


def test_a_device_without_an_end(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"/dev/zero: is larger than 256 KiB"):
        load_yaml(Path("/dev/zero"))


def test_aliases_that_multiply_are_not_followed(tmp_path: Path) -> None:
    # "Billion laughs": nine aliases of nine aliases, ten levels deep.
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in pairwise("abcdefghijk")]
    source = load_yaml(write(tmp_path, "\n".join(lines)))
    assert len(source.faults) == 90
    assert "aliases are not supported" in str(source.faults[0])


def test_a_name_with_a_null_character_and_the_hint_of_a_schedules_file() -> None:
    with pytest.raises(InputError) as caught:
        load_yaml(Path("a\0b.yaml"), what="a schedules file")
    assert str(caught.value) == (
        "a\N{SYMBOL FOR NULL}b.yaml: cannot be read (embedded null byte); name a schedules file"
    )


NESTED: list[Any] = []
NESTED.append(NESTED)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"gates": {"m": {"min": float("nan")}}}, "gates.m.min: is nan; write a finite number"),
        ({"gates": {"m": float("-inf")}}, "gates.m: is -inf; write a finite number"),
        ({"seed": 2**64}, "seed: is beyond 64 bits; write a smaller number"),
        ({"seed": 10**5000}, "seed: is beyond 64 bits; write a smaller number"),
        (
            {"list": [1, {"a": b"x"}]},
            "list.1.a: is of type bytes; use text, numbers, truth values, lists and mappings",
        ),
        ({"name": "a\ud800"}, "name: holds half a character (a lone surrogate); remove it"),
        ({"path": Path("\ud800")}, "path: holds half a character (a lone surrogate); remove it"),
        ({"a": {("b",): 1}}, "a: the key ('b',) is not text; write the keys as text"),
    ],
)
def test_a_value_of_python_that_is_no_yaml(value: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        source_from(value, Path())
    assert str(caught.value) == f"pipeline.{message}"
    with pytest.raises(InputError) as caught:
        source_from({"name": "x"}, Path()).with_sections(value)
    assert str(caught.value) == message


def test_a_value_of_python_that_holds_itself() -> None:
    with pytest.raises(InputError, match="pipeline: its values are nested hundreds deep"):
        source_from({"a": NESTED}, Path())


def test_values_of_python() -> None:
    value = {"a": MappingProxyType({"b": (1, None, True)}), "c": Path("d"), "e": {1: 0.5}}
    plain = {"a": {"b": [1, None, True]}, "c": "d", "e": {"1": 0.5}}
    assert source_from(value, Path()).value == plain
