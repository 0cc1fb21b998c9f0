"""`claimflow diff`: causes at a real endpoint, and every form of the answer, word for word."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import claimflow
from claimflow.flows.cli.main import main
from claimflow.flows.pipeline.prompts import DEFAULT_PROMPTS
from claimflow.flows.report.markdown import code_span
from claimflow.flows.store.store import Store
from tests.endpoint import faults
from tests.endpoint.server import serve
from tests.flows.judged import STEPS, Judged
from tests.flows.recorded_runs import Table, claims, put_run, samples, scores, verdicts

HOSTILE = "`code` | ![x](http://evil) <img src=x> @everyone #1\n\n# head\x1b[31m \u202e \\"


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judged]:
    """Four runs: unchanged, with a strict prompt, by another judge, and that one repeated."""
    folder = tmp_path_factory.mktemp("judged")
    shipped = (DEFAULT_PROMPTS / "verify.md").read_text("utf-8")
    (folder / "strict.md").write_text(f"Be strict.\n{shipped}", "utf-8")
    swayed = ["Be strict."]
    rule = faults.where(lambda body: any(s in json.dumps(body) for s in swayed), faults.swayed())
    with serve(fault=rule) as endpoint:
        made = Judged(folder, endpoint)
        strict = STEPS["response_in_reference"] | {"prompt": "strict.md"}
        made.write(["one", "two"])
        made.run()
        made.write(["one", "two"], steps=STEPS | {"response_in_reference": strict})
        made.run()
        made.write(["one", "two"], model="hosted_vllm/other")
        made.run()
        swayed.append("Case two.")
        assert made.command("--again", "response_in_reference", "--fresh") == 0
        yield made


def asked(judged: Judged, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    where = ("--format", "json", "--store", str(judged.store.path), "--live")
    assert main(["diff", *words, *where]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(
    ("a", "b", "step", "count"),
    [(0, 1, ["prompt"], 6), (0, 2, ["judge"], 0), (1, 2, ["judge", "prompt"], 6), (2, 3, [], 3)],
    ids=["prompt", "judge", "both", "chance"],
)
def test_every_flip_has_its_recorded_cause(
    judged: Judged,
    a: int,
    b: int,
    step: list[str],
    count: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs = [run for (run,) in judged.ask("SELECT run_id FROM audit.runs ORDER BY started_at")]
    found = asked(judged, capsys, runs[a], runs[b])
    by_name = {one["step"]: one for one in found["steps"]}
    assert by_name["response_in_reference"]["causes"] == step
    assert by_name["response_claims"]["same"]
    message = [
        {"change": "verdict flipped", "cause": " and ".join(step) or "chance", "count": count}
    ]
    assert found["causes"] == (message if count else [])
    assert len(found["claims"]) == count
    moved = {row["sample_id"] for row in found["claims"]}
    assert moved == ({"two"} if (a, b) == (2, 3) else {"one", "two"} if count else set())


def test_by_default_the_latest_run_is_compared_with_the_previous_one(
    judged: Judged, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [run for (run,) in judged.ask("SELECT run_id FROM audit.runs ORDER BY started_at")]
    found = asked(judged, capsys)
    assert (found["a"]["run_id"], found["b"]["run_id"]) == (runs[2], runs[3])
    found = asked(judged, capsys, "previous", runs[1])
    assert (found["a"]["run_id"], found["b"]["run_id"]) == (runs[0], runs[1])


@pytest.fixture(scope="module")
def literal(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Two runs of three samples, one of which is hostile."""
    store = Store(tmp_path_factory.mktemp("literal") / "s.duckdb")
    texts: dict[str, Any] = {"x": ["One."], HOSTILE: [HOSTILE], "z": ["Nine."]}
    by_claim = {("x", "One."): "entailed", (HOSTILE, HOSTILE): "neutral"}
    put_run(
        store,
        {
            "samples": samples(list(texts), metadata='{"talk": "t"}'),
            "response_claims": claims(texts),
            "in_reference": verdicts(by_claim),
            "noise_sensitivity": scores("noise_sensitivity", {"x": 0.5, HOSTILE: 0.25, "z": 0.5}),
        },
    )
    put_run(
        store,
        {
            "samples": samples(["x", HOSTILE], metadata='{"talk": "t"}'),
            "response_claims": claims({"x": ["One.", "Two."], HOSTILE: [HOSTILE]}),
            "in_reference": verdicts(by_claim | {(HOSTILE, HOSTILE): "contradicted"}),
            "noise_sensitivity": scores("noise_sensitivity", {"x": 0.75, HOSTILE: "failed"}),
        },
    )
    return store


