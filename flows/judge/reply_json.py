"""Finds and decodes the JSON in a model's reply, or explains why there is none."""

import json
import math
import re
from itertools import islice
from typing import Any, Final, Literal, NamedTuple, NoReturn


class DecodeError(ValueError):
    """Why a text cannot be decoded, in a short message that quotes at most one name of the text."""


class Decoded(NamedTuple):
    """A value, where it ends, and whether it has raw control characters, which JSON forbids."""

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

    Line breaks and other control characters inside a string are accepted. NaN, infinities and
    a name that occurs twice in one object with different values raise `DecodeError`, and so does
    nesting beyond `_MAX_DEPTH`.
    """
    try:
        try:
            value, end = _STRICT.raw_decode(text, start)
            if text.count("[", start, end) + text.count("{", start, end) > _MAX_DEPTH:
                _check_depth(value)
        except json.JSONDecodeError as error:
            if not error.msg.startswith("Invalid control character"):
                raise
            value, end = _FORGIVING.raw_decode(text, start)
            _check_depth(value)
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


_MAX_DEPTH: Final = 500
"""Lists and objects in each other: Python gives up at about 1,000, some versions much later."""


def _check_depth(value: Any) -> None:
    """Raise `RecursionError` where lists and objects are nested deeper than `_MAX_DEPTH`."""
    level, depth = [value], 0
    while level:
        if depth > _MAX_DEPTH:
            raise RecursionError
        depth += 1
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]


_STRICT: Final = _decoder(strict=True)
_FORGIVING: Final = _decoder(strict=False)


# The brackets of a JSON value that may be broken or incomplete.


_MARKS: Final = 20_000
"""Brackets and strings that are read of one value before it is given up."""
_DEPTH: Final = 64

# Possessive: a string without its end extends to the end of the text. With backtracking, a text of
# n quotes would be read n times.
_BRACKET: Final = re.compile(r'"(?:[^"\\]++|\\.)*+\\?"?|[{}\[\]]', re.DOTALL)

_CLOSERS: Final = {"{": "}", "[": "]"}


class Outline(NamedTuple):
    """Where the value's last bracket is, None without one.

    For an `incomplete` value `whole` is the end of the last whole entry of the list that
    it is or holds, -1 without one, and `closers` the brackets that are open there.
    """

    end: int | None
    incomplete: bool = False
    whole: int = -1
    closers: str = ""


def outline(text: str, start: int, limit: int) -> Outline:
    """The outline of the value that begins with the bracket at `start`, read up to `limit`."""
    opened: list[int] = []
    closed: dict[int, int] = {}
    for count, mark in enumerate(islice(_BRACKET.finditer(text, start, limit), _MARKS + 1)):
        sign = text[mark.start()]
        if sign in "{[":
            opened.append(mark.start())
        elif sign in "}]":
            opened.pop()
            closed[len(opened)] = mark.end()
            if not opened:
                return Outline(mark.end())
        if len(opened) > _DEPTH or count == _MARKS:
            return Outline(None)
    return _incomplete(text, opened, closed)


def _incomplete(text: str, opened: list[int], closed: dict[int, int]) -> Outline:
    listed = text[opened[0]] == "[" or len(opened) == 1 or text[opened[1]] != "["
    depth = 1 if listed else 2
    whole = closed.get(depth, -1)
    if whole < opened[depth - 1]:
        return Outline(None, incomplete=True)
    closers = "".join(_CLOSERS[text[place]] for place in reversed(opened[:depth]))
    return Outline(None, incomplete=True, whole=whole, closers=closers)


# The search for the reply in a text of prose, fences, thinking and broken JSON.


_NAMES: Final = (
    "(?i:(?:seed:)?(?:think|thinking|thoughts?|reasoning|reflection|analysis|scratchpad))"
)
_THINK: Final = rf"{_NAMES}>|\|begin_of_thought\|>|\|channel\|>analysis"
_THOUGHT: Final = rf"/{_NAMES}>|\|end_of_thought\|>|\|channel\|>final"

# Each alternative begins with a literal character, which makes the search fast.
_MARK: Final = re.compile(
    rf"<(?=[/|\w])(?:{_THINK}|{_THOUGHT})|◁/?think▷|\[/?THINK\]"
    r'|\}|\{|\[(?=\s*+(?:[\[{"\]\-\d]|true|false|null))'
)
_END_OF_THOUGHT: Final = re.compile(rf"<(?=[/|])(?:{_THOUGHT})|◁/think▷|\[/THINK\]")

# Single quotes and bare names, too: not JSON, but meant as a reply.
_LIKE_A_REPLY: Final = re.compile(r"""\{\s*+(?:["']|\w++\s*+:)|\[\s*+[\[{]""")
_FENCE: Final = re.compile(r"\s*+(?:`{3,}\w*+\s*+)?")
_INSIDE: Final = tuple(",:[{\"'")
_LIST_ENDS: Final = re.compile(r"\s*+\]")
_NOTHING_MORE: Final = re.compile(r"[\s`]*+\Z")

_STEPS: Final = 2_000
_FAILED_CHARACTERS: Final = 2_000_000
"""Each failed attempt may read the whole text. This bounds what all of them read."""


class Found(NamedTuple):
    """A value at `start:end` of the text; `forgiven` as in `Decoded`."""

    value: Any
    start: int
    end: int
    forgiven: bool


class Broken(NamedTuple):
    """A text that begins like a reply but cannot be decoded, and why.

    `start` is where it begins, None where that is uncertain.
    """

    start: int | None
    why: str


class Search:
    """One pass over the outermost values of `text`; `ended` says that the reply was not cut off."""

    def __init__(self, text: str, *, ended: bool) -> None:
        self._text = text
        self._ended = ended
        self._last: Found | Broken | None = None
        self._looked = False
        self._thought: re.Match[str] | None = None
        self._failures = 0
        self._thinking = False
        # A broken value was skipped: what follows may be a part of it.
        self._after_broken = False

    def last(self) -> Found | Broken | None:
        """The last value that may be the reply, whole or broken."""
        place = 0
        for _ in range(_STEPS):
            mark = _MARK.search(self._text, place)
            if mark is None:
                return self._last
            place = self._step(mark)
            if self._failures * len(self._text) > _FAILED_CHARACTERS:
                break
        return Broken(None, "the reply holds too many brackets")

    def _step(self, mark: re.Match[str]) -> int:
        if mark[0] in "{[":
            return self._value(mark.start())
        thought = self._end_of_thought(mark.start())
        if mark[0] == "}":
            self._stray_bracket()
        elif thought is None:
            self._thinking = True
        elif thought.start() == mark.start():  # without an opening tag: all before it was thinking
            self._last = None
        else:
            return thought.end()
        return mark.end()

    def _value(self, start: int) -> int:
        why = ""
        if self._text.startswith(("[", "{}"), start) or _LIKE_A_REPLY.match(self._text, start):
            try:
                value, end, forgiven = decode(self._text, start)
            except DecodeError as error:
                self._failures += 1
                why = str(error)
            else:
                if self._counts(value, start, end):
                    self._last = Found(value, start, end, forgiven)
                    if _LIST_ENDS.match(self._text, end):
                        self._stray_bracket()
                return end
        return self._skip_broken(start, why)

    def _counts(self, value: Any, start: int, end: int) -> bool:
        ends_text = self._ended and _NOTHING_MORE.match(self._text, end) is not None
        if self._thinking and not ends_text:
            return False
        if self._inside(start):
            return False
        if value and (isinstance(value, dict) or any(isinstance(entry, dict) for entry in value)):
            return True
        # In prose such a list is a citation; if it is the whole text, it is a wrong reply.
        first = _FENCE.match(self._text)
        return ends_text and first is not None and first.end() == start

    def _skip_broken(self, start: int, why: str) -> int:
        """The place after a broken value at `start`; `why` is empty for brackets in prose."""
        meant = _LIKE_A_REPLY.match(self._text, start) is not None
        if self._text[start] == "[" and not meant:
            return start + 1
        thought = self._end_of_thought(start)
        limit = len(self._text) if thought is None else thought.start()
        end = outline(self._text, start, limit).end
        inside = self._inside(start)
        self._after_broken |= meant or end is None
        if end is None and thought is not None:
            self._last = None
            return thought.end()
        if not self._thinking and (meant or (end is None and self._last is None)):
            why = why or "the reply holds an open bracket but no JSON"
            self._last = Broken(None if inside else start, why)
        return limit if end is None else end

    def _stray_bracket(self) -> None:
        """Treat a closing bracket without an opening one as the end of a broken value."""
        if isinstance(self._last, Found):
            self._last = Broken(None, "the JSON has a closing bracket too many")
            self._after_broken = True

    def _inside(self, start: int) -> bool:
        """Whether the value at `start` may be a part of a broken value."""
        before = self._text[max(0, start - 200) : start].rstrip()
        return self._after_broken and before.endswith(_INSIDE)

    def _end_of_thought(self, place: int) -> re.Match[str] | None:
        """The next end of thinking at or after `place`. `place` may not decrease between calls."""
        if not self._looked or (self._thought and self._thought.start() < place):
            self._thought = _END_OF_THOUGHT.search(self._text, place)
            self._looked = True
        return self._thought


_NONE: Final = "the reply holds no JSON object"
_CUT: Final = "the reply was cut off before it held a whole entry"

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class Read(NamedTuple):
    """The JSON of a reply.

    `value` is the JSON value, None when there is a `problem`, which `message` explains in at most
    300 characters. `repaired` says that the reply was not that value alone, or contained raw
    control characters. `cut` says that the reply was cut off before its JSON was complete:
    `value` then holds its whole entries, if there are any.
    """

    value: Any | None
    repaired: bool
    cut: bool
    problem: Literal["empty", "unparseable"] | None
    message: str


def read_json(text: str, *, cut_off: bool) -> Read:
    """Read the last object, or list of objects, in `text` outside of any thinking.

    Fences and text around it are skipped. A part of a broken value is never the reply, and a
    broken value after a good one makes the text unparseable, since the good one may be a draft.
    After an unclosed `<think>` only a value that ends the text counts. Lone surrogates, which
    UTF-8 cannot encode, become U+FFFD. `cut_off` says that the model had to stop early: the last
    value may then be incomplete.

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

    None without a whole entry. A part of a single entry is never accepted: its lists would look
    complete.
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
