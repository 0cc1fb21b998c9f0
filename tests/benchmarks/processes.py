"""What processes cost, as Linux tells it."""

import os
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


def cpu(process: int) -> float:
    """CPU seconds of a process, without those of its children."""
    fields = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / _TICK


def family(process: int) -> list[int]:
    """A process and all that it started."""
    found = [process]
    for one in found:
        try:
            for thread in Path(f"/proc/{one}/task").iterdir():
                found += map(int, (thread / "children").read_text().split())
        except OSError:
            continue  # it has gone
    return found


def held(process: int) -> int:
    """Bytes that a process holds; shared ones count in parts."""
    shares = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return sum(1024 * int(line.split()[1]) for line in shares if line.startswith("Pss:"))
