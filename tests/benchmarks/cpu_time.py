"""CPU seconds of work in this process, on a machine that others slow down at times."""

import time
from collections.abc import Callable, Mapping


def fastest(work: Callable[[], object]) -> float:
    """CPU seconds of the fastest of three rounds of `work`."""
    return min(spent(work) for _ in range(3))


def in_turns(works: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """CPU seconds of the fastest of five rounds of each: a slow minute of the machine hits all."""
    rounds = [{name: spent(work) for name, work in works.items()} for _ in range(5)]
    return {name: min(seconds[name] for seconds in rounds) for name in works}


def spent(work: Callable[[], object]) -> float:
    """CPU seconds of one round of `work`."""
    started = time.process_time()
    work()
    return time.process_time() - started
