"""One JSON object as text -> its values, or what is wrong with it."""

import json
import re
from collections.abc import Callable
from typing import Any, Final, NoReturn

from flows.engine.reader.records import RecordError

# A valid pair, a lone surrogate, or any other escape, so that in \\ud800 the backslash
# that is itself escaped is passed over.
_ESCAPE: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    r"|\\."
)

KINDS: Final = {
    str: "text",
    int: "a number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
    type(None): "null",
}
"""What a reader of JSON calls a value of each Python type."""

TOO_DEEP: Final = RecordError("brackets nested about a thousand deep", "nest them less")


def decode_object(text: str, *, right: str) -> dict[str, Any] | RecordError:
    """Values of the JSON object `text`; `right` is what to write instead of anything else.

    Strict: NaN, infinities and a name that stands twice in one object are wrong. Lone
    surrogates, which no UTF-8 text can hold, become U+FFFD.
    """
    try:
        value = _decode(replace_lone_surrogates(text))
    except json.JSONDecodeError as error:
        return RecordError(f"broken JSON at column {error.colno} ({error.msg})", right)
    except RecursionError:
        return TOO_DEEP
    except RecordError as wrong:
        return wrong
    except ValueError:
        return RecordError("a number of thousands of digits", "write it as text")
    if not isinstance(value, dict):
        return RecordError(f"{KINDS[type(value)]} instead of an object", right)
    return value


def replace_lone_surrogates(text: str) -> str:
    r"""JSON text with every escape of a lone surrogate (`\ud800`) replaced by `\ufffd`."""
    if "\\" not in text or not ("\\ud" in text or "\\uD" in text):
        return text
    return _ESCAPE.sub(lambda match: "\\ufffd" if match["lone"] else match[0], text)


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise RecordError(f"{twice!r} stands twice in one object", "keep one of them")
    return values


def _no_constant(name: str) -> NoReturn:
    raise RecordError(f"{name} is not JSON", "write null")


_decode: Final[Callable[[str], Any]] = json.JSONDecoder(
    object_pairs_hook=_unique_names, parse_constant=_no_constant
).decode
