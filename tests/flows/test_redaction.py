"""Texts are redacted before anything is stored, asked, or shown."""

import json
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.errors import InputError
from claimflow.flows.runner.prepare import prepare

SECRET = "ann@mail.org"
PIPELINE = """
name: private
samples:
  path: samples.jsonl
  redact: RULES
store: private.duckdb
read_copy: false
steps:
  response_claims: {use: decompose_claims, of: response}
  context_matches: {use: lexical_match, against: retrieved_contexts}
"""
PATTERN = r"[{pattern: '[\w.]+@[\w.]+\w', with: '[EMAIL]'}]"
SAMPLE = {
    "id": SECRET,
    "input": f"Who is {SECRET}?",
    "answer": f"{SECRET} is Ann. Write to {SECRET}.",
    "reference": [f"Ann, {SECRET}.", f"Ann: {SECRET}."],
    "contexts": [f"Ann has {SECRET}."],
    "response_claims": [f"{SECRET} is Ann."],
    "note": {"of": [SECRET, 3]},
    "session": SECRET,
    "conversation_id": "c",
    "turn": 2,
    "history": [{"role": "user", "content": f"I am {SECRET}."}],
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    """The current folder."""
    with chdir(tmp_path):
        yield tmp_path


def write(rules: str, *samples: dict[str, Any], module: str = "") -> None:
    Path("p.yaml").write_text(PIPELINE.replace("RULES", rules), "utf-8")
    text = "".join(f"{json.dumps(one)}\n" for one in samples or [SAMPLE])
    Path("samples.jsonl").write_text(text, "utf-8")
    if module:
        Path("hide_texts.py").write_text(module, "utf-8")


def only_row() -> dict[str, Any]:
    [table] = prepare("p.yaml").samples.shards(10)
    [row] = table.to_dicts()
    return row


def test_patterns_are_replaced_in_all_texts_and_in_no_id(caplog: pytest.LogCaptureFixture) -> None:
    write(PATTERN)
    row = only_row()
    metadata = json.loads(row.pop("metadata"))
    assert (row.pop("sample_id"), metadata.pop("session")) == (SECRET, SECRET)
    assert SECRET not in json.dumps([row, metadata])
    assert row["response"] == "[EMAIL] is Ann. Write to [EMAIL]."
    assert metadata["note"] == {"of": ["[EMAIL]", 3]}
    assert metadata["history"] == [{"role": "user", "content": "I am [EMAIL]."}]
    [told] = [message for message in caplog.messages if "samples.redact" in message]
    assert "redacted: replacements 9, samples 1" in told


def test_nothing_that_was_replaced_is_in_the_store() -> None:
    write(PATTERN, SAMPLE | {"id": "1", "session": "s"})
    assert main(["run", "p.yaml"]) == 0
    assert SECRET.encode() not in Path("private.duckdb").read_bytes()
    assert b"private" in Path("private.duckdb").read_bytes()


def test_samples_that_are_redacted_otherwise_are_evaluated_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(PATTERN)
    assert main(["run", "p.yaml"]) == 0
    write(PATTERN.replace("[EMAIL]", "[MAIL]"))
    capsys.readouterr()
    assert main(["run", "p.yaml"]) == 0
    assert "3 steps made, 0 reused" in capsys.readouterr().out


def test_rules_are_applied_in_their_order() -> None:
    module = "def shout(text):\n    return text.replace('[EMAIL]', '[WHO]')\n"
    write(f"{PATTERN[:-1]}, 'hide_texts:shout']", module=module)
    assert only_row()["user_input"] == "Who is [WHO]?"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("raise ValueError(text)", "raised ValueError"),
        ("raise SystemExit(text)", "raised SystemExit"),
        ("raise SystemExit(0)", "raised SystemExit"),
        ("raise GeneratorExit", "raised GeneratorExit"),
        ("return None", "returned NoneType"),
        ("return '\\udc80'", "returned no text"),
    ],
)
def test_a_function_that_fails_ends_the_run_without_showing_the_text(
    body: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # Python imports a module once.
    module = f"hide_{len(body)}_{told.replace(' ', '_')}"
    write(f"{module}:hide", SAMPLE | {"id": "1"}, SAMPLE | {"id": "2"})
    Path(f"{module}.py").write_text(f"def hide(text):\n    {body}\n", "utf-8")
    assert main(["run", "p.yaml", "--skip-unusable"]) == 2
    printed = "".join(capsys.readouterr())
    assert f"samples.jsonl:1: {module}:hide, which redacts, {told}" in printed
    assert printed.count("which redacts") == 1
    assert SECRET not in printed


def test_a_function_that_is_not_there_is_an_error() -> None:
    write("nowhere:hide")
    with pytest.raises(InputError, match=r"p\.yaml:5 samples\.redact: there is no module"):
        prepare("p.yaml")


def test_a_hostile_text_holds_up_nothing(caplog: pytest.LogCaptureFixture) -> None:
    slow = {"id": "slow", "input": "a" * 40 + "!", "answer": "Yes.", "contexts": ["c"]}
    write("{pattern: '(a|a|aa)+$'}", slow, SAMPLE | {"id": "1"})
    assert only_row()["sample_id"] == "1"
    assert any("samples for which a pattern takes too long 1" in m for m in caplog.messages)


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ("[{patern: x}]", "unknown key 'patern'; did you mean 'pattern'?"),
        ("[{pattern: x, by: y}]", "unknown key 'by'; known are pattern, with"),
        ("5", "5 is a number; write {pattern: ..., with: ...}, module:function, or a list"),
    ],
)
def test_the_forms_of_a_rule_are_named(rules: str, told: str) -> None:
    write(rules)
    with pytest.raises(InputError) as raised:
        prepare("p.yaml")
    assert any(told in str(fault) for fault in raised.value.faults)


@pytest.mark.parametrize("pattern", ["'('", "'x*'"])
def test_a_pattern_that_cannot_be_used_is_an_error(pattern: str) -> None:
    write(f"{{pattern: {pattern}}}")
    with pytest.raises(InputError, match=r"regular expression|matches the empty text") as raised:
        prepare("p.yaml")
    [fault] = raised.value.faults
    assert fault.place == "p.yaml:5 samples.redact.0.pattern"


def test_messages_about_samples_are_redacted_too(capsys: pytest.CaptureFixture[str]) -> None:
    write(PATTERN, SAMPLE | {"history": [{"role": SECRET, "content": "x"}]})
    assert main(["run", "p.yaml"]) == 2
    told = capsys.readouterr().err
    assert "samples.jsonl:1" in told
    assert SECRET not in told
