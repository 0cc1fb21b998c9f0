"""The fitted weights: read from JSON and applied."""

import json
import math
from pathlib import Path

import pytest

from claimflow.flows.models.entailment.model import (
    SHIPPED,
    LabelModels,
    Logistic,
    Weights,
    read_weights,
)

SMALL = Weights(
    {"covered": 0.5, "read": 0.0},
    {"covered": 0.25, "read": 1.0},
    LabelModels(Logistic(0.5, {"covered": 1.0, "read": 0.0}), Logistic(-1.0, {"read": 2.0})),
    LabelModels(Logistic(0.0, {"covered": 1.0}), Logistic(1.0, {"covered": 0.0})),
)


def test_probabilities_are_two_logistic_models_in_sequence() -> None:
    entailed, contradicted, neutral = SMALL.probabilities({"covered": 0.75, "read": 1.0})
    assert entailed == pytest.approx(1 / (1 + math.exp(-1.5)))
    assert contradicted == pytest.approx((1 - entailed) / (1 + math.exp(-1.0)))
    assert entailed + contradicted + neutral == pytest.approx(1)


def test_claims_that_were_not_read_have_their_own_models() -> None:
    entailed, contradicted, _ = SMALL.probabilities({"covered": 0.75})
    assert entailed == pytest.approx(1 / (1 + math.exp(-1.0)))
    assert contradicted == pytest.approx((1 - entailed) / (1 + math.exp(-1.0)))


def test_extreme_features_are_clipped_to_four_deviations() -> None:
    far = SMALL.probabilities({"covered": 1e9, "read": 1e9})
    assert far == SMALL.probabilities({"covered": 1.5, "read": 4.0})


def test_other_weights_have_another_digest(tmp_path: Path) -> None:
    content = json.loads((SHIPPED / "weights.json").read_text("utf-8"))
    content["read"]["entailed"]["intercept"] += 1
    (tmp_path / "weights.json").write_text(json.dumps(content), "utf-8")
    weights, digest = read_weights(tmp_path)
    assert digest != read_weights(SHIPPED)[1]
    assert weights.read.entailed.intercept == content["read"]["entailed"]["intercept"]
