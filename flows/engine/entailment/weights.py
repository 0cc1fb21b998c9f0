"""The fitted weights: data in a folder, read, checked and applied."""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

WEIGHTS_FILE: Final = "weights.json"
MODEL_FILE: Final = "model.onnx"
TOKENIZER_FILE: Final = "tokenizer.json"

CLIP: Final = 4.0
"""Standardised features are held within this many standard deviations."""


class Logistic(NamedTuple):
    """A logistic model on standardised features."""

    intercept: float
    coefficients: Mapping[str, float]


class Models(NamedTuple):
    """Is it entailed; and if it is not, is it contradicted."""

    entailed: Logistic
    contradicted: Logistic


class Weights(NamedTuple):
    """The models for what the network has `read`, and for what could only be `counted`.

    `centre` and `spread` are the mean and the standard deviation of each feature over the
    rows that the models were fitted on.
    """

    centre: Mapping[str, float]
    spread: Mapping[str, float]
    read: Models
    counted: Models

    def probabilities(self, features: Mapping[str, float]) -> tuple[float, float, float]:
        """Of entailed, contradicted, neutral; they sum to 1."""
        standard = {
            name: max(-CLIP, min(CLIP, (value - self.centre[name]) / self.spread[name]))
            for name, value in features.items()
        }
        models = (
            self.read if self.read.entailed.coefficients.keys() <= standard.keys() else self.counted
        )
        entailed = _probability(models.entailed, standard)
        contradicted = (1 - entailed) * _probability(models.contradicted, standard)
        return entailed, contradicted, max(0.0, 1 - entailed - contradicted)


def _probability(model: Logistic, standard: Mapping[str, float]) -> float:
    terms = (standard[name] * weight for name, weight in model.coefficients.items())
    return 1 / (1 + math.exp(-math.fsum([model.intercept, *terms])))


def read_weights(folder: Path) -> tuple[Weights, str]:
    """The weights in `folder`, and the SHA-256 of their file."""
    written = (folder / WEIGHTS_FILE).read_bytes()
    content = json.loads(written)
    read, counted = (
        Models(*(Logistic(**content[kind][model]) for model in Models._fields))
        for kind in ("read", "counted")
    )
    weights = Weights(content["centre"], content["spread"], read, counted)
    return weights, hashlib.sha256(written).hexdigest()
