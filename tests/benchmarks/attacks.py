"""Run every test that `flows/guides/attacks.md` names, and print which attacks hold.

    python -m tests.benchmarks.attacks [SECTION ...]

Exit code 1 if a test failed or was skipped.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "flows/guides/attacks.md"


class Attack(NamedTuple):
    """One row of the page."""

    section: str
    tried: str
    holds: str
    tests: list[str]
    """Pytest node ids without parameters."""


def read_attacks(page: str) -> list[Attack]:
    """The rows of every table of the page, by the heading above it."""
    attacks, section = [], ""
    for line in page.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif line.startswith("|") and not re.match(r"\| tried \||\|[-|]+$", line):
            # A bar inside a cell is written as \| in Markdown.
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            tried, holds, tests = cells
            attacks.append(Attack(section, tried, holds, re.findall(r"`([^`]+)`", tests)))
    return attacks


def run_tests(tests: list[str]) -> dict[str, bool]:
    """Whether each test passed with all its parameters. One pytest process for each file."""
    passed = {}
    for file in sorted({test.partition("::")[0] for test in tests}):
        named = sorted({test for test in tests if test.startswith(f"{file}::")})
        with tempfile.TemporaryDirectory() as folder:
            results = Path(folder) / "results.xml"
            command = [sys.executable, "-m", "pytest", "-n0", f"--junitxml={results}", *named]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            outcomes = _outcomes(results) if results.exists() else {}
        if done.returncode != 0:
            print(done.stdout[-4000:], done.stderr[-2000:], file=sys.stderr)
        for test in named:
            found = outcomes.get(tuple(test.removesuffix(".py").split("::")[1:]), [])
            passed[test] = bool(found) and all(found)
    return passed


def _outcomes(results: Path) -> dict[tuple[str, ...], list[bool]]:
    """Whether each case of a JUnit file passed, by class and function."""
    outcomes: dict[tuple[str, ...], list[bool]] = {}
    for case in ET.parse(results).iter("testcase"):
        classes = [part for part in case.get("classname", "").split(".") if part[:1].isupper()]
        name = case.get("name", "").partition("[")[0]
        good = not any(case.find(tag) is not None for tag in ("failure", "error", "skipped"))
        outcomes.setdefault((*classes, name), []).append(good)
    return outcomes


def main() -> int:
    attacks = read_attacks(PAGE.read_text("utf-8"))
    sections = list(dict.fromkeys(attack.section for attack in attacks))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("section", nargs="*", choices=sections, default=sections)
    chosen = [attack for attack in attacks if attack.section in parser.parse_args().section]
    passed = run_tests([test for attack in chosen for test in attack.tests])
    fallen = 0
    for attack in chosen:
        held = all(passed[test] for test in attack.tests)
        fallen += not held
        print(f"{'held' if held else 'FALLEN':<7} {attack.section}: {attack.tried}")
    print(f"{len(chosen)} attacks, {fallen} fallen")
    return 1 if fallen else 0


if __name__ == "__main__":
    sys.exit(main())