def printed(store: Store, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(["diff", *words, "--live", "--store", str(store.path)]) == 0
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_the_table_is_complete(literal: Store, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(literal, capsys)
    assert [line.partition("  p")[0][:2] for line in lines[:2]] == ["A ", "B "]
    assert lines[0].endswith("p, 3 samples")
    assert lines[2] == "2 samples the same, 0 changed, 0 new, 1 removed"
    metric = "noise_sensitivity ↓ 1 0.500 0.750 +0.250 - - - unclear"
    assert f"{metric} 1 failed in B; 1 only in A" in lines
    assert "2 scores changed" in lines
    assert "x noise_sensitivity 0.500 0.750 +0.250" in lines
    assert "verdict flipped chance 1" in lines
    assert "claim text changed chance 1" in lines
    assert "x: claim text changed (response_claims, chance): only in B" in lines
    assert not any("\x1b" in line or "\u202e" in line for line in lines)


def test_samples_of_one_run_only_are_told_from_those_that_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path / "s.duckdb")
    for scored in ({"x": 0.5, "y": "failed", "a": 0.5}, {"x": 0.5, "y": "failed", "b": 0.5}):
        tables = {"samples": samples(list(scored)), "score": scores("recall", scored)}
        put_run(store, tables)
    lines = printed(store, capsys)
    assert any(line.endswith("1 failed in both; 1 only in A, 1 only in B") for line in lines)


def test_the_limit_is_stated(literal: Store, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(literal, capsys, "--limit", "1")
    assert "2 scores changed, the largest 1 of them below" in lines
    assert "2 claims changed, the first 1 of them below" in lines
    assert "x: claim text changed (response_claims, chance): only in B" not in lines


def test_markdown_holds_no_markup_of_the_texts(
    literal: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(literal, capsys, "--format", "markdown")
    name = "`` `code` │ ![x](http://evil) <img src=x> @everyone #1 # head␛[31m � \\ ``"
    flipped = "verdict flipped | neutral to contradicted | chance | in_reference"
    assert f"| {name} | {name} | {flipped} |" in lines
    assert f"| {name} | noise_sensitivity | 0.250 | failed | - |" in lines
    assert "| `x` | `Two.` | claim text changed | only in B | chance | response_claims |" in lines
    tables = [line for line in lines if line.startswith("|")]
    assert {line.count("|") for line in tables} == {4, 6, 7, 11}
    assert not any(line.startswith("#") for line in lines[1:])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("plain", "`plain`"),
        ("", "-"),
        (None, "-"),
        (" \n ", "-"),
        ("`", "`` ` ``"),
        ("a``b`c", "``` a``b`c ```"),
        ("a|b\\|c", "`a│b\\│c`"),
        ("x" * 400, f"`{'x' * 299}…`"),
    ],
)
def test_a_text_is_a_code_span(text: str | None, message: str) -> None:
    assert code_span(text) == message


def test_the_json_document_is_complete(
    literal: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "diff.json"
    assert printed(literal, capsys, "--format", "json", "--limit", "1", "-o", str(file)) == []
    found = json.loads(file.read_text("utf-8"))
    assert list(found) == [
        *("a", "b", "by", "metrics", "steps", "only_a", "only_b"),
        *("samples", "scores", "causes", "claims"),
    ]
    assert list(found["a"]) == [
        *("run_id", "pipeline", "status", "started_at", "samples", "tags", "partial"),
    ]
    [metric] = found["metrics"]
    assert metric == {
        "metric": "noise_sensitivity",
        "lower_is_better": True,
        "a": {"scored": 3, "undefined": 0, "failed": 0, "absent": 0},
        "b": {"scored": 1, "undefined": 0, "failed": 1, "absent": 1},
        "paired": 1,
        "units": 1,
        "mean_a": 0.5,
        "mean_b": 0.75,
        "difference": 0.25,
        "low": None,
        "high": None,
        "p": None,
        "p_holm": None,
        "finding": "unclear",
    }
    assert found["steps"][2] == {
        "step": "in_reference",
        "kind": "verdicts",
        "same": False,
        "causes": [],
        "settings": [],
    }
    assert found["samples"] == [{"sample_id": "z", "state": "removed", "fields": []}]
    assert [list(row) for row in found["scores"]] == [
        [
            *("metric", "sample_id", "a", "b", "difference"),
            *("status_a", "status_b", "reason_a", "reason_b"),
        ]
    ] * 2
    assert found["claims"][0] == {
        "change": "verdict flipped",
        "cause": "chance",
        "step": "in_reference",
        "sample_id": HOSTILE,
        "claim": HOSTILE,
        "against": "reference",
        "passage": None,
        "a": "neutral",
        "b": "contradicted",
        "reason_a": "because neutral",
        "reason_b": "because contradicted",
    }
    assert len(found["claims"]) == 2


def test_samples_of_one_conversation_are_one_unit(
    literal: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(literal, capsys, "--by", "talk", "--metric", "noise_sensitivity")
    assert any(line.startswith("noise_sensitivity ↓ 1 in 1 0.500 0.750") for line in lines)
    assert any(line.endswith("one unit for each talk") for line in lines)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--by", "tlak"], "--by: no sample has the field 'tlak'; did you mean 'talk'?"),
        (
            ["--metric", "faithfulness"],
            "--metric: neither run has scores of 'faithfulness'; known are noise_sensitivity",
        ),
        (["-o", "/nowhere/x", "--format", "json"], None),
    ],
)
def test_wrong_options(
    literal: Store, words: list[str], message: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", *words, "--live", "--store", str(literal.path)]) == 2
    what = "/nowhere/x: cannot be written (No such file or directory)"
    right = "name a file in a folder that you can write to"
    assert capsys.readouterr().err == f"claimflow: {message or f'{what}; {right}'}\n"


def test_the_first_run_has_no_previous_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path / "s.duckdb")
    run = put_run(store, {"samples": Table("samples", [])})
    assert main(["diff", "--live", "--store", str(store.path)]) == 2
    assert capsys.readouterr().err == (
        f"claimflow: {store.path}: holds only one whole run (done, with all samples and "
        "steps), so there is no previous one; run the pipeline again to compare two runs\n"
    )
    put_run(store, {"samples": Table("samples", [])}, pipeline="another")
    assert main(["diff", "previous", run, "--live", "--store", str(store.path)]) == 2
    assert capsys.readouterr().err == (
        f"claimflow: {store.path}: no whole run of the same pipeline (done, with all samples and "
        f"steps) is older than {run}; "
        "name the run to compare with, as `claimflow runs` lists it\n"
    )


def test_claims_of_a_metric_are_of_the_steps_that_it_was_made_of(tmp_path: Path) -> None:
    answers = [
        {
            "sample_id": "a",
            "response": "The tower stands in Paris.",
            "reference": "The tower stands in Rome.",
            "retrieved_contexts": ["The tower stands in Oslo."],
        }
    ]
    settings: dict[str, Any] = {
        "metrics": ["faithfulness", "factual_correctness"],
        "store": tmp_path / "s.duckdb",
    }
    claimflow.evaluate(answers, **settings)
    for field in ("reference", "response"):
        answers[0][field] = "The tower stands in Oslo."
        claimflow.evaluate(answers, **settings)
    runs = claimflow.connect(tmp_path / "s.duckdb")
    oldest, _, newest = reversed(runs.runs["run_id"].to_list())

    def steps(*metrics: str) -> set[str]:
        return set(runs.compare(oldest, newest, metrics=metrics).verdicts["step"])

    assert "reference_claims" in steps()
    assert steps("faithfulness") == {"response_claims"}
