"""The rules of the house that no linter knows."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flows.engine.pipeline_schema import json_schema
from stages import REGISTER

ROOT = Path(__file__).parent.parent
CODE = sorted([*ROOT.glob("flows/**/*.py"), *ROOT.glob("stages/**/*.py")])

HEAVY = ("litellm", "prefect", "onnxruntime")


def imports(statement: str) -> set[str]:
    """The heavy packages that a fresh process has imported after `statement`."""
    code = f"{statement}\nimport sys\nprint(*sorted(set(sys.modules) & set({HEAVY!r})))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "statement",
    [
        "import stages",
        "from flows.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass",
        "import flows.engine.execute",
    ],
)
def test_heavy_packages_are_imported_only_where_used(statement: str) -> None:
    assert imports(statement) == set()


def test_help_needs_no_tables() -> None:
    code = (
        "import sys\nfrom flows.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
        "assert not {'polars', 'duckdb', 'pydantic', 'rich'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True)


def test_the_top_level_is_fixed() -> None:
    listed = subprocess.run(
        ["git", "ls-files"], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout
    top = {name.partition("/")[0] for name in listed.splitlines()}
    visible = {name for name in top if not name.startswith(".")}
    assert visible <= {
        "pyproject.toml",
        "flows",
        "stages",
        "configs",
        "tests",
        "README.md",
        "LICENSE",
    }


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_hold_one_idea(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= 200


def test_the_json_schema_is_current() -> None:
    written = json.loads((ROOT / "configs/pipeline.schema.json").read_text("utf-8"))
    assert written == json_schema(), "run: claimflow schema > configs/pipeline.schema.json"


def test_every_stage_is_in_the_table_of_stages() -> None:
    table = (ROOT / "stages/README.md").read_text("utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(REGISTER)


def test_the_table_of_stages_names_every_setting() -> None:
    rows = (ROOT / "stages/README.md").read_text("utf-8").splitlines()
    for use, stage in REGISTER.items():
        (row,) = [line for line in rows if line.startswith(f"| `{use}` |")]
        lacking = [name for name in stage.model_fields if f"`{name}" not in row]
        assert lacking == [], f"{use}: {lacking}"
