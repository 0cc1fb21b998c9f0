"""Precision, recall and F1 of one text against another."""

from typing import NamedTuple


class Agreement(NamedTuple):
    """Precision is the share of the text found in the source, recall the reverse; in [0, 1]."""

    precision: float
    recall: float
    f1: float


def agreement(hits: int, *, of_text: int, of_source: int) -> Agreement:
    """`hits` common units, of those in the text and those in the source; 0/0 is 0."""
    precision = hits / of_text if of_text else 0.0
    recall = hits / of_source if of_source else 0.0
    both = precision + recall
    return Agreement(precision, recall, 2 * (precision * recall / both) if both else 0.0)
