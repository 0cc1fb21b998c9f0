"""Speed of the entailment network in pairs per CPU second, compared with torch.

Run as `python -m tests.benchmarks.network_speed [--wheel WHEEL --trained FOLDER]`: with the
official files and the folder of `training/train.py`, the same network in torch, in 32 bits,
runs the same batches on the same core in the same run. Then the labelled pairs of
tests/data/verification, as texts: ours includes choosing sentences and counting features; torch
reads premise and claim up to the 512 positions of the network, sorted by length and padded in
batches of 32. Last, all cores are used, and the peak memory of the process is printed. Lengths
are in tokens; 224 is the window.
"""

import argparse
import os
import resource
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from tokenizers import Tokenizer

from claimflow.flows.models.entailment.model import (
    SHIPPED,
    TOKENIZER_FILE,
    WINDOW,
    EmbeddedEntailment,
    EncodedPair,
    Network,
)
from claimflow.stages.tools import Pair
from tests.benchmarks.labelled_pairs import read_labelled
from tests.benchmarks.measuring import in_turns

LENGTHS, PAIRS, ROUNDS = (64, 128, WINDOW), 96, 3
BATCH, PLACES = 32, 512

Reader = Callable[[Sequence[EncodedPair]], object]
Read = TypeVar("Read", EncodedPair, Pair)


def random_pairs(length: int) -> list[EncodedPair]:
    """Random pairs of `length` tokens, of which a quarter are the claim's."""
    random = np.random.default_rng(length)
    tokens = random.integers(2_000, 20_000, (PAIRS, length))
    return [EncodedPair(tuple(map(int, row)), length - length // 4) for row in tokens]


def labelled() -> list[Pair]:
    """Pairs of tests/data/verification, evenly from every set."""
    rows = read_labelled()
    return [row.pair for row in rows[:: len(rows) // PAIRS]][:PAIRS]


def compare(pairs: Sequence[Read], *readers: Callable[[Sequence[Read]], object]) -> str:
    """Pairs per CPU second of ours and of torch, if it is there, and the ratio."""
    for read in readers:
        read(pairs[:8])
    seconds = in_turns(dict(enumerate(partial(read, pairs) for read in readers)), rounds=ROUNDS)
    ours, *theirs = (len(pairs) / least for least in seconds.values())
    return f"{ours:18.1f}" + "".join(f"{rate:10.1f}{ours / rate:8.2f}" for rate in theirs)


def in_torch(wheel: Path, trained: Path) -> Reader:
    """The same network in torch, in one thread."""
    import torch
    from safetensors.torch import load_file

    from tests.benchmarks.training.network import Network as TorchNetwork
    from tests.benchmarks.training.official import read_official

    torch.set_num_threads(1)
    network = TorchNetwork(read_official(wheel))
    network.load_state_dict(load_file(trained / "network.safetensors"))
    network.eval()

    def read(pairs: Sequence[EncodedPair]) -> None:
        with torch.inference_mode():
            for start in range(0, len(pairs), BATCH):
                network(pairs[start : start + BATCH])

    return read


def as_texts(read: Reader) -> Callable[[Sequence[Pair]], None]:
    """`read` on whole texts, truncated to the positions of the network."""
    tokenizer = Tokenizer.from_file(str(SHIPPED / TOKENIZER_FILE))

    def texts(pairs: Sequence[Pair]) -> None:
        encoded = []
        for pair in pairs:
            claim = tokenizer.encode(pair.claim).ids[1:][: PLACES // 2]
            premise = tokenizer.encode(pair.premise).ids[: PLACES - 1 - len(claim)]
            encoded.append(EncodedPair((*premise, claim[-1], *claim), len(premise) + 1))
        read(sorted(encoded, key=lambda one: len(one.ids)))

    return texts


def main() -> None:
    """A line per length, then both cores and memory."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--wheel", type=Path, help="the official files")
    parser.add_argument("--trained", type=Path, help="the folder of train.py")
    options = parser.parse_args()
    network = Network(SHIPPED, threads=1)
    torch = [in_torch(options.wheel, options.trained)] if options.trained else []
    print(f"{'tokens':>8}{'pairs per CPU s':>18}{'torch':>10}{'times':>8}")
    for length in LENGTHS:
        print(f"{length:>8}{compare(random_pairs(length), network.encoded_logits, *torch)}")
    judge = EmbeddedEntailment(threads=1).judge
    print(f"{'texts':>8}{compare(labelled(), judge, *map(as_texts, torch))}")
    both = Network(SHIPPED, threads=len(os.sched_getaffinity(0)))
    pairs = random_pairs(128)
    started, cpu = time.monotonic(), time.process_time()
    both.encoded_logits(pairs)
    wall, cpu = time.monotonic() - started, time.process_time() - cpu
    print(f"\nall cores: {len(pairs) / wall:.1f} pairs a second, {cpu / wall:.2f} cores busy")
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"memory: {held:.0f} MiB at most{', torch included' if torch else ''}")


if __name__ == "__main__":
    main()
