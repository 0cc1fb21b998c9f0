"""Numbers, counts and texts under evaluation, formatted alike in every report."""

from collections.abc import Callable
from typing import Final

_REPLACEMENTS: Final = (
    {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n"}
    | {127: "\u2421"}
    | dict.fromkeys([*range(0x80, 0xA0), *range(0x2028, 0x202F), *range(0x2066, 0x206A)], "\ufffd")
)
"""Replacements of control characters, of the separators of lines and paragraphs of Unicode, and
of those that change the direction of text."""


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
    """Three decimals and a sign, or a dash for None; 0.000 has no sign."""
    text = "-" if value is None else f"{value:+.3f}"
    return "0.000" if text in ("+0.000", "-0.000") else text


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
