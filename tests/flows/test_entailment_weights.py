"""The weights as data: read, checked against the features, applied."""

import json
import math
from pathlib import Path

import pytest

from claimflow.flows.models.entailment.model import SHIPPED, Logistic, Models, Weights, read_weights

SMALL = Weights(
    {"covered": 0.5, "read": 0.0},
    {"covered": 0.25, "read": 1.0},
    Models(Logistic(0.5, {"covered": 1.0, "read": 0.0}), Logistic(-1.0, {"read": 2.0})),
    Models(Logistic(0.0, {"covered": 1.0}), Logistic(1.0, {"covered": 0.0})),
)


def test_probabilities_are_two_logistic_models_in_a_row() -> None:
    entailed, contradicted, neutral = SMALL.probabilities({"covered": 0.75, "read": 1.0})
    assert entailed == pytest.approx(1 / (1 + math.exp(-1.5)))
    assert contradicted == pytest.approx((1 - entailed) / (1 + math.exp(-1.0)))
    assert entailed + contradicted + neutral == pytest.approx(1)


def test_what_was_not_read_has_models_of_its_own() -> None:
    entailed, contradicted, _ = SMALL.probabilities({"covered": 0.75})
    assert entailed == pytest.approx(1 / (1 + math.exp(-1.0)))
    assert contradicted == pytest.approx((1 - entailed) / (1 + math.exp(-1.0)))


def test_extreme_features_are_held_within_four_deviations() -> None:
    far = SMALL.probabilities({"covered": 1e9, "read": 1e9})
    assert far == SMALL.probabilities({"covered": 1.5, "read": 4.0})


def test_other_weights_have_another_digest(tmp_path: Path) -> None:
    content = json.loads((SHIPPED / "weights.json").read_text("utf-8"))
    content["read"]["entailed"]["intercept"] += 1
    (tmp_path / "weights.json").write_text(json.dumps(content), "utf-8")
    weights, digest = read_weights(tmp_path)
    assert digest != read_weights(SHIPPED)[1]
    assert weights.read.entailed.intercept == content["read"]["entailed"]["intercept"]
