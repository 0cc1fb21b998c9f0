"""BLEU of a text against a source, on characters or on words."""

import sys
from collections.abc import Sequence
from math import exp, fsum, log
from typing import Final

import numpy as np

from claimflow.stages.text.comparison import Comparison, Letters, lengths
from claimflow.stages.text.ngrams import shared_ngrams

_ORDERS: Final = 4


def character_bleu(text: str, source: str) -> float:
    """BLEU on characters, case and white space included, without smoothing.

    An order without hits counts as the smallest positive number, so that a text with
    fewer than four characters scores almost 0 even against itself. This is what NLTK's
    `sentence_bleu` gives for strings, and with it continuous-eval 0.3.
    """
    return character_bleus([Comparison([text], source)])[0]


def character_bleus(comparisons: Sequence[Comparison]) -> list[float]:
    """`character_bleu` of every text of every comparison, in order."""
    hits = shared_ngrams(comparisons, orders=_ORDERS)
    of_texts, of_sources = lengths(comparisons)
    precisions = np.full(hits.shape, sys.float_info.min)
    np.divide(hits, of_texts[:, None] - np.arange(_ORDERS), out=precisions, where=hits > 0)
    # Not NumPy's logarithm: the last digit would depend on the processor.
    logarithms = zip(*[map(log, precisions.ravel().tolist())] * _ORDERS, strict=True)
    rows = zip(hits[:, 0].tolist(), logarithms, of_texts.tolist(), of_sources.tolist(), strict=True)
    return [
        _bleu(fsum(of_orders) / _ORDERS, length, source_length) if found else 0.0
        for found, of_orders, length, source_length in rows
    ]


def word_bleu(tokens: Sequence[str], source: Sequence[str]) -> float:
    """BLEU on tokens, smoothed so that short sentences can be compared.

    The first order without hits counts as half a hit, the next as a quarter, and so on;
    orders longer than the text are left out. This is sacrebleu's sentence BLEU with its
    default smoothing, "exp", and effective order, as a number in [0, 1].
    """
    letters = Letters()
    return word_bleus([Comparison([letters.spell(tokens)], letters.spell(source))])[0]


def word_bleus(comparisons: Sequence[Comparison]) -> list[float]:
    """`word_bleu` of every text of every comparison, in order; a letter is a token."""
    hits = shared_ngrams(comparisons, orders=_ORDERS).tolist()
    sizes = [side.tolist() for side in lengths(comparisons)]
    return [
        _bleu(_smoothed(found, length), length, source_length) if found[0] else 0.0
        for found, length, source_length in zip(hits, *sizes, strict=True)
    ]


def _bleu(mean: float, length: int, source_length: int) -> float:
    """BLEU from the mean logarithm of the precisions, with the brevity penalty."""
    penalty = 1.0 if length > source_length else exp(1 - source_length / length)
    return penalty * exp(mean)


def _smoothed(hits: list[int], length: int) -> float:
    """The mean logarithm of the precisions of the orders that the text has."""
    precisions = []
    stand_in = 1.0
    for n, found in enumerate(hits[:length]):
        stand_in = stand_in if found else stand_in / 2
        precisions.append((found or stand_in) / (length - n))
    return fsum([log(precision) / len(precisions) for precision in precisions])
