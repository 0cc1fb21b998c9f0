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

from stages.text.abbreviations import ABBREVIATIONS
from stages.text.stops import (
    FULL_STOPS,
    LONGEST_NUMBER,
    NO_VOWEL,
    STOP,
    begins_item,
    ends_sentence,
)

_MOST_WORDS: Final = 100_000


class Span(NamedTuple):
    """Characters `start:end` of a text."""

    start: int
    end: int


_LINE: Final = re.compile(r"[^\n\r\v\f\x85\u2028\u2029]+")
_BULLETS: Final = "•‣⁃◦▪●"
# Looks for an item where it ends: stops are fewer than blanks.
_MAY_HOLD_ITEM: Final = re.compile(rf"[.){_BULLETS}](?:(?<=\d[.)])[.)]?\s|(?<=[ \t][{_BULLETS}]))")
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
        breaks = _BREAK_OR_ITEM if _MAY_HOLD_ITEM.search(text, start, end) else _BREAK
        start = _skip_space(text, start, end)
        for match in breaks.finditer(text, start, end):
            stop = match.end()
            if match.lastindex is None and _clearly_ends(text, start, stop - 1):
                spans.append(Span(start, stop))
                # Such a stop stands before a blank and a letter.
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


class _LastWords(dict[str, int]):
    """What may follow a full stop behind a word for it to end a sentence, whatever else is there.

    0: nothing, since more has to be looked at; 1: a capital letter; 2: a small one, too.
    """

    def __missing__(self, word: str) -> int:
        if len(self) > _MOST_WORDS:
            self.clear()
        plain = len(word) > 1 and word.isalpha() and word.lower() not in ABBREVIATIONS
        self[word] = clear = plain + (plain and word.islower() and not NO_VOWEL.fullmatch(word))
        return clear


_LAST_WORDS: Final = _LastWords()


def _clearly_ends(text: str, start: int, stop: int) -> bool:
    """Whether a sentence ends at `stop`, before a blank and a letter: a short cut."""
    capital = text[stop + 2].isupper()
    if text[stop] != ".":
        return capital
    blank = text.rfind(" ", start, stop)
    word = text[start if blank < 0 else blank + 1 : stop]
    far = stop - start > LONGEST_NUMBER or len(word) > 5
    return far and _LAST_WORDS[word] + capital > 1


def _ends(text: str, start: int, match: re.Match[str]) -> bool:
    """Whether the sentence that began at `start` ends with `match`."""
    if match.lastgroup == "item":
        return begins_item(text, start, match)
    return ends_sentence(text, start, match)
