"""The brackets of a JSON value that may be broken or incomplete."""

import re
from itertools import islice
from typing import Final, NamedTuple

_MARKS: Final = 20_000
"""Brackets and strings that are looked at before a value counts as hopeless."""
_DEPTH: Final = 64

# A string without its end goes on to the end of the text: were it tried from each of its
# quotes, a million of them would take a million times the text.
_MARK: Final = re.compile(r'"(?:[^"\\]++|\\.)*+\\?"?|[{}\[\]]', re.DOTALL)

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
    """The outline of what begins with the bracket at `start` and may reach up to `limit`."""
    opened: list[int] = []
    closed: dict[int, int] = {}
    for count, mark in enumerate(islice(_MARK.finditer(text, start, limit), _MARKS + 1)):
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
