"""Code is not hashed: this asks, when a stage's source changes, whether its rows do too.

Docstrings, comments, imports and the names of modules do not count. Where the same settings now
give other rows, raise the stage's `version`, so that stored tables are made again. Then (or where
the rows are the same) accept the source as it is by

    python tests/stages/test_versions.py
"""

import ast
import hashlib
import json
from pathlib import Path

import pytest

import claimflow
from claimflow.stages import plugins
from claimflow.stages.registry import STAGES

ACCEPTED = Path(__file__).with_name("versions.json")
ROOT = Path(claimflow.__file__).parent.parent
COMMON = {
    f"claimflow.stages.{name}" for name in ("base", "plugins", "prompts", "rows", "tables", "tools")
}


def sources(module: str, seen: set[str]) -> set[str]:
    """The modules of `stages` that a module needs to make its rows, itself among them."""
    if module in seen or module in COMMON:
        return seen
    seen.add(module)
    for node in ast.walk(ast.parse(path_of(module).read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("claimflow."):
            sources(str(node.module), seen)
    return seen


def path_of(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def syntax(code: str) -> str:
    return plugins.syntax(code, imports=False)


def state(use: str) -> dict[str, object]:
    """The version of a stage and a hash of the code that its rows come from."""
    stage = STAGES[use]
    modules = sources(stage.__module__, set())
    # Sorted by content, so that a module may change its name.
    code = sorted(syntax(path_of(module).read_text("utf-8")) for module in modules)
    source = hashlib.sha256("\n".join(code).encode()).hexdigest()[:16]
    return {"version": stage.version, "source": source}


@pytest.mark.parametrize("use", STAGES)
def test_the_source_of_a_stage_is_accepted(use: str) -> None:
    accepted = json.loads(ACCEPTED.read_text("utf-8"))
    assert accepted.get(use) == state(use), __doc__


def test_the_source_of_a_stage_includes_its_imports() -> None:
    found = sources("claimflow.stages.decompose", set())
    assert {"claimflow.stages.claim_rules.decompose", "claimflow.stages.text.sentences"} <= found


def test_a_change_of_code_is_seen_and_a_move_is_not() -> None:
    code = "from claimflow.stages.a import f\n\ndef g(x):\n    return f(x) + 1\n"
    moved = code.replace("stages.a", "stages.scores.b")
    assert syntax(code) == syntax(moved) != syntax(moved.replace("+ 1", "+ 2"))


def test_only_code_counts() -> None:
    code = 'def f(a):\n    """Text."""\n    return a  # a comment\n\nX = 1\n"""More text."""\n'
    bare = "def f(a):\n    return a\n\nX = 1\n"
    assert syntax(code) == syntax(bare) != syntax(bare.replace("1", "2"))


if __name__ == "__main__":
    ACCEPTED.write_text(json.dumps({use: state(use) for use in STAGES}, indent=2) + "\n")
