"""Cost of a shared ledger: its CPU for each call that runs save, or are given.

    python -m tests.benchmarks.ledger [--calls 17400] [--per-second 1160]

`claimflow ledger` is a process of its own. One client claims the keys of 290 calls at a time, six
to a call, and saves the calls with prompts of 1.4 KB, as often as gives the rate: that of four
processes that send as many calls as one can. Then it reads all replies, a thousand at a time.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from claimflow.flows.judge.calls import Call, Entry
from claimflow.flows.judge.shared_ledger import SharedLedger
from claimflow.flows.store.store import now

MAIN = "import sys; from claimflow.__main__ import main; sys.exit(main())"
AT_ONCE = 290
TICK = 1 / os.sysconf("SC_CLK_TCK")
"""Seconds of a tick in /proc."""


@contextmanager
def served(store: Path) -> Iterator[tuple[str, int]]:
    """The URL of a ledger, and its process."""
    command = [sys.executable, "-c", MAIN, "ledger", str(store), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[0], process.pid
    finally:
        process.terminate()
        process.communicate()


def cpu(process: int) -> float:
    """The CPU seconds that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK


def entry() -> Entry:
    """A call that gave six verdicts."""
    call = Call(
        str(uuid4()), "run", "step", "judge", "openai/gpt", None, str(uuid4()), None, "schema",
        "You are a judge. " * 30, random.randbytes(450).hex(), now(),
        reply='{"claims": [{"id": 1, "verdict": "entailed"}]}', prompt_tokens=900, attempts=1,
    )  # fmt: skip
    reply = json.dumps({"answer": {"verdict": "entailed"}, "call": call.call_id}).encode()
    return Entry(call, {str(uuid4()): reply for _ in range(6)})


def main(options: Any) -> None:
    with (
        tempfile.TemporaryDirectory() as name,
        served(Path(name) / "shared.duckdb") as (url, process),
    ):
        print(f"start-up: {cpu(process):.1f} CPU s")
        ledger = SharedLedger(url, threading.Event())
        keys: list[str] = []
        before, started = cpu(process), time.monotonic()
        calls = 0
        while calls < options.calls:
            entries = [entry() for _ in range(AT_ONCE)]
            asked = [key for one in entries for key in one.replies]
            ledger.take(asked)
            ledger.send(entries)
            keys += asked
            calls += len(entries)
            time.sleep(max(0, started + calls / options.per_second - time.monotonic()))
        seconds, used = time.monotonic() - started, cpu(process) - before
        rate = calls / seconds
        print(
            f"saved: {calls:,} calls, {rate:,.0f} a second, {used / calls * 1000:.2f} CPU ms each"
        )
        before = cpu(process)
        given = sum(len(one.replies) for one in ledger.recall(keys))
        used = cpu(process) - before
        print(
            f"given: {given:,} replies of {calls:,} calls, {used / calls * 1000:.2f} CPU ms a call"
        )
        ledger.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=17_400)
    parser.add_argument("--per-second", type=float, default=1_160.0)
    main(parser.parse_args())
