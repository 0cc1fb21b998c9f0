"""Logistic regression on standardised features, by Newton's method."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from claimflow.flows.models.entailment.model import CLIP

Matrix = NDArray[np.float64]
Flags = NDArray[np.bool_]

_ROUNDS = 25


def standardised(features: Matrix, centre: Matrix, spread: Matrix) -> Matrix:
    """`features` in standard deviations from their mean, clipped, and a column of ones."""
    scaled = np.clip((features - centre) / spread, -CLIP, CLIP)
    return np.hstack([scaled, np.ones((len(features), 1))])


def fit(inputs: Matrix, positive: Flags, weights: Matrix, ridge: float) -> Matrix:
    """Coefficients, the intercept last, that minimise the weighted log loss.

    `ridge` is the L2 penalty on all but the intercept, in rows of average weight.
    """
    weights = weights / weights.mean()
    penalty = np.append(np.full(inputs.shape[1] - 1, ridge), 1e-9)
    coefficients = np.zeros(inputs.shape[1])
    for _ in range(_ROUNDS):
        probability = 1 / (1 + np.exp(-inputs @ coefficients))
        slope = inputs.T @ (weights * (probability - positive)) + penalty * coefficients
        bend = weights * probability * (1 - probability)
        step = np.linalg.solve((inputs.T * bend) @ inputs + np.diag(penalty), slope)
        coefficients -= step
        if np.abs(step).max() < 1e-9:
            break
    return coefficients


def balanced(groups: Sequence[str], positive: Flags) -> Matrix:
    """Weights of rows by which every group counts the same, and each class half of its group.

    Where a group lacks a class, the weights are scaled so that both classes weigh the same overall.
    """
    names = np.array(groups)
    weights = np.zeros(len(names))
    for group in sorted(set(groups)):
        for side in (positive, ~positive):
            rows = (names == group) & side
            weights[rows] = 1 / max(1, rows.sum())
    for side in (positive, ~positive):
        weights[side] /= weights[side].sum()
    return weights


def balanced_accuracy(positive: Flags, predicted: Flags) -> float:
    """Mean of the recalls of both classes, in per cent."""
    return 50 * float(predicted[positive].mean() + (~predicted)[~positive].mean())
