"""Sentences of a text in any language, as exact spans."""

import re
from typing import Final, NamedTuple

from claimflow.stages.text.abbreviations import ABBREVIATIONS
from claimflow.stages.text.sentence_ends import (
    DOTTED,
    FULL_STOPS,
    LIST_NUMBER,
    LONGEST_WORD,
    NO_VOWEL,
    OPENERS,
    ROMAN,
    STOP,
    begins_item,
    ends_sentence,
)
from claimflow.stages.text.unicode_words import composed

# Words behind which a full stop ends a sentence whatever else is there, or nearly so.


_MOST: Final = 100_000

# Of abbreviations that may be written with a blank: "f. eks.".
_ENDINGS: Final = frozenset(word[2:] for word in ABBREVIATIONS if word[1:2] == ".")
_LIST_NUMBER: Final = re.compile(LIST_NUMBER)


class _Followers(dict[str, int]):
    """What may stand behind a word, a full stop and a blank for a sentence to end there.

    0: nothing, since more has to be looked at; 1: a capital letter; 2: anything but a dash
    or white space. Each word is looked at once.
    """

    def __missing__(self, word: str) -> int:
        clear = _clear(word)
        # Where no blanks are written a word may be a whole text, and is not met again.
        if len(word) < LONGEST_WORD:
            if len(self) > _MOST:
                self.clear()
            self[word] = clear
        return clear


def _clear(piece: str) -> int:
    word = composed(piece.lstrip(OPENERS))
    if not word or len(piece) >= LONGEST_WORD or piece.split() != [piece]:
        return 0
    if DOTTED.fullmatch(word) or _LIST_NUMBER.fullmatch(word):
        return 0
    lower = word.lower()
    if lower in ABBREVIATIONS or lower in _ENDINGS:
        return 0
    return 1 if NO_VOWEL.fullmatch(word) or ROMAN.fullmatch(word) else 2


FOLLOWERS: Final = _Followers()


def followers(word: str, stop: str) -> int:
    """What may stand behind a word, its stop and a blank for a sentence to end there."""
    if len(stop) > 1:
        return int(FOLLOWERS[word] > 0 and stop.isascii())
    if stop == ".":
        return FOLLOWERS[word]
    return 1 + word.islower() if stop in "?!" else 0


# Sentences of a text in any language, as exact spans.
#
# A sentence ends at a line break, at a stop of a script that needs no space behind it, and
# at `.`, `?`, `!` or an ellipsis before white space, unless the stop belongs to an
# abbreviation, an initial, a number or a quotation in running text. Closing quotes,
# citation marks such as `[3]`, emoji and smileys stay with the sentence they follow.
# Headings, list items and rows of tables are sentences, for each stands on its own line.
# Scripts that write no stop at all (Thai, Lao) are cut at line breaks only.


class Span(NamedTuple):
    """Characters `start:end` of a text."""

    start: int
    end: int


class Bounds(NamedTuple):
    """Where sentences start and where they end: for many texts cheaper than spans."""

    starts: list[int]
    ends: list[int]


_LINE_ENDS: Final = "\n\r\v\f\x85\u2028\u2029"
BULLETS: Final = "•‣⁃◦▪●"
# Look for an item by the mark in it: marks are fewer than blanks, and found fastest alone.
_NUMBER: Final = "|".join(rf"(?<=[ \t]{number}.)" for number in (r"\d", r"\d\d", r"\d\d\d"))
_NUMBER_AND_STOP: Final = re.compile(rf"\.(?:{_NUMBER})[.)]?\s")
_NUMBER_AND_BRACKET: Final = re.compile(rf"\)(?:{_NUMBER})[.)]?\s")
_LAST_DIGIT: Final = re.compile(r"\d(?=[.)])")
_BULLET: Final = re.compile(rf"[ \t][{BULLETS}]")
_ITEM: Final = rf"(?P<item>[{BULLETS}]|\d{{1,3}}[.)]{{1,2}}(?![{_LINE_ENDS}])\s)"
# Characters are found fastest by one class at the head of a pattern. Most stops stand before a
# blank and a letter: these match without a group. No sentence ends where a digit or a small
# letter follows the full stop.
_MARKS: Final = rf".!?…{FULL_STOPS}{_LINE_ENDS}"
_BEHIND: Final = rf"(?<=[.!?])(?=[ ][A-Za-z])|(?<=[{_LINE_ENDS}])\s*+|(?!(?<=[.．])[\da-z]){STOP}"
BREAK: Final = re.compile(rf"[{_MARKS}](?:{_BEHIND})")
"""What may end a sentence: a line break, or a stop and what closes it."""

_BREAK_OR_ITEM: Final = re.compile(
    rf"[ \t{_MARKS}](?:(?<=[ \t])(?={_ITEM})|(?<![ \t])(?:{_BEHIND}))"
)


def split_sentences(text: str) -> list[Span]:
    """Spans of the sentences of `text`, in order, trimmed of white space.

    Every character outside the spans is white space, and a blank text has no sentence.
    """
    return list(map(Span, *sentence_bounds(text)))


def sentence_bounds(text: str) -> Bounds:
    """Starts and ends of what `split_sentences` finds."""
    bounds = Bounds([], [])
    start, end = skip_space(text, 0), len(text)
    breaks = _BREAK_OR_ITEM if may_hold_item(text) else BREAK
    for match in breaks.finditer(text, start):
        first, stop = match.span()
        if _clearly_ends(text, start, first, stop):
            bounds.starts.append(start)
            bounds.ends.append(stop)
            # Such a stop stands before a single blank.
            start = stop + 1
        elif text[first] in _LINE_ENDS:
            _append(bounds, text, start, first)
            start = stop
        elif text[stop : stop + 1] not in _LINE_ENDS and _ends(text, start, match):
            # At the end of a line or of the text a stop needs no look: both end there anyway.
            _append(bounds, text, start, stop)
            start = skip_space(text, stop)
    _append(bounds, text, start, end)
    return bounds


def skip_space(text: str, start: int) -> int:
    """The place of the first character at or behind `start` that is no white space."""
    while start < len(text) and text[start].isspace():
        start += 1
    return start


def _append(bounds: Bounds, text: str, start: int, end: int) -> None:
    while start < end and text[end - 1].isspace():
        end -= 1
    if start < end:
        bounds.starts.append(start)
        bounds.ends.append(end)


def may_hold_item(text: str) -> bool:
    """Whether an item of a list may begin in running text: a bullet, or the next number."""
    if _NUMBER_AND_STOP.search(text) or _NUMBER_AND_BRACKET.search(text):
        # An item is looked for where the one before it, or the one behind it, is there as well.
        digits = set(map(int, _LAST_DIGIT.findall(text)))
        if any((digit + 1) % 10 in digits for digit in digits):
            return True
    return not text.isascii() and _BULLET.search(text) is not None


def _clearly_ends(text: str, start: int, first: int, stop: int) -> bool:
    """Whether a sentence ends with the stop `first:stop`, before a single blank: a short cut."""
    after = text[stop + 1 : stop + 2]
    if not after or text[stop] != " ":
        return False
    blank = text.rfind(" ", start, first)
    may_follow = followers(text[start if blank < 0 else blank + 1 : first], text[first:stop])
    if may_follow < 2:
        return may_follow > 0 and after.isupper()
    return not after.isspace() and after not in "—–"


def _ends(text: str, start: int, match: re.Match[str]) -> bool:
    """Whether the sentence that began at `start` ends with `match`."""
    if match.lastgroup == "item":
        return begins_item(text, start, match)
    return ends_sentence(text, start, match)
