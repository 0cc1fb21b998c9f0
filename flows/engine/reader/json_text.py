"""One JSON object as text -> its values, or what is wrong with it."""

import json
import re
from collections.abc import Callable
from typing import Any, Final, NoReturn

from pydantic_core import from_json

from claimflow.flows.engine.reader.records import RecordError

# A valid pair, a lone surrogate, or any other escape, so that in \\ud800 the backslash
# that is itself escaped is passed over.
_ESCAPE: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    r"|\\."
)

# A name of an object with its colon; what looks like one within a text does no harm.
_NAME: Final = re.compile(rb'"\s*:')

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


def decode_object(line: bytes, *, right: str) -> dict[str, Any] | RecordError:
    """Values of the JSON object `line`; `right` is what to write instead of anything else.

    Strict: NaN, infinities and a name that stands twice in one object are wrong. Lone
    surrogates, which no UTF-8 text can hold, become U+FFFD. Raises `UnicodeDecodeError` where
    the bytes are no UTF-8.
    """
    found = _plain_object(line)
    return _decode_strictly(line.decode(), right) if found is None else found


def _plain_object(line: bytes) -> dict[str, Any] | None:
    """Values of an object in which nothing is out of the ordinary; else None.

    Pydantic's decoder takes a quarter of the time of the standard library's and accepts less of
    what this module must refuse or mend, but for names that stand twice: there are then more
    colons behind quotes than names.
    """
    try:
        value = from_json(line, allow_inf_nan=False)
    except ValueError:
        return None
    if isinstance(value, dict) and _names(value) == len(_NAME.findall(line)):
        return value
    return None


def _names(value: dict[str, Any] | list[Any]) -> int:
    """How many names the objects in `value` have, in all depths."""
    own, members = (len(value), value.values()) if isinstance(value, dict) else (0, value)
    return own + sum([_names(one) for one in members if isinstance(one, dict | list)])


def _decode_strictly(text: str, right: str) -> dict[str, Any] | RecordError:
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
