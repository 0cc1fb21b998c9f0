"""CPU time and memory: of work in this process, and of other processes (Linux only)."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

Name = TypeVar("Name")

_TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU seconds of one round of `work`."""
    started = time.process_time()
    work()
    return time.process_time() - started


def fastest_of_three(work: Callable[[], object]) -> float:
    """CPU seconds of the fastest of three rounds of `work`."""
    return min(cpu_seconds(work) for _ in range(3))


def in_turns(works: Mapping[Name, Callable[[], object]], *, rounds: int = 5) -> dict[Name, float]:
    """CPU seconds of the fastest round of each; in turns, so that a slow minute slows all."""
    found = [{name: cpu_seconds(work) for name, work in works.items()} for _ in range(rounds)]
    return {name: min(seconds[name] for seconds in found) for name in works}


def process_cpu(process: int) -> float:
    """CPU seconds of a process, without those of its children."""
    fields = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / _TICK


def process_tree(process: int) -> list[int]:
    """A process and all its descendants."""
    found = [process]
    for one in found:
        try:
            for thread in Path(f"/proc/{one}/task").iterdir():
                found += map(int, (thread / "children").read_text().split())
        except OSError:
            continue  # it has ended
    return found


def process_memory(process: int) -> int:
    """Proportional set size of a process in bytes: shared pages count in parts."""
    shares = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return sum(1024 * int(line.split()[1]) for line in shares if line.startswith("Pss:"))
