"""One JSON value out of a text, by stricter rules than Python's own."""

import json
import math
from typing import Any, Final, NamedTuple, NoReturn


class DecodeError(ValueError):
    """Why there is no value: short, and without a word of the text but a name in it."""


class Decoded(NamedTuple):
    """A value, where it ends, and whether raw control characters in it were forgiven."""

    value: Any
    end: int
    forgiven: bool


def one_line(text: str, limit: int) -> str:
    """`text` on one line without unprintable characters, cut to `limit` characters."""
    head = text[: 4 * limit]
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in head).split())
    return line if len(line) <= limit and len(head) == len(text) else line[: limit - 1] + "…"


def decode(text: str, start: int) -> Decoded:
    """The JSON value that begins at `start`.

    Line breaks and other control characters inside a string are forgiven. NaN, infinities and
    a name that stands twice in one object with different values are not.

    Raises `DecodeError`.
    """
    try:
        try:
            value, end = _STRICT.raw_decode(text, start)
        except json.JSONDecodeError as error:
            if not error.msg.startswith("Invalid control character"):
                raise
            value, end = _FORGIVING.raw_decode(text, start)
            return Decoded(value, end, True)
    except json.JSONDecodeError as error:
        why = f"the JSON breaks off at character {error.pos + 1}: {error.msg}"
        raise DecodeError(why) from None
    except RecursionError:
        raise DecodeError("the JSON is nested too deep") from None
    except DecodeError:
        raise
    except ValueError:
        raise DecodeError("the JSON holds a number of thousands of digits") from None
    return Decoded(value, end, False)


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        for name, value in pairs:
            # By repr, since 1 equals true in Python.
            if repr(value) != repr(values[name]):
                raise DecodeError(f"one object says '{one_line(name, 40)}' twice, differently")
    return values


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise DecodeError("the JSON holds a number that is too large")
    return number


def _no_constant(name: str) -> NoReturn:
    raise DecodeError(f"{name} is not JSON")


def _decoder(*, strict: bool) -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=_unambiguous,
        parse_float=_finite,
        parse_constant=_no_constant,
        strict=strict,
    )


_STRICT: Final = _decoder(strict=True)
_FORGIVING: Final = _decoder(strict=False)
