"""The command `check`, and the hook of pre-commit that calls it."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from claimflow.flows.cli.main import main

ROOT = Path(__file__).parents[2]
[HOOK] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))


def test_what_is_right_is_said_in_one_line_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT)
    other = tmp_path / "compose.yaml"
    other.write_text("services: {}\n", "utf-8")
    files = ["configs/quickstart.yaml", "configs/schedules.yaml", "configs/prompts/verify.md"]
    assert main(["check", *files, str(other)]) == 0
    assert capsys.readouterr().out == (
        "configs/quickstart.yaml: OK, a pipeline of 17 steps\n"
        "configs/schedules.yaml: OK, 2 deployments\n"
        "configs/prompts/verify.md: OK, a prompt for verify_claims\n"
        f"{other}: not checked: neither a pipeline nor schedules\n"
    )


def test_the_mistakes_of_all_files_are_reported_together(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "name: p\nsamples: {path: none.jsonl}\nstore: s.duckdb\nsteps: {a: {use: fathfulness}}\n"
    Path("p.yaml").write_text(text, "utf-8")
    Path("s.yaml").write_text("deployments: {n: {pipeline: p.yaml, cron: 99 * * * *}}\n", "utf-8")
    Path("bad.yaml").write_text("steps: [\n", "utf-8")
    Path("v.md").write_text("no blanks\n", "utf-8")
    assert main(["check", "p.yaml", "s.yaml", "bad.yaml", "v.md", "gone.yaml"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("did you mean 'faithfulness'?") == 1
    for place in ("s.yaml:1", "bad.yaml:", "v.md", "gone.yaml"):
        assert place in printed.err
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "bad.yaml",
        "p.yaml",
        "s.yaml",
        "v.md",
    ]


def test_a_data_file_is_not_checked_as_yaml(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my answers.jsonl").write_text('{"answer": "a"}\n', "utf-8")
    assert main(["check", "my answers.jsonl"]) == 2
    assert capsys.readouterr().err == (
        "claimflow: my answers.jsonl: is a data file, and `check` reads pipelines, schedules and "
        "prompts; `claimflow plan 'my answers.jsonl'` checks it\n"
    )


def test_the_hook_checks_the_files_of_a_repository() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "configs"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names = [name for name in listed.stdout.splitlines() if re.search(HOOK["files"], name)]
    # The schedules that init writes name a pipeline that it writes beside them.
    files = [name for name in names if name != "configs/init/schedules.yml"]
    assert "configs/quickstart.yaml" in files
    assert "configs/prompts/verify.md" in files
    program, *words = shlex.split(HOOK["entry"])
    assert program == "claimflow"
    assert main([*words, *(str(ROOT / name) for name in files)]) == 0
