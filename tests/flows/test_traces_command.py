"""`claimflow traces` shows what files of traces give as samples."""

import json
from pathlib import Path

import pytest

from claimflow.flows.cli.main import main

DATA = Path(__file__).parent.parent / "data/traces"
AGENT = "4bf92f3577b34da60000000000000003"


def shown(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[list[str]]:
    """The words of each line that the command prints."""
    assert main(["traces", *arguments]) == code
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_files_are_counted_and_one_sample_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(DATA)
    lines = shown(capsys, "otlp.jsonl", "phoenix.jsonl")
    (otlp,) = [line for line in lines if line[:1] == ["otlp.jsonl"]]
    assert otlp[1:5] == ["otlp", "10", "5", "2"]
    assert otlp[5:8] == ["damaged", "records", "1,"]
    assert ["phoenix.jsonl", "openinference", "4", "2", "2", "nothing"] in lines
    assert ["sample", "4bf92f3577b34da60000000000000002"] in lines
    assert ["history", "user:", "Is", "tin", "a", "metal?"] in lines
    assert ["tokens_in", "61"] in lines


def test_a_sample_is_chosen_and_has_results_of_tools(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(DATA / "otlp.jsonl")
    lines = shown(capsys, path, "--sample", AGENT, "--tools")
    assert ["retrieved_contexts", "1", "rainy,", "14", "degrees"] in lines
    lines = shown(capsys, path, "--sample", AGENT)
    assert ["sample", AGENT] in lines
    assert not [line for line in lines if line[:1] == ["retrieved_contexts"]]


def test_no_text_steers_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        (DATA / "otlp.jsonl").read_text("utf-8").replace("Tin melts", "\\\\u001b[31mTin[b] melts")
    )
    (tmp_path / "t.jsonl").write_text(text, "utf-8")
    assert main(["traces", str(tmp_path / "t.jsonl")]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "Tin[b] melts" in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["otlp.jsonl", "--sample", AGENT[:-1]], f"no sample '{AGENT[:-1]}'; did you mean"),
        (["otlp.jsonl", "--format", "otpl"], "'otpl' is no format of traces; did you mean 'otlp'?"),
        (["nothing.jsonl"], "no such file"),
        (["samples.json"], "looked for resourceSpans (otlp)"),
        (["samples.json", "--format", "openinference"], "records of another format"),
    ],
)
def test_mistakes_are_told(
    arguments: list[str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(DATA)
    assert main(["traces", *arguments]) == 2
    assert told in capsys.readouterr().err


def test_good_files_are_shown_beside_a_bad_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(DATA)
    lines = shown(capsys, "samples.json", "phoenix.jsonl", code=2)
    assert ["samples.json", "unknown", "0", "0", "0", "nothing"] in lines
    expected = json.loads((DATA / "samples.json").read_text("utf-8"))["phoenix.jsonl"]
    assert ["sample", expected["samples"][0]["sample_id"]] in lines
