"""A run that is killed many times: nothing is asked twice, and the result is the same.

    python -m tests.benchmarks.kills [--kills 20] [--samples 100]

It fails where a reply that had come more than a second before a kill is asked for again.
"""

import argparse
import tempfile
from pathlib import Path

from tests.endpoint.server import serve
from tests.flows.forks import forking
from tests.flows.test_judge_durability import check_kills


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--samples", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, serve() as endpoint:
        folder = Path(name)
        (folder / "forks").mkdir()
        with forking(folder / "forks") as forks:
            check_kills(folder, forks, endpoint, kills=options.kills, samples=options.samples)
    print(f"killed {options.kills} times: nothing was asked twice")


if __name__ == "__main__":
    main()
