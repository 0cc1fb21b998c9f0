"""`claimflow init`: what it writes, and that it overwrites nothing."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from claimflow.flows.cli.main import main
from claimflow.flows.pipeline.schedules import read_schedules
from claimflow.flows.pipeline.schema import json_schema
from claimflow.flows.runner.prepare import prepare


def test_a_project_is_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".gitignore").write_text("*.pyc", "utf-8")
    assert main(["init", "--nightly", "--ci", "github"]) == 0
    assert (
        "claimflow run pipeline.yaml\n  claimflow serve schedules.yaml" in capsys.readouterr().out
    )
    assert prepare("pipeline.yaml").samples.count == 5
    assert [one.name for one in read_schedules(Path("schedules.yaml")).scheduled] == ["nightly"]
    schema = json.loads(Path(".claimflow/pipeline.schema.json").read_text("utf-8"))
    assert schema == json_schema()
    jsonschema.validate(yaml.safe_load(Path("pipeline.yaml").read_text("utf-8")), schema)
    workflow = Path(".github/workflows/evaluation.yml").read_text("utf-8")
    steps = yaml.safe_load(workflow)["jobs"]["evaluation"]["steps"]
    assert "claimflow run pipeline.yaml || test $? -eq 5" in [one.get("run") for one in steps]
    assert not any(word in workflow for word in ("FOLDER", "KEY", "VERSION"))
    ignored = Path(".gitignore").read_text("utf-8").splitlines()
    assert ignored[0] == "*.pyc"
    assert len(ignored) == len(set(ignored)) == 6

    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert main(["init", "--judge", "openai/gpt-4o-mini", "--ci", "gitlab"]) == 2
    assert "pipeline.yaml: exists already; " in capsys.readouterr().err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_project_for_data_has_the_metrics_of_its_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    Path("data.jsonl").write_text('{"answer": "A.", "ground_truth": "B."}\n', "utf-8")
    arguments = ["init", "evals", "--data", "data.jsonl", "--judge", "openai/gpt-4o-mini"]
    assert main([*arguments, "--ci", "gitlab"]) == 0
    assert "(no sample has retrieved_contexts)" in capsys.readouterr().err
    written = prepare("evals/pipeline.yaml").pipeline
    assert written.store == tmp_path / "evals" / "evaluations.duckdb"
    assert {"factual_correctness", "summary"} < {step.name for step in written.steps}
    assert "faithfulness" not in {step.name for step in written.steps}
    workflow = Path(".gitlab-ci.yml").read_text("utf-8")
    assert "cd evals" in yaml.safe_load(workflow)["evaluation"]["script"]
    assert "Set OPENAI_API_KEY under" in workflow
