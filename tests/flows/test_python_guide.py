"""The code of the guide to Python, run from top to bottom in one process."""

import re
import subprocess
import sys
from pathlib import Path

import claimflow

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "flows/guides/python.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n((?s:.*?))```", GUIDE)
CALLED = """
import os
import polars  # which sets a variable of its memory allocator
before = dict(os.environ)
{code}
test_answers()
assert dict(os.environ) == before
"""


def test_the_code_of_the_guide_runs(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    # Without `if __name__ == "__main__"`, and in a folder of its own.
    script.write_text(CALLED.format(code="\n".join(BLOCKS)), "utf-8")
    done = subprocess.run(
        [sys.executable, "-P", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.startswith("faithfulness 0.547 (")
    assert "It stands in Rome." in done.stdout
    left = {path.name for path in tmp_path.iterdir()}
    assert {"evals.duckdb", "report.html", "faithfulness.svg"} <= left


def test_every_argument_and_error_that_the_guide_names_exists() -> None:
    table = GUIDE.partition("| argument |")[2].partition("\n\n")[0]
    firsts = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(firsts))) <= set(claimflow.evaluate.__annotations__)
    errors = re.findall(r"`(\w+Error)`", GUIDE.partition("## Errors")[2])
    assert all(issubclass(getattr(claimflow, name), Exception) for name in errors)
