"""A number with its 95 % interval."""

from typing import Final, NamedTuple

Z: Final = 1.959963984540054
"""Of the standard normal distribution at 97.5 %."""


class Figure(NamedTuple):
    """A number and the bounds of its 95 % interval; None where it cannot be had."""

    value: float | None
    low: float | None
    high: float | None


def clipped(value: float, reach: float, lowest: float, highest: float) -> Figure:
    """`value` brought within its bounds, with an interval of `reach` on either side of that."""
    inside = min(highest, max(lowest, value))
    return Figure(inside, max(lowest, inside - reach), min(highest, inside + reach))


def student(n: int) -> float:
    """How many standard errors of a mean of `n` its 95 % interval reaches to either side."""
    from scipy import stats

    return float(stats.t.ppf(0.975, n - 1))


def share(part: int, whole: int) -> Figure:
    """`part` of `whole` with the score interval of a proportion (Wilson 1927)."""
    if not whole:
        return Figure(None, None, None)
    from scipy import stats

    bounds = stats.binomtest(part, whole).proportion_ci(0.95, "wilson")
    return Figure(part / whole, float(bounds.low), float(bounds.high))
