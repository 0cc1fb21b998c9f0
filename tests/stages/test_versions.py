"""Code is not hashed: this asks, when a stage's source changes, whether its rows do too.

Where the same settings now give other rows, raise the stage's `version`, so that tables on
file are made anew. Then (or where the rows are the same) accept the source as it is by

    python tests/stages/test_versions.py
"""

import ast
import hashlib
import json
from pathlib import Path

import pytest

import stages
from stages import REGISTER

ACCEPTED = Path(__file__).with_name("versions.json")
ROOT = Path(stages.__file__).parent.parent
COMMON = {"stages.base", "stages.rows", "stages.tables", "stages.tools", "stages.prompt"}


def sources(module: str, seen: set[str]) -> set[str]:
    """The modules of `stages` that a module needs to make its rows, itself among them."""
    if module in seen or module in COMMON:
        return seen
    seen.add(module)
    for node in ast.walk(ast.parse(path_of(module).read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("stages."):
            sources(str(node.module), seen)
    return seen


def path_of(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def state(use: str) -> dict[str, object]:
    """The version of a stage and a hash of the code that its rows come from."""
    stage = REGISTER[use]
    modules = sorted(sources(stage.__module__, set()))
    code = "\n".join(path_of(module).read_text("utf-8") for module in modules)
    source = hashlib.sha256(code.encode()).hexdigest()[:16]
    return {"version": stage.version, "source": source}


@pytest.mark.parametrize("use", REGISTER)
def test_the_source_of_a_stage_is_accepted(use: str) -> None:
    accepted = json.loads(ACCEPTED.read_text("utf-8"))
    assert accepted.get(use) == state(use), __doc__


def test_a_stage_stands_on_all_that_it_imports() -> None:
    assert {"stages.decompose", "stages.text.claims", "stages.text.sentences"} <= sources(
        "stages.decompose", set()
    )


if __name__ == "__main__":
    ACCEPTED.write_text(json.dumps({use: state(use) for use in REGISTER}, indent=2) + "\n")
