"""The rules of the house that no linter knows."""

import ast
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from claimflow.flows.pipeline.schema import json_schema
from claimflow.stages.base import Stage
from claimflow.stages.registry import LOWER_IS_BETTER, STAGES

ROOT = Path(__file__).parent.parent

HEAVY = (
    "litellm",
    "prefect",
    "onnxruntime",
    "scipy",
    "distributed",
    "vl_convert",
    "sklearn",
    "krippendorff",
    "jinja2",
    "huggingface_hub",
)


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
        "import claimflow.stages.registry",
        "from claimflow.flows.cli.main import main\ntry: main(['--help'])\nexcept SystemExit: pass",
        "import claimflow.flows.api",
    ],
)
def test_heavy_packages_are_imported_only_where_used(statement: str) -> None:
    assert imports(statement) == set()


def test_help_needs_no_tables() -> None:
    code = (
        "import sys\nfrom claimflow.flows.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
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
        "CHANGELOG.md",
        "README.md",
        "LICENSE",
    }


def test_the_engine_knows_stages_through_their_base_class_alone() -> None:
    concrete = {
        (module, name)
        for path in ROOT.glob("flows/**/*.py")
        for module, name in _imported(path)
        if module.startswith("claimflow.stages.") and module != "claimflow.stages.base"
        for found in (getattr(importlib.import_module(module), name, None),)
        if isinstance(found, type) and issubclass(found, Stage)
    }
    assert concrete == set()


def _imported(path: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


def test_the_json_schema_is_current() -> None:
    written = json.loads((ROOT / "configs/pipeline.schema.json").read_text("utf-8"))
    assert written == json_schema(), "run: claimflow schema > configs/pipeline.schema.json"


def test_every_stage_is_in_the_table_of_stages() -> None:
    table = (ROOT / "stages/guides/stages.md").read_text("utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(STAGES)


def test_the_table_of_stages_names_every_setting() -> None:
    rows = (ROOT / "stages/guides/stages.md").read_text("utf-8").splitlines()
    for use, stage in STAGES.items():
        (row,) = [line for line in rows if line.startswith(f"| `{use}` |")]
        lacking = [name for name in stage.model_fields if f"`{name}" not in row]
        assert lacking == [], f"{use}: {lacking}"


def test_the_table_of_metrics_names_every_metric_and_its_compat() -> None:
    table = (ROOT / "stages/guides/metrics.md").read_text("utf-8").partition("## Every metric")[2]
    rows = re.findall(r"^\| ([\w, ]+?)( ↓)? \| `(\w+)` \|.*\|([^|]*)\|$", table, re.MULTILINE)
    named = {(step, metric) for metrics, _, step, _ in rows for metric in metrics.split(", ")}
    scoring = [stage for stage in STAGES.values() if stage.metrics]
    assert named == {(stage.use, metric) for stage in scoring for metric in stage.metrics}
    assert {metric for metric, low, _, _ in rows if low} == LOWER_IS_BETTER
    for _, _, step, compat in rows:
        field = STAGES[step].model_fields.get("compat")
        libraries = set(re.findall(r"[a-z]+(?:-[a-z]+)?-0\.\d(?:-legacy)?", compat))
        assert libraries <= (set(_words(field.annotation)) if field else set()), step
    for stage in scoring:
        field = stage.model_fields.get("compat")
        message = " ".join(compat for _, _, step, compat in rows if step == stage.use)
        assert all(name in message for name in (_words(field.annotation) if field else ())), (
            stage.use
        )


def _words(annotation: Any) -> list[str]:
    """The words of a `Literal`, or of one that may be None."""
    return [word for part in get_args(annotation) for word in get_args(part)]
