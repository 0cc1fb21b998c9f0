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


def test_log_records_are_counted_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def typed(**attributes: str) -> list[dict[str, object]]:
        named = {f"gen_ai.{name}.messages": text for name, text in attributes.items()}
        return [{"key": name, "value": {"stringValue": text}} for name, text in named.items()]

    ids = {"traceId": "a", "spanId": "1"}
    event = {
        **ids,
        "eventName": "gen_ai.client.inference.operation.details",
        "attributes": typed(
            input='[{"role": "user", "content": "Tin?"}]',
            output='[{"role": "assistant", "content": "Yes."}]',
        ),
    }
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [event]}]}]}
    spans = {"resourceSpans": [{"scopeSpans": [{"spans": [ids]}]}]}
    (tmp_path / "logs.json").write_text(json.dumps(logs), "utf-8")
    (tmp_path / "spans.json").write_text(json.dumps(spans), "utf-8")
    monkeypatch.chdir(tmp_path)
    lines = shown(capsys, "*.json")
    assert [
        "file",
        "format",
        "spans",
        "log",
        "records",
        "traces",
        "samples",
        "left",
        "out",
    ] in lines
    assert ["logs.json", "otlp", "0", "1", "1", "1", "nothing"] in lines
    assert ["spans.json", "otlp", "1", "0", "0", "0", "nothing"] in lines
    assert ["user_input", "Tin?"] in lines
    assert ["log", "records"] not in [line[3:5] for line in shown(capsys, "spans.json", code=2)]


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
        (["otlp.jsonl", "--sample", f"x{AGENT}"], f"no sample 'x{AGENT}'; did you mean"),
        (
            ["otlp.jsonl", "--sample", AGENT[:-1]],
            f"2 samples begin with '{AGENT[:-1]}'; name one: {AGENT[:-1]}2, {AGENT}",
        ),
        (["otlp.jsonl", "--format", "otpl"], "'otpl' is no format of traces; did you mean 'otlp'?"),
        (["nothing.jsonl"], "no such file"),
        (["samples.json"], "looked for resourceSpans (otlp)"),
        (["samples.json", "--format", "openinference"], "records of another format"),
        (
            ["otlp.jsonl", "--format", "langfuse"],
            "; its records look like otlp: name that format, or auto\n",
        ),
        (
            ["quiet.jsonl"],
            "no trace gives a sample (damaged records 1); first damaged record: quiet.jsonl:1: ",
        ),
    ],
)
def test_mistakes_are_told(
    arguments: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "quiet.jsonl").write_text("{", "utf-8")
    monkeypatch.chdir(tmp_path if "quiet.jsonl" in arguments else DATA)
    assert main(["traces", *arguments]) == 2
    assert told in capsys.readouterr().err


@pytest.fixture
def many(tmp_path: Path) -> str:
    """A file of 120 traces with an answer, five without one, and a damaged line."""
    logs: list[dict[str, object]] = [
        {"id": f"{'good' if answer else 'bad'}-{number:03}", "messages": [
            {"role": "user", "content": "Tin?"},
            *([{"role": "assistant", "content": "Yes."}] * answer),
        ]}
        for answer, count in ((1, 120), (0, 5))
        for number in range(count)
    ]  # fmt: skip
    path = tmp_path / "many.jsonl"
    path.write_text("\n".join(map(json.dumps, logs)) + "\n{", "utf-8")
    return str(path)


def test_examples_of_what_is_left_out_are_shown(
    many: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(Path(many).parent)
    lines = [" ".join(line) for line in shown(capsys, "many.jsonl")]
    assert "damaged records 1 many.jsonl many.jsonl:126" in lines
    assert "traces without an answer 5 many.jsonl bad-000, bad-001, bad-002" in lines


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ("bad-004", "no sample 'bad-004'; left out: trace without an answer\n"),
        ("bad-004"[:-1], "left out: trace without an answer (bad-000); "),
        ("nothing", "good-018, good-019 and 100 more\n"),
        ("good-11", "10 samples begin with 'good-11'; name one: good-110, "),
        ("good-1", "20 samples begin with"),
        ("good", "good-019 and 100 more\n"),
        ("xgood-119", "did you mean 'good-119'?"),
    ],
)
def test_a_sample_that_is_not_there_is_explained(
    wanted: str, told: str, many: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["traces", many, "--sample", wanted]) == 2
    assert told in capsys.readouterr().err


def test_the_beginning_of_an_id_chooses_its_sample(
    many: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Path(many).open("a", encoding="utf-8") as file:
        file.write('\n{"id": "other-1", "messages": [{"role": "user", "content": "Tin?"}, '
                   '{"role": "assistant", "content": "No."}]}')  # fmt: skip
    assert ["sample", "other-1"] in shown(capsys, many, "--sample", "oth")


def test_good_files_are_shown_beside_a_bad_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(DATA)
    lines = shown(capsys, "samples.json", "phoenix.jsonl", code=2)
    assert ["samples.json", "unknown", "0", "0", "0", "nothing"] in lines
    expected = json.loads((DATA / "samples.json").read_text("utf-8"))["phoenix.jsonl"]
    assert ["sample", expected["samples"][0]["sample_id"]] in lines
