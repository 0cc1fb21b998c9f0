"""BLEU of one text against one source, on characters or on words.

Papineni et al., "BLEU: a method for automatic evaluation of machine translation", 2002:
the geometric mean of clipped n-gram precisions for n from 1 to 4, times a penalty for
texts shorter than the source.
"""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from math import exp, fsum, log

_ORDERS = range(1, 5)

Grams = Counter[tuple[str, ...]]


def character_bleu(text: str, source: str) -> float:
    """BLEU on characters, case and white space included, without smoothing.

    An order without hits counts as the smallest positive number, so that a text with
    fewer than four characters scores almost 0 even against itself. This is what NLTK's
    `sentence_bleu` gives for strings, and with it continuous-eval 0.3.
    """
    return character_bleu_with(source)(text)


def word_bleu(tokens: Sequence[str], source: Sequence[str]) -> float:
    """BLEU on tokens, smoothed so that short sentences can be compared.

    The first order without hits counts as half a hit, the next as a quarter, and so on;
    orders longer than the text are left out. This is sacrebleu's sentence BLEU with its
    default smoothing, "exp", and effective order, as a number in [0, 1].
    """
    return word_bleu_with(source)(tokens)


def character_bleu_with(source: str) -> Callable[[str], float]:
    """`character_bleu` with one source, prepared once for many texts."""
    return _bleu_with(source, _unsmoothed)


def word_bleu_with(source: Sequence[str]) -> Callable[[Sequence[str]], float]:
    """`word_bleu` with one source, prepared once for many texts."""
    return _bleu_with(source, _smoothed)


def _bleu_with(
    source: Sequence[str], precisions: Callable[[list[int], int], list[float]]
) -> Callable[[Sequence[str]], float]:
    in_source = [_grams(source, n) for n in _ORDERS]

    def bleu(units: Sequence[str]) -> float:
        hits = [_hits(units, n, in_source[n - 1]) for n in _ORDERS]
        if not hits[0]:
            return 0.0
        logs = [log(p) for p in precisions(hits, len(units))]
        return _penalty(len(units), len(source)) * exp(fsum(p / len(logs) for p in logs))

    return bleu


def _grams(units: Sequence[str], n: int) -> Grams:
    return Counter(zip(*(units[k:] for k in range(n)), strict=False))


def _hits(units: Sequence[str], n: int, in_source: Grams) -> int:
    """n-grams of `units` found in the source, each at most as often as it stands there."""
    grams = _grams(units, n)
    return sum(min(grams[gram], in_source[gram]) for gram in grams.keys() & in_source.keys())


def _unsmoothed(hits: list[int], length: int) -> list[float]:
    totals = [max(1, length - n + 1) for n in _ORDERS]
    return [h / t if h else sys.float_info.min for h, t in zip(hits, totals, strict=True)]


def _smoothed(hits: list[int], length: int) -> list[float]:
    precisions = []
    stand_in = 1.0
    for n, found in zip(_ORDERS, hits, strict=True):
        if length >= n:
            stand_in = stand_in if found else stand_in / 2
            precisions.append((found or stand_in) / (length - n + 1))
    return precisions


def _penalty(length: int, source_length: int) -> float:
    return 1.0 if length > source_length else exp(1 - source_length / length)
