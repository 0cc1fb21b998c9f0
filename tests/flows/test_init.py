"""`claimflow init`: what it writes, and that it overwrites nothing."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import jsonschema
import pytest
import yaml

from claimflow.flows import __version__
from claimflow.flows.cli import init
from claimflow.flows.cli.main import main
from claimflow.flows.pipeline.schedules import read_schedules
from claimflow.flows.pipeline.schema import json_schema
from claimflow.flows.runner.prepare import prepare
from tests.endpoint.server import serve
from tests.flows.prefect_server import MAIN, Api, environment, until


def test_a_project_is_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(init, "_source", lambda: {"url": "file:///a/claimflow"})
    (tmp_path / ".gitignore").write_text("*.pyc", "utf-8")
    assert main(["init", "--nightly", "--ci", "github"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert [told[-3].strip(), told[-1].strip()] == [
        "claimflow run pipeline.yaml",
        "claimflow serve schedules.yaml",
    ]
    assert "workflows/evaluation.yml let pip install a claimflow that CI can reach" in told[-2]
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
    errors = capsys.readouterr().err
    assert "pipeline.yaml: exists already; move it away, or name another folder" in errors
    Path("answers.jsonl").write_text('{"response": "Mine."}\n', "utf-8")
    before[tmp_path / "answers.jsonl"] = Path("answers.jsonl").read_bytes()
    assert main(["init"]) == 2
    errors = capsys.readouterr().err
    assert "answers.jsonl: exists already; to evaluate it add --data answers.jsonl, or" in errors
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("source", "requirement"),
    [
        (None, f"claimflow=={__version__}"),
        ({"url": "file:///a/claimflow.whl", "archive_info": {}}, f"claimflow=={__version__}"),
        ({"url": "https://a.example/$(rm).whl", "archive_info": {}}, f"claimflow=={__version__}"),
        (
            {"url": "https://a.example/c.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "claimflow @ git+https://a.example/c.git@abc",
        ),
    ],
)
def test_the_workflow_installs_claimflow_from_where_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Any, requirement: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(init, "_source", lambda: source or {})
    assert main(["init", "--ci", "github"]) == 0
    workflow = yaml.safe_load(Path(".github/workflows/evaluation.yml").read_text("utf-8"))
    steps = workflow["jobs"]["evaluation"]["steps"]
    assert f'pip install "{requirement}"' in [one.get("run") for one in steps]


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("dangling", "dangling: is a link to nowhere, which is missing; name a folder"),
        ("file", "file: is no folder; name a folder that you can write to"),
    ],
)
def test_what_stands_in_place_of_the_folder_is_named(
    folder: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dangling").symlink_to("nowhere")
    Path("file").touch()
    assert main(["init", folder]) == 2
    assert message in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"dangling", "file"}


def test_the_next_commands_can_be_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "sp ace ünï", "--nightly"]) == 0
    assert capsys.readouterr().out.endswith(
        "next:\n  claimflow run 'sp ace ünï/pipeline.yaml'\n"
        "  claimflow serve 'sp ace ünï/schedules.yaml'\n"
    )


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
    # A language model splits sentences, rules leave them whole.
    assert written.source.section("steps")["response_claims"]["atomicity"] == "high"
    workflow = Path(".gitlab-ci.yml").read_text("utf-8")
    assert "cd evals" in yaml.safe_load(workflow)["evaluation"]["script"]
    assert "Set OPENAI_API_KEY under" in workflow


def test_what_is_written_runs_with_a_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert main(["init", "evals", "--judge", "openai/gpt-4o-mini"]) == 0
    assert "next:\n  set OPENAI_API_KEY in the environment\n" in capsys.readouterr().out
    with serve() as endpoint:
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        monkeypatch.setenv("OPENAI_API_BASE", endpoint.api_base)
        assert main(["run", "evals/pipeline.yaml"]) == 0
        asked = endpoint.hits
        assert asked > 0
        assert main(["run", "evals/pipeline.yaml"]) == 0
        assert endpoint.hits == asked
    with duckdb.connect("evals/evaluations.read.duckdb", read_only=True) as connection:
        [(models, dollars)] = connection.sql(
            "SELECT list(DISTINCT model), sum(cost) FROM audit.calls"
        ).fetchall()
    assert models == ["openai/gpt-4o-mini"]
    assert 0 < dollars < 1


def shell(script: str, folder: Path, **more: str) -> "subprocess.CompletedProcess[str]":
    """A script run as GitHub and GitLab run theirs: bash ends at the first command that fails."""
    command = folder.parent / "bin" / "claimflow"
    if not command.exists():
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m claimflow "$@"\n')
        command.chmod(0o755)
    path = os.pathsep.join([str(command.parent), os.environ["PATH"]])
    return subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=folder,
        env=os.environ | {"PATH": path} | more,
        capture_output=True,
        text=True,
        check=False,
    )


def worsen(answers: Path) -> None:
    """Give every sample an answer that its contexts do not support."""
    rows = [json.loads(line) for line in answers.read_text("utf-8").splitlines()]
    wrong = "The moon is made of green cheese. Elephants invented the telephone in 1650."
    lines = [json.dumps(row | {"response": wrong}) for row in rows]
    answers.write_text("\n".join(lines), "utf-8")


GUIDE = Path(__file__).parents[2] / "configs/guides/start.md"
IN_CI = GUIDE.read_text("utf-8").partition("## In CI")[2]
"""What the guide says of continuous integration, with the workflows and the comment."""


def assert_excerpt(language: str, number: int, text: str) -> None:
    """The lines of a block of `IN_CI` stand in `text` in their order; dots stand for any others."""
    block = re.findall(rf"```{language}\n((?s:.*?))```", IN_CI)[number]
    lines = iter(re.sub(r"\d{8}-\d{6}-\w{4}", "RUN", text).splitlines())
    for line in re.sub(r"\d{8}-\d{6}-\w{4}", "RUN", block).splitlines():
        assert line == "..." or line in lines, f"{line!r} is not there"


def test_the_commands_of_the_github_workflow_gate_and_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    assert main(["init", "evals", "--ci", "github"]) == 0
    text = Path(".github/workflows/evaluation.yml").read_text("utf-8")
    assert_excerpt("yaml", 0, text)
    workflow = yaml.safe_load(text)
    job = workflow["jobs"]["evaluation"]
    steps = {step.get("name", step.get("uses")): step for step in job["steps"]}
    assert steps["Install claimflow"]["run"] == f'pip install "claimflow=={__version__}"'
    folder = tmp_path / job["defaults"]["run"]["working-directory"]
    summary = tmp_path / "summary.md"

    def step(name: str) -> "subprocess.CompletedProcess[str]":
        return shell(steps[name]["run"], folder, GITHUB_STEP_SUMMARY=str(summary))

    first = step("Evaluate")
    assert (first.returncode, "gate" in first.stdout) == (0, True), first.stderr
    assert step("Tag the run that pull requests are compared with").returncode == 0
    assert step("Evaluate").returncode == 0
    assert step("Report").returncode == 0
    assert "0.000 to 0.000 | pass |" in summary.read_text("utf-8")
    worsen(folder / "answers.jsonl")
    assert step("Evaluate").returncode == 1
    assert step("Report").returncode == 0
    assert "| fail | `5 of 5 samples scored in both` |" in summary.read_text("utf-8")
    assert_excerpt("markdown", 0, (folder / "evaluation.md").read_text("utf-8"))
    comment = shlex.split(steps["Comment"]["run"])
    for named in (comment[comment.index("--body-file") + 1], "evaluation.html"):
        assert (folder / named).stat().st_size > 0
    uploaded = steps["actions/upload-artifact@v4"]["with"]["path"]
    assert (tmp_path / uploaded).is_file()
    assert (tmp_path / steps["actions/cache@v4"]["with"]["path"]).is_file()


def test_the_commands_of_the_gitlab_pipeline_gate_and_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    assert main(["init", "evals", "--ci", "gitlab"]) == 0
    text = Path(".gitlab-ci.yml").read_text("utf-8")
    assert_excerpt("yaml", 1, text)
    job: dict[str, Any] = yaml.safe_load(text)["evaluation"]
    install = f'pip install "claimflow=={__version__}"'
    assert install in job["script"]
    commands = "\n".join(line for line in job["script"] if line != install)

    def script(branch: str) -> "subprocess.CompletedProcess[str]":
        return shell(commands, tmp_path, CI_COMMIT_BRANCH=branch, CI_DEFAULT_BRANCH="main")

    first = script("main")
    assert first.returncode == 0, first.stderr
    assert "main is run" in first.stdout
    same = script("")
    assert (same.returncode, "main is run" in same.stdout) == (0, False)
    worsen(tmp_path / "evals/answers.jsonl")
    assert script("").returncode == 1
    after = shell("\n".join(job["after_script"]), tmp_path)
    assert after.returncode == 0, after.stderr
    artifacts = job["artifacts"]
    for named in (*artifacts["paths"], artifacts["reports"]["junit"], *job["cache"]["paths"]):
        assert (tmp_path / named).is_file(), named
    assert "<failure" in (tmp_path / artifacts["reports"]["junit"]).read_text("utf-8")


def test_the_schedules_run_the_pipeline(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--nightly"]) == 0
    # The tests share a server, on which names of deployments are unique.
    schedules, name = Path("schedules.yaml"), "nightly-by-init"
    text = schedules.read_text("utf-8")
    schedules.write_text(text.replace("\n  nightly:\n", f"\n  {name}:\n"), "utf-8")
    api = Api(server)
    world = environment(
        tmp_path / "home", PREFECT_API_URL=server, PREFECT_RUNNER_POLL_FREQUENCY="1"
    )
    with Path("log.txt").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", MAIN, "serve", "schedules.yaml"],
            env=world,
            stdout=log,
            stderr=log,
        )
    try:
        until(lambda: api.runs(name))
        run = api.trigger(name)
        assert api.ended(run) == "COMPLETED", Path("log.txt").read_text("utf-8")
    finally:
        process.terminate()
        process.wait(60)
    assert [*Path("reports").glob("**/*.html")]
    with duckdb.connect("evaluations.read.duckdb", read_only=True) as connection:
        found = connection.sql("SELECT status, sample_count FROM audit.runs").fetchall()
    assert found == [("done", 5)]
