"""A number with its 95 % interval."""

from typing import NamedTuple


class Figure(NamedTuple):
    """A number and the bounds of its 95 % interval; None where it cannot be had."""

    value: float | None
    low: float | None
    high: float | None


def clipped(value: float, reach: float, lowest: float, highest: float) -> Figure:
    """`value` with an interval of `reach` on either side, all within its bounds."""
    inside = min(highest, max(lowest, value))
    return Figure(inside, max(lowest, value - reach), min(highest, value + reach))


def share(part: int, whole: int) -> Figure:
    """`part` of `whole` with the score interval of a proportion (Wilson 1927)."""
    if not whole:
        return Figure(None, None, None)
    from scipy import stats

    bounds = stats.binomtest(part, whole).proportion_ci(0.95, "wilson")
    return Figure(part / whole, float(bounds.low), float(bounds.high))
