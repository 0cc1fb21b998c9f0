"""Durations such as 6h, and times in the five fields of cron."""

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any, Final, NamedTuple

from pydantic import BeforeValidator

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

MAX_DAYS: Final = 36_500
"""A number of days by which any date can be moved."""

_LONGEST: Final = timedelta(days=MAX_DAYS)
"""A hundred years: subtracted from today it is still a date that Python has."""


def check_duration(given: Any) -> Any:
    """A valid `Duration`; raises `ValueError` for anything else."""
    whole = isinstance(given, int) and not isinstance(given, bool) and given > 0
    if not whole and not (isinstance(given, str) and re.fullmatch(r"[1-9]\d*[smhd]", given)):
        raise ValueError("write seconds, or a number with s, m, h or d, as in 6h")
    if _seconds(given) > _LONGEST.total_seconds():
        raise ValueError(f"write no more than {_LONGEST.days}d")
    return given


def _seconds(written: int | str) -> int:
    """Seconds of a valid duration."""
    if isinstance(written, int):
        return written
    return int(written[:-1]) * _UNITS[written[-1]]


Duration = Annotated[int | str, BeforeValidator(check_duration)]
"""Whole seconds, or a whole number with s, m, h or d."""


def check_wait(given: Any) -> Any:
    """A valid `Wait`; raises `ValueError` for anything else."""
    return 0 if given in (0, "0") and not isinstance(given, bool) else check_duration(given)


Wait = Annotated[int | str, BeforeValidator(check_wait)]
"""A `Duration`, or 0 for not waiting at all."""


def to_timedelta(written: int | str) -> timedelta:
    """A `Duration` or `Wait` as timedelta."""
    return timedelta(seconds=_seconds(written))


class _Field(NamedTuple):
    name: str
    numbers: range
    names: Sequence[str] = ()
    """Names for the first of the numbers, in their order."""


_MONTHS: Final = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_WEEKDAYS: Final = "sun mon tue wed thu fri sat".split()
_DAY: Final = _Field("day of the month", range(1, 32))
_MONTH: Final = _Field("month", range(1, 13), _MONTHS)
_FIELDS: Final = (
    _Field("minute", range(60)),
    _Field("hour", range(24)),
    _DAY,
    _MONTH,
    _Field("day of the week", range(8), _WEEKDAYS),
)
_PART: Final = re.compile(r"(?:\*|(\w+)(?:-(\w+))?)(?:/([1-9]\d*))?")
_LENGTHS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
"""Days of the months, in a leap year."""


def check_cron(text: str) -> str:
    """`text`, if it is a cron line that has a next time; raises `ValueError` with a hint."""
    fields = text.split()
    if len(fields) != len(_FIELDS):
        raise ValueError(
            "write five fields, as in '0 2 * * *' for two at night: "
            "minute, hour, day of the month, month, day of the week"
        )
    _, _, days, months, _ = map(_numbers, _FIELDS, fields)
    longest = max(_LENGTHS[month - 1] for month in months)
    # Where days of the month and of the week are both restricted, either of them matches.
    if fields[-1].startswith("*") and min(days) > longest:
        raise ValueError(f"no month {fields[3]} has a day {fields[2]}, so that time never comes")
    return text


def _numbers(field: _Field, written: str) -> set[int]:
    return {number for part in written.split(",") for number in _part_numbers(field, part)}


def _part_numbers(field: _Field, part: str) -> list[int]:
    """The numbers of a part between commas, as in *, 3, mon-fri or 0-30/5."""
    name, numbers, names = field
    known = {str(number): number for number in numbers} | dict(zip(names, numbers, strict=False))
    found = _PART.fullmatch(part)
    first, last, step = found.groups() if found else (part, None, None)
    # Cron accepts 05 for 5, and names in capitals.
    ends = [(end.lstrip("0") or "0").lower() for end in (first, last) if end]
    if not found or any(end not in known for end in ends):
        hint = f"{numbers[0]} to {numbers[-1]}"
        named = f" or {names[0]} to {names[-1]}" if names else ""
        raise ValueError(f"{part!r} is not a valid {name}: write *, or {hint}{named}")
    start = known[ends[0]] if ends else numbers[0]
    end = known[ends[-1]] if last or (first and not step) else numbers[-1]
    if start > end:
        # A range that wraps around, as in fri-mon.
        return [*range(start, numbers[-1] + 1), *range(numbers[0], end + 1)]
    return list(range(start, end + 1, int(step or 1)))
