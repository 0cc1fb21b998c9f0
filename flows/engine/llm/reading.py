"""The JSON in a model's reply: found, decoded, or told what is wrong with it."""

import re
from typing import Any, Final, Literal, NamedTuple

from claimflow.flows.engine.llm.reading_decode import DecodeError, decode
from claimflow.flows.engine.llm.reading_outline import outline
from claimflow.flows.engine.llm.reading_search import Broken, Search

_NONE: Final = "the reply holds no JSON object"
_CUT: Final = "the reply was cut off before it held a whole entry"

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class Read(NamedTuple):
    """What a reply holds.

    `value` is the JSON value found, None when there is a `problem`, which `message` tells in
    at most 300 characters. `repaired` says that the reply was not that value alone, or that
    characters in it had to be forgiven. `cut` says that the reply was cut off before its
    JSON was complete: `value` then holds its whole entries, if there are any.
    """

    value: Any | None
    repaired: bool
    cut: bool
    problem: Literal["empty", "unparseable"] | None
    message: str


def read_json(text: str, *, cut_off: bool) -> Read:
    """The last object, or list of objects, that stands in `text` outside of any thinking.

    Fences and text around it are passed over. Nothing inside a broken value is taken for
    the reply, and a broken value after a good one makes the good one doubtful: the text
    is then unparseable. An unclosed `<think>` hides all but a value that ends the text.
    Lone surrogates, which no UTF-8 text can hold, become U+FFFD. `cut_off` says that the
    model had to stop early: the last value may then be incomplete.

    Never raises; the time is bounded for hostile text.
    """
    if not text.strip():
        return Read(None, False, cut_off, "empty", "the reply is empty")
    last = Search(text, ended=not cut_off).last()
    if isinstance(last, Broken):
        if cut_off and last.start is not None:
            part = _whole_entries(text, last.start)
            if part is not None:
                return _read(text, part, alone=not text[: last.start].strip(), cut=True)
    elif last is not None:
        alone = not last.forgiven and len(text.strip()) == last.end - last.start
        return _read(text, last.value, alone=alone, cut=False)
    if cut_off:
        return Read(None, False, True, "unparseable", _CUT)
    return Read(None, False, False, "unparseable", _NONE if last is None else last.why)


def _read(text: str, value: Any, *, alone: bool, cut: bool) -> Read:
    if "\\ud" in text or "\\uD" in text or (not text.isascii() and _SURROGATE.search(text)):
        try:
            mended = _without_surrogates(value)
            return Read(mended, not alone or mended != value, cut, None, "")
        except RecursionError:
            return Read(None, False, cut, "unparseable", "the JSON is nested too deep")
    return Read(value, not alone, cut, None, "")


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_without_surrogates(each) for each in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(each) for key, each in value.items()}
    return value


def _whole_entries(text: str, start: int) -> Any | None:
    """The value that begins at `start` and lacks its end, up to its last whole entry.

    None without a whole entry. A value that is itself an entry is never taken in part: its
    lists would look complete.
    """
    seen = outline(text, start, len(text))
    if not seen.incomplete:
        return None
    try:
        value = decode(text[start : seen.whole] + seen.closers, 0).value
    except DecodeError:
        return None
    entries = value if isinstance(value, list) else _list_in(value)
    return value if any(isinstance(entry, dict) for entry in entries) else None


def _list_in(value: dict[str, Any]) -> list[Any]:
    if "id" in value:
        return []
    return next((each for each in value.values() if isinstance(each, list)), [])
