"""Spans of time as people write them: seconds, or as in 6h."""

import re
from datetime import timedelta
from typing import Annotated, Any, Final

from pydantic import BeforeValidator

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def _written(given: Any) -> Any:
    whole = isinstance(given, int) and not isinstance(given, bool) and given > 0
    if not whole and not (isinstance(given, str) and re.fullmatch(r"[1-9]\d*[smhd]", given)):
        raise ValueError("write seconds, or a number with s, m, h or d, as in 6h")
    return given


Span = Annotated[int | str, BeforeValidator(_written)]
"""Whole seconds, or a whole number with s, m, h or d."""


def span(written: int | str) -> timedelta:
    """The time that a `Span` means."""
    if isinstance(written, int):
        return timedelta(seconds=written)
    return timedelta(**{_UNITS[written[-1]]: int(written[:-1])})
