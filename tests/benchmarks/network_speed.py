"""How fast the entailment network reads: pairs per CPU second, beside torch.

Run as `python -m tests.benchmarks.network_speed [--wheel WHEEL --taught FOLDER]`: with the
official files and the folder of `training/train.py`, the same network in torch, in 32 bits,
reads the same batches on the same core in the same run. Then both cores are used, and the
memory that the process holds is printed. Lengths are in tokens; 224 is the window.
"""

import argparse
import os
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from flows.engine.entailment.model import SHIPPED
from flows.engine.entailment.network import WINDOW, Encoded, Network

LENGTHS, PAIRS, ROUNDS = (64, 128, WINDOW), 96, 3

Read = Callable[[Sequence[Encoded]], object]


def made(length: int) -> list[Encoded]:
    """Pairs of that many tokens, of which a quarter are the claim's."""
    random = np.random.default_rng(length)
    tokens = random.integers(2_000, 20_000, (PAIRS, length))
    return [Encoded(tuple(map(int, row)), length - length // 4) for row in tokens]


def per_cpu_second(read: Read, pairs: Sequence[Encoded]) -> float:
    """Pairs read per CPU second: the best of several rounds."""
    read(pairs[:8])
    seconds = []
    for _ in range(ROUNDS):
        started = time.process_time()
        read(pairs)
        seconds.append(time.process_time() - started)
    return len(pairs) / min(seconds)


def in_torch(wheel: Path, taught: Path) -> Read:
    """The same network in torch, in one thread."""
    import torch
    from safetensors.torch import load_file

    from tests.benchmarks.training.network import Network as Taught
    from tests.benchmarks.training.official import read_official

    torch.set_num_threads(1)
    network = Taught(read_official(wheel))
    network.load_state_dict(load_file(taught / "network.safetensors"))
    network.eval()

    def read(pairs: Sequence[Encoded]) -> None:
        with torch.inference_mode():
            for start in range(0, len(pairs), 32):
                network(pairs[start : start + 32])

    return read


def main() -> None:
    """A line per length, then both cores and memory."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--wheel", type=Path, help="the official files")
    parser.add_argument("--taught", type=Path, help="the folder of train.py")
    options = parser.parse_args()
    network = Network(SHIPPED, threads=1)
    torch = in_torch(options.wheel, options.taught) if options.taught else None
    print(f"{'tokens':>8}{'pairs per CPU s':>18}{'torch':>10}{'times':>8}")
    for length in LENGTHS:
        pairs = made(length)
        ours = per_cpu_second(network.read, pairs)
        theirs = per_cpu_second(torch, pairs) if torch else None
        beside = f"{theirs:10.1f}{ours / theirs:8.2f}" if theirs else ""
        print(f"{length:>8}{ours:18.1f}{beside}")
    both = Network(SHIPPED, threads=len(os.sched_getaffinity(0)))
    pairs = made(128)
    started, cpu = time.monotonic(), time.process_time()
    both.read(pairs)
    wall, cpu = time.monotonic() - started, time.process_time() - cpu
    print(f"\nall cores: {len(pairs) / wall:.1f} pairs a second, {cpu / wall:.2f} cores busy")
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"memory: {held:.0f} MiB at most{', torch included' if torch else ''}")


if __name__ == "__main__":
    main()
