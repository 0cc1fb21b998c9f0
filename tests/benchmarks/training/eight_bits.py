"""Post-training quantisation of a network to 8 bits, calibrated on the inputs of its layers."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnx import ModelProto

from tests.benchmarks.training.graph import LAYERS, Weights
from tests.benchmarks.training.rounding import Matrix, Rounded, copies, rounded

Inputs = Mapping[str, NDArray[np.int64]]
Build = Callable[..., ModelProto]
"""A graph from weights, rounded layers and `watched`."""

EXTRA: Final = 24
"""Copies of neurons that are added to a layer to split outliers."""


def read_weights(file: bytes) -> Weights:
    """The 32-bit tensors of a safetensors file, by name; query, key and value of a layer as one."""
    start = 8 + int.from_bytes(file[:8], "little")
    tensors = json.loads(file[8:start])
    weights = {
        name.removeprefix("bert."): _tensor(file[start:], place)
        for name, place in tensors.items()
        if place.get("dtype") == "F32"
    }
    for number in range(LAYERS):
        own = f"encoder.layer.{number}.attention.self"
        for part in ("weight", "bias"):
            each = [weights.pop(f"{own}.{one}.{part}") for one in ("query", "key", "value")]
            weights[f"{own}.{part}"] = np.concatenate(each)
    return weights


def _tensor(file: bytes, place: dict[str, Any]) -> Matrix:
    return np.frombuffer(file[slice(*place["data_offsets"])], "<f4").reshape(place["shape"])


def eight_bits(weights: Weights, build: Build, inputs: Iterable[Inputs]) -> ModelProto:
    """`build` in 8 bits: outlier neurons are split into copies, then layers are rounded."""
    layer_inputs = _watched(build(weights, {}, watched=True), weights, inputs)
    small: dict[str, Rounded] = {}
    for name, x in layer_inputs.items():
        weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
        after = name.replace("intermediate", "output")
        if after != name:
            last = weights[f"{after}.weight"]
            count = copies(last, layer_inputs[after], EXTRA)
            weight, bias = (np.repeat(part, count, axis=0) for part in (weight, bias))
            weights[f"{after}.weight"] = np.repeat(last / count, count, axis=1).astype(np.float32)
            layer_inputs[after] = np.repeat(layer_inputs[after], count, axis=1)
        small[name] = rounded(weight, bias, x)
    return build(weights, small)


def _watched(model: ModelProto, weights: Weights, inputs: Iterable[Inputs]) -> dict[str, Matrix]:
    """The input of every layer, a row per token of `inputs`, which hold one text each."""
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs() if f"{output.name}.weight" in weights]
    layer_inputs: dict[str, list[Matrix]] = {name: [] for name in names}
    for given in inputs:
        for name, values in zip(names, session.run(names, given), strict=True):
            layer_inputs[name].append(values[0])
    return {name: np.concatenate(rows) for name, rows in layer_inputs.items()}
