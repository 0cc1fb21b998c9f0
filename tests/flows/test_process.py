"""Settings of processes that are claimflow's own."""

import subprocess
import sys

COMMAND = """
import gc, sys
before = gc.get_threshold()
sys.argv = ["claimflow", "version"]
from claimflow.__main__ import main
assert main() == 0
assert gc.get_threshold()[0] > 10 * before[0]
"""


def test_a_command_collects_less_garbage() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMMAND], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
