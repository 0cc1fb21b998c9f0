"""Spans of time as people write them: seconds, or as in 6h."""

import re
from datetime import timedelta
from typing import Annotated, Any, Final

from pydantic import BeforeValidator

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

_LONGEST: Final = timedelta(days=36_500)
"""A hundred years. The calendar of Python ends where a span reaches back before its year 1."""


def _written(given: Any) -> Any:
    whole = isinstance(given, int) and not isinstance(given, bool) and given > 0
    if not whole and not (isinstance(given, str) and re.fullmatch(r"[1-9]\d*[smhd]", given)):
        raise ValueError("write seconds, or a number with s, m, h or d, as in 6h")
    if _seconds(given) > _LONGEST.total_seconds():
        raise ValueError(f"write no more than {_LONGEST.days}d")
    return given


def _seconds(written: int | str) -> int:
    """Whole seconds, however many."""
    if isinstance(written, int):
        return written
    return int(written[:-1]) * _UNITS[written[-1]]


Span = Annotated[int | str, BeforeValidator(_written)]
"""Whole seconds, or a whole number with s, m, h or d."""


def span(written: int | str) -> timedelta:
    """The time that a `Span` means."""
    return timedelta(seconds=_seconds(written))
