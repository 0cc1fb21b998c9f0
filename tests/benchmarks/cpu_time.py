"""CPU seconds of work in this process, on a machine that others slow down at times."""

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

Name = TypeVar("Name")


def fastest(work: Callable[[], object]) -> float:
    """CPU seconds of the fastest of three rounds of `work`."""
    return min(spent(work) for _ in range(3))


def in_turns(works: Mapping[Name, Callable[[], object]], *, rounds: int = 5) -> dict[Name, float]:
    """CPU seconds of the fastest round of each: a slow minute of the machine hits all."""
    found = [{name: spent(work) for name, work in works.items()} for _ in range(rounds)]
    return {name: min(seconds[name] for seconds in found) for name in works}


def spent(work: Callable[[], object]) -> float:
    """CPU seconds of one round of `work`."""
    started = time.process_time()
    work()
    return time.process_time() - started
