"""The README's commands, run word for word, and what it says that they print."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
SHOWN = re.findall(r"```console\n\$ (claimflow .*)\n((?s:.*?))```", README)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the demo pipelines, where the first command of the README was run."""
    folder = tmp_path_factory.mktemp("clone")
    (folder / "configs").mkdir()
    for path in (ROOT / "configs").iterdir():
        if path.is_file():
            (folder / "configs" / path.name).write_bytes(path.read_bytes())
    say("claimflow run configs/quickstart.yaml", folder)
    return folder


def say(command: str, folder: Path) -> str:
    code = "import sys; from flows.cli import main; sys.exit(main(sys.argv[1:]))"
    program, *arguments = shlex.split(command)
    assert program == "claimflow"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
    ).stdout


def lines(text: str) -> list[str]:
    """Lines without blank ones, trailing blanks, run ids and the place of the clone."""
    text = re.sub(r"\d{8}-\d{6}-[0-9a-f]{4}", "RUN", text)
    text = re.sub(r"store: .*/quickstart.duckdb", "store: quickstart.duckdb", text)
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
    rest = iter(printed)
    for line in lines(output):
        if line != "...":
            assert line in rest, f"{line!r} is not printed there:\n" + "\n".join(printed)


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
