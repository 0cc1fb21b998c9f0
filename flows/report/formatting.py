"""Numbers, counts and texts under evaluation, formatted alike in every report."""

from collections.abc import Callable
from typing import Final

from claimflow.flows.errors import CONTROLS

_REPLACEMENTS: Final = {code: sign for code, sign in CONTROLS.items() if chr(code) not in "\t\n"}


def escape_controls(text: object) -> str:
    """The text with control characters replaced, so that it cannot steer a terminal or a page."""
    return str(text).translate(_REPLACEMENTS)


def shorten(text: str | None, length: int = 100) -> str:
    """The text on one line, cut after `length` characters."""
    flat = " ".join((text or "").split())
    return flat if len(flat) <= length else flat[: length - 1] + "…"


def format_count(number: int, thing: str, things: str | None = None) -> str:
    """`1 sample`, `2,000 samples`; `things` is the plural where it does not end in -s."""
    return f"{number:,} {thing if number == 1 else things or f'{thing}s'}"


def format_number(value: float | None) -> str:
    """Three decimals, or a dash for None."""
    return "-" if value is None else f"{value:.3f}"


def format_interval(
    low: float | None, high: float | None, form: Callable[[float | None], str] = format_number
) -> str:
    """`0.713 to 0.882`, or a dash for None; `form` formats the bounds."""
    return "-" if low is None else f"{form(low)} to {form(high)}"


def format_difference(value: float | None) -> str:
    """Three decimals and a sign, or a dash for None; 0.000 has no sign.

    A smaller difference has up to three decimals more, so that it is seen to be one.
    """
    if value is None:
        return "-"
    found = (f"{value:+.{decimals}f}" for decimals in range(3, 7))
    return next((text for text in found if text.strip("+-0.")), "0.000")


def format_duration(seconds: float) -> str:
    """`12.3 s`, `4 min 5 s` or `2 h 3 min`."""
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), _MINUTE)
    if minutes < _MINUTE:
        return f"{minutes} min {rest} s"
    return f"{minutes // _MINUTE} h {minutes % _MINUTE} min"


_MINUTE: Final = 60
"""Seconds in a minute, and minutes in an hour."""
