"""Counts that describe the structure of the code: `python -m tests.structure`.

Floors are the layers of the import contract of `flows`. A module names a library where it
imports it, at the top or inside a function.
"""

import ast
import statistics
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SMALL = 40
LIBRARIES = ("duckdb", "litellm", "prefect", "yaml")


def sources() -> list[Path]:
    return sorted(path for part in ("flows", "stages") for path in ROOT.glob(f"{part}/**/*.py"))


def imported(tree: ast.AST) -> Iterator[str]:
    """The dotted names of all modules, or names in modules, that a file imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (arg.value for arg in node.args if isinstance(arg, ast.Constant))


def importers(trees: dict[str, ast.AST]) -> Counter[str]:
    """How many other modules import each module."""
    counts: Counter[str] = Counter()
    for module, tree in trees.items():
        found = set()
        for name in imported(tree):
            found |= {name, name.rpartition(".")[0]} & trees.keys()
        counts.update(found - {module})
    return counts


def main() -> None:
    paths = sources()
    lines = {path: len(path.read_text("utf-8").splitlines()) for path in paths}
    trees = {
        ".".join(("claimflow", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(
            ".__init__"
        ): ast.parse(path.read_text("utf-8"))
        for path in paths
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (flows,) = (one for one in contracts if one.get("containers") == ["claimflow.flows"])
    once = [module for module, count in importers(trees).items() if count == 1]
    print(f"Python files in flows and stages: {len(paths)}")
    print(f"lines: {sum(lines.values()):,}; median file: {statistics.median(lines.values()):g}")
    print(f"files under {SMALL} lines: {sum(count < SMALL for count in lines.values())}")
    print(f"modules imported by exactly one other: {len(once)}")
    print(f"floors: {len(flows['layers'])}; import contracts: {len(contracts)}")
    for library in LIBRARIES:
        users = sum(
            any(name.split(".")[0] == library for name in imported(tree)) for tree in trees.values()
        )
        print(f"modules that import {library}: {users}")


if __name__ == "__main__":
    main()
