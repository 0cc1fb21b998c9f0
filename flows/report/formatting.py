"""Numbers and texts as they are shown everywhere."""

from typing import Final

_HIDDEN: Final = (
    {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n"}
    | {127: "\u2421"}
    | dict.fromkeys([*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\ufffd")
)
"""Control characters by what stands for them, and those that turn the direction of text."""


def escape_controls(text: object) -> str:
    """Text under evaluation without what could steer whatever shows it."""
    return str(text).translate(_HIDDEN)


def format_count(number: int, thing: str, things: str | None = None) -> str:
    """`1 sample`, `2,000 samples`; `things` is the plural where that is not so plain."""
    return f"{number:,} {thing if number == 1 else things or f'{thing}s'}"


def format_number(value: float | None) -> str:
    """With three digits, or a dash."""
    return "-" if value is None else f"{value:.3f}"


def format_difference(value: float | None) -> str:
    """With three digits and its sign; 0 has none."""
    words = "-" if value is None else f"{value:+.3f}"
    return "0.000" if words in ("+0.000", "-0.000") else words
