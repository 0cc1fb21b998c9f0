"""chrF: the character n-gram F-score."""

from collections.abc import Sequence
from typing import Final

from claimflow.stages.text.comparison import Comparison, lengths
from claimflow.stages.text.ngrams import shared_ngrams

_ORDERS: Final = 6
_WEIGHT: Final = 2**2


def chrf(text: str, source: str) -> float:
    """chrF in [0, 1]: F of precision and recall, which are means over the orders.

    0 when either text is blank.
    """
    return chrfs([Comparison([text], source)])[0]


def chrfs(comparisons: Sequence[Comparison]) -> list[float]:
    """`chrf` of every text of every comparison, in order."""
    dense = [Comparison(list(map(_dense, texts)), _dense(source)) for texts, source in comparisons]
    hits = shared_ngrams(dense, orders=_ORDERS).tolist()
    sizes = [side.tolist() for side in lengths(dense)]
    return list(map(_f_score, hits, *sizes))


def _dense(text: str) -> str:
    """`text` without white space."""
    return "".join(text.split())


def _f_score(hits: list[int], length: int, source_length: int) -> float:
    counted = hits[: min(length, source_length)]
    if not any(counted):
        return 0.0
    precision = recall = 0.0
    # `sum` rounds otherwise since Python 3.12, and rows must not depend on the version.
    for n, hit in enumerate(counted):
        precision += hit / (length - n)
        recall += hit / (source_length - n)
    precision, recall = precision / len(counted), recall / len(counted)
    return (1 + _WEIGHT) * precision * recall / (_WEIGHT * precision + recall)
