"""Precision, recall and F1 of texts against their sources, from counts of units."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


class Agreement(NamedTuple):
    """Precision is the share of a text found in its source, recall the reverse; in [0, 1]."""

    precision: Floats
    recall: Floats
    f1: Floats


def agreement(shared: ArrayLike, of_text: ArrayLike, of_source: ArrayLike) -> Agreement:
    """Of one text or of many: `shared` units of those in the text and in the source; 0/0 is 0."""
    precision, recall = _ratio(shared, of_text), _ratio(shared, of_source)
    return Agreement(precision, recall, 2 * _ratio(precision * recall, precision + recall))


def _ratio(part: ArrayLike, whole: ArrayLike) -> Floats:
    nothing = np.zeros(np.broadcast_shapes(np.shape(part), np.shape(whole)))
    return np.divide(part, whole, out=nothing, where=np.asarray(whole) != 0)
