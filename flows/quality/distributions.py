"""Quantiles and tails of the beta, binomial, t and normal distributions, to ten digits.

What comparisons, gates and cascades need of them, without the 140 MB of SciPy.
"""

import math
from collections.abc import Callable
from typing import Final

_TINY: Final = 1e-300


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b), for 0 <= x <= 1.

    By its continued fraction (Abramowitz and Stegun 1964, 26.5.8) and the method of Lentz (1976).
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    front = math.exp(a * math.log(x) + b * math.log1p(-x) - log_beta) / a
    c, d, fraction = 1.0, 0.0, 1.0
    for step in range(100_000):
        m = step // 2
        if step == 0:
            numerator = 1.0
        elif step % 2:
            numerator = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            numerator = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / (1 + numerator * d or _TINY)
        c = 1 + numerator / c or _TINY
        fraction *= c * d
        if step and abs(1 - c * d) < 1e-16:
            break
    return front * (fraction - 1)


def beta_quantile(a: float, b: float, p: float) -> float:
    """The x at which I_x(a, b) is `p`, for 0 < p < 1."""
    return _root(lambda x: incomplete_beta(a, b, x) - p)


def _root(rising: Callable[[float], float]) -> float:
    """Where a rising function is 0 between 0 and 1: bisection until no number lies between."""
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return high


def t_quantile_975(n: int) -> float:
    """The 97.5 % quantile of Student's t with `n` - 1 degrees of freedom, `n` at least 2."""
    share = beta_quantile(0.5, (n - 1) / 2, 0.95)
    return math.sqrt((n - 1) * share / (1 - share))


def normal_tail(z: float) -> float:
    """P(a standard normal variable exceeds `z`)."""
    return math.erfc(z / math.sqrt(2)) / 2


def clopper_pearson(hits: int, of: int) -> tuple[float, float] | tuple[None, None]:
    """The exact 95 % interval of a proportion (Clopper and Pearson 1934); None where `of` is 0."""
    if not of:
        return None, None
    low = beta_quantile(hits, of - hits + 1, 0.025) if hits else 0.0
    high = beta_quantile(hits + 1, of - hits, 0.975) if hits < of else 1.0
    return low, high


def sign_test_p(losses: int, gains: int) -> float:
    """The exact two-sided p-value of the sign test, which is McNemar's of paired labels (1947)."""
    n, fewer = losses + gains, min(losses, gains)
    return min(1.0, 2 * sum(math.comb(n, k) for k in range(fewer + 1)) / (1 << n))
