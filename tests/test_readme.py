"""The README's commands, run word for word, and what it says that they print."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from flows.engine.pipeline import build_pipeline
from flows.engine.yaml_source import load_yaml
from tests.endpoint import serve

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
STORY = README.partition("## One night, one edited prompt\n")[2].partition("\n## ")[0]
SHOWN = re.findall(r"```console\n\$ (claimflow .*)\n((?s:.*?))```", README.replace(STORY, ""))


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the demo pipelines, where the first command of the README was run."""
    folder = tmp_path_factory.mktemp("clone")
    shutil.copytree(ROOT / "configs", folder / "configs")
    say("claimflow run configs/quickstart.yaml", folder)
    return folder


def say(command: str, folder: Path, **environment: str) -> str:
    code = "import sys; from flows.cli import main; sys.exit(main(sys.argv[1:]))"
    program, *arguments = shlex.split(command)
    assert program == "claimflow"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env=os.environ | environment,
    ).stdout


def lines(text: str) -> list[str]:
    """Lines without blank ones, trailing blanks, run ids and the place of the clone."""
    text = re.sub(r"\d{8}-\d{6}-[0-9a-f]{4}", "RUN", text)
    text = re.sub(r"store: .*/quickstart.duckdb", "store: quickstart.duckdb", text)
    text = re.sub(r"tokens, [0-9.]+ USD", "tokens, COST", text)  # by how many are cached in time
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def test_the_readme_shows_commands() -> None:
    assert len(SHOWN) >= 4


@pytest.mark.parametrize(("command", "output"), SHOWN, ids=[command for command, _ in SHOWN])
def test_what_the_readme_shows_is_what_is_printed(command: str, output: str, clone: Path) -> None:
    printed = lines(say(command, clone))
    if command.startswith("claimflow run"):  # the README shows a first run
        printed = [
            re.sub(r"0 steps made, 18 reused", "18 steps made, 0 reused", p) for p in printed
        ]
    assert_shown(output, printed)


def assert_shown(output: str, printed: list[str]) -> None:
    """Every line of `output` is printed, in that order; dots stand for any others."""
    rest = iter(printed)
    for line in lines(output):
        if line != "...":
            assert line in rest, f"{line!r} is not printed there:\n" + "\n".join(printed)


def commands(heading: str) -> list[str]:
    """The commands that the README gives under a heading without saying what they print."""
    section = README.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"```console\n(?!\$)((?s:.*?))```", section)
    return [line for block in blocks for line in block.splitlines()]


def test_a_judge_is_asked_as_the_readme_says(clone: Path) -> None:
    given = commands("A language model as judge")
    assert [command.split()[0] for command in given] == [
        "export", "claimflow", "claimflow", "cp", "claimflow",
    ]  # fmt: skip
    with serve() as endpoint:
        world = {"OPENAI_API_KEY": "sk-readme", "OPENAI_API_BASE": endpoint.api_base}
        said = {}
        for command in given:
            if command.startswith("claimflow"):
                said[command] = say(command, clone, **world)
            elif command.startswith("cp"):
                subprocess.run(shlex.split(command), check=True, cwd=clone)
    assert "judge: openai/gpt-4o-mini" in said["claimflow doctor configs/llm/quickstart.yaml"]
    assert "0 failed" not in said["claimflow run configs/llm/quickstart.yaml"]
    assert "judge openai/gpt-4o-mini: " in said["claimflow run configs/llm/quickstart.yaml"]
    assert "tokens" in said["claimflow prompt check strict.md"]


def test_the_story_comes_out_as_it_is_told(tmp_path: Path) -> None:
    told = re.findall(
        r"^\$ (.*)\n((?s:.*?))(?=^\$ |```)",
        "\n".join(re.findall(r"```console\n(\$(?s:.*?)```)", STORY)),
        re.MULTILINE,
    )
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    happened = []
    with serve() as endpoint:
        environment = os.environ | {
            "OPENAI_API_KEY": "none",
            "OPENAI_API_BASE": endpoint.api_base,
            "PYTHONPATH": str(ROOT),
        }
        for command, output in told:
            before = endpoint.hits
            program = f"{shlex.quote(sys.executable)} -m flows.cli "
            done = subprocess.run(
                re.sub("^claimflow ", program, command),
                shell=True,
                check=False,
                capture_output=True,
                text=True,
                cwd=tmp_path,
                env=environment,
            )
            assert_shown(output, lines(done.stdout))
            happened.append(
                (" ".join(command.split()[:2]), done.returncode, endpoint.hits - before)
            )
    assert happened == [
        ("claimflow run", 5, 135),
        ("claimflow tag", 0, 0),
        ("cp configs/prompts/verify.md", 0, 0),
        ("sed -i.bak", 0, 0),
        ("claimflow plan", 0, 0),
        ("claimflow run", 4, 65),
        ("claimflow diff", 0, 0),
        ("cp before.md", 0, 0),
        ("claimflow plan", 0, 0),
        ("claimflow run", 0, 0),
    ]


@pytest.mark.parametrize("page", ["README.md", "configs/README.md"])
def test_the_settings_that_a_page_shows_are_right(page: str, tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n((?s:.*?))```", (ROOT / page).read_text("utf-8"))
    parts = [yaml.safe_load(block) for block in blocks]
    (tmp_path / "strict.md").write_text((ROOT / "configs/prompts/verify.md").read_text("utf-8"))
    assert len(parts) >= 3
    for part in parts:
        if "name" in part or "deployments" in part:
            continue
        above = ("judge", "judges", "embedder", "gates")
        top = {key: part.pop(key) for key in above if key in part}
        judge = {"judge": {"model": "openai/any"}} if "judge" not in top else {}
        steps = {"response_claims": {"use": "decompose_claims", "of": "response"}}
        if "gates" in top:
            for name in ("noise_sensitivity", "quickstart"):
                text = (ROOT / f"configs/{name}.yaml").read_text("utf-8")
                steps |= yaml.safe_load(text)["steps"]
            del steps["noise_in_irrelevant"]
        pipeline = {
            "name": "shown",
            "samples": {"path": "answers.jsonl"},
            "store": "shown.duckdb",
            **top,
            **judge,
            "steps": steps | part.pop("steps", {}) | part,
        }
        path = tmp_path / "shown.yaml"
        path.write_text(yaml.safe_dump(pipeline), "utf-8")
        assert build_pipeline(load_yaml(path)).steps


def test_every_link_leads_somewhere() -> None:
    for path in ROOT.glob("**/README.md"):
        if ".venv" in path.parts:
            continue
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", path.read_text("utf-8")):
            assert (path.parent / target).exists(), f"{path}: {target}"


def test_the_two_commands_are_marked_for_the_machine_that_checks_them() -> None:
    for name in ("demo", "tests"):
        block = re.search(rf"<!-- {name} -->\n```console\n(.+)\n```\n<!-- end -->", README)
        assert block
        assert block[1].startswith("pip install -e ")
