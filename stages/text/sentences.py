"""Sentences of a text in any language, as exact spans.

A sentence ends at a line break, at a stop of a script that needs no space behind it, and
at `.`, `?`, `!` or an ellipsis before white space, unless the stop belongs to an
abbreviation, an initial, a number or a quotation in running text. Closing quotes,
citation marks such as `[3]`, emoji and smileys stay with the sentence they follow.
Headings, list items and rows of tables are sentences, for each stands on its own line.
Scripts that write no stop at all (Thai, Lao) are cut at line breaks only.
"""

import re
from typing import Final, NamedTuple

from stages.text.last_words import FOLLOWERS
from stages.text.stops import FULL_STOPS, STOP, begins_item, ends_sentence


class Span(NamedTuple):
    """Characters `start:end` of a text."""

    start: int
    end: int


_LINE: Final = re.compile(r"[^\n\r\v\f\x85\u2028\u2029]+")
_BULLETS: Final = "•‣⁃◦▪●"
# Look for an item by the mark in it: marks are fewer than blanks, and found fastest alone.
_NUMBER_AND_STOP: Final = re.compile(r"\.(?<=\d\.)[.)]?\s")
_NUMBER_AND_BRACKET: Final = re.compile(r"\)(?<=\d\))[.)]?\s")
_BULLET: Final = re.compile(rf"[ \t][{_BULLETS}]")
_ITEM: Final = rf"[ \t](?=(?P<item>[{_BULLETS}]|\d{{1,3}}[.)]{{1,2}}\s))"
# Most stops stand before a blank and a letter: these match without a group. No
# sentence ends where a digit or a small letter follows the full stop.
_STOP: Final = rf"[.!?…{FULL_STOPS}](?:(?<=[.!?])(?=[ ][A-Za-z])|(?!(?<=[.．])[\da-z]){STOP})"
_BREAK: Final = re.compile(_STOP)
_BREAK_OR_ITEM: Final = re.compile(f"{_STOP}|{_ITEM}")


def split_sentences(text: str) -> list[Span]:
    """Spans of the sentences of `text`, in order, trimmed of white space.

    Every character outside the spans is white space, and a blank text has no sentence.
    """
    spans: list[Span] = []
    for line in _LINE.finditer(text):
        start, end = line.span()
        breaks = _BREAK_OR_ITEM if _may_hold_item(text, start, end) else _BREAK
        start = _skip_space(text, start, end)
        for match in breaks.finditer(text, start, end):
            stop = match.end()
            if _clearly_ends(text, start, match, end):
                spans.append(Span(start, stop))
                # Such a stop stands before a single blank.
                start = stop + 1
            elif stop < end and _ends(text, start, match):
                _append(spans, text, start, stop)
                start = _skip_space(text, stop, end)
        _append(spans, text, start, end)
    return spans


def _skip_space(text: str, start: int, end: int) -> int:
    while start < end and text[start].isspace():
        start += 1
    return start


def _append(spans: list[Span], text: str, start: int, end: int) -> None:
    while start < end and text[end - 1].isspace():
        end -= 1
    if start < end:
        spans.append(Span(start, end))


def _may_hold_item(text: str, start: int, end: int) -> bool:
    return bool(
        _NUMBER_AND_STOP.search(text, start, end)
        or _NUMBER_AND_BRACKET.search(text, start, end)
        or (not text.isascii() and _BULLET.search(text, start, end))
    )


def _clearly_ends(text: str, start: int, match: re.Match[str], end: int) -> bool:
    """Whether a sentence ends with `match`, before a single blank: a short cut."""
    first, stop = match.span()
    if stop + 1 >= end or text[stop] != " ":
        return False
    blank = text.rfind(" ", start, first)
    word = text[start if blank < 0 else blank + 1 : first]
    after = text[stop + 1]
    if stop - first > 1:
        return after.isupper() and FOLLOWERS[word] > 0 and text[first:stop].isascii()
    if text[first] == ".":
        followers = FOLLOWERS[word]
    else:
        followers = 1 + word.islower() if text[first] in "?!" else 0
    if followers < 2:
        return followers > 0 and after.isupper()
    return not after.isspace() and after not in "—–"


def _ends(text: str, start: int, match: re.Match[str]) -> bool:
    """Whether the sentence that began at `start` ends with `match`."""
    if match.lastgroup == "item":
        return begins_item(text, start, match)
    return ends_sentence(text, start, match)
