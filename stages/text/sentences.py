"""Sentences of a text in any language, as exact spans.

A sentence ends at a line break, at a stop of a script that needs no space behind it, and
at `.`, `?`, `!` or an ellipsis before white space, unless the stop belongs to an
abbreviation, an initial, a number or a quotation in running text. Closing quotes,
citation marks such as `[3]`, emoji and smileys stay with the sentence they follow.
Scripts that write no stop at all (Thai, Lao) are cut at line breaks only.
"""

import re
from typing import Final, NamedTuple

from stages.text.abbreviations import (
    BEFORE_NUMBER,
    FIRST_WORDS,
    GERMAN_ARTICLES,
    MAYBE_LAST,
    MONTHS,
    NEVER_LAST,
)


class Span(NamedTuple):
    """Characters `start:end` of a text."""

    start: int
    end: int


_FULL_STOPS: Final = "。！？｡．।॥؟۔։።፧။៕‼⁇⁈⁉"
_CLOSERS: Final = "\"'”’»›)\\]}」』】）〉》*_¹²³⁰⁴-⁹"
_EMOJI: Final = "\u2600-\u27bf\ufe0f\u200d\U0001f000-\U0001faff"
_TRAILER: Final = "|".join(
    (
        rf"[{_CLOSERS}]",
        r"“(?!\w)",
        r"[ \u00a0\u202f]»(?!\w)",
        r"[ ]?\[[\d, ]{1,12}\]",
        rf"[ ]?[{_EMOJI}]",
        r"[ ]?[:;=]-?[()DPp](?!\w)",
    )
)

# Nothing in this pattern depends on what comes far behind it, and what it has matched it
# never gives back: the time is linear whatever the text holds.
_BREAK: Final = re.compile(
    rf"(?P<stop>[.!?…{_FULL_STOPS}]++(?:[ \u00a0][.!?…](?!\w))*+)(?P<trailer>(?:{_TRAILER})*+)"
    r"|(?P<line>[\n\r\v\f\x85\u2028\u2029])"
    r"|[ \t](?=(?P<item>[•‣⁃◦▪●]|\d{1,3}[.)]{1,2}\s))"
)
_WORD_AFTER: Final = re.compile(r"\s*+[^\w\s]*+(\w{0,20})")
_UNSPACED: Final = re.compile(r"[^\W\d_]\w{0,40}(?=[\s,.’'])")
_LIST_NUMBER: Final = re.compile(r"\W{0,6}(\d{1,3}|[A-Za-z]|[ivxIVX]{1,5})(?=[.)])")
_DOTTED: Final = re.compile(r"(?:[^\W\d_]{1,3}\.)+[^\W\d_]{1,3}|[^\W\d_]")


def split_sentences(text: str) -> list[Span]:
    """Spans of the sentences of `text`, in order, trimmed of white space.

    Every character outside the spans is white space, and a blank text has no sentence.
    """
    spans: list[Span] = []
    start = 0
    for match in _BREAK.finditer(text):
        if _is_border(text, start, match):
            _append(spans, text, start, match.end())
            start = match.end()
    _append(spans, text, start, len(text))
    return spans


def _append(spans: list[Span], text: str, start: int, end: int) -> None:
    piece = text[start:end]
    content = piece.strip()
    if content:
        begin = start + len(piece) - len(piece.lstrip())
        spans.append(Span(begin, begin + len(content)))


def _is_border(text: str, start: int, match: re.Match[str]) -> bool:
    """Whether the sentence that began at `start` ends with `match`."""
    if match["item"]:
        return _continues_list(text, start, match["item"])
    if match["line"] or match["stop"][-1] in _FULL_STOPS:
        return True
    return _ends_sentence(text, start, match)


def _ends_sentence(text: str, start: int, match: re.Match[str]) -> bool:
    stop, end = match["stop"], match.end()
    before, word = _last_words(text, start, match.start())
    if end < len(text) and not text[end].isspace():
        return _lacks_space(word, stop, text, end)
    number = _LIST_NUMBER.match(text, start)
    if number and number.end() == match.start():
        return False
    following = _WORD_AFTER.match(text, end)
    first = following[1] if following else ""
    if first[:1].islower() and _goes_on(word, stop, match["trailer"]):
        return False
    return stop != "." or not _is_abbreviation(before, word, first)


def _continues_list(text: str, start: int, mark: str) -> bool:
    """Whether a mark in running text begins a list item: a bullet, or the next number."""
    if not mark[0].isdigit():
        return True
    previous = _LIST_NUMBER.match(text, start)
    number = int(mark.rstrip(".) \t\n\r"))
    return previous is not None and previous[1] == str(number - 1)


def _last_words(text: str, start: int, end: int) -> tuple[str, str]:
    """The last two words before `end`, empty where the sentence has none."""
    words = ["", "", *text[max(start, end - 40) : end].split()]
    return words[-2].lower(), words[-1].lstrip("([{\"'“‘«„*_-")


def _lacks_space(word: str, stop: str, text: str, end: int) -> bool:
    """Whether a stop between letters ends a sentence, as in "so fine.We" or "why?he"."""
    unspaced = _UNSPACED.match(text, end)
    if unspaced is None or not word.isalpha():
        return False
    return stop[-1] in "?!" or (len(word) > 1 and word.islower() and text[end].isupper())


def _goes_on(word: str, stop: str, trailer: str) -> bool:
    """Whether a sentence goes on in lower case behind a quotation, an ellipsis or "Yahoo!"."""
    if any(closer in trailer for closer in "\"'”’»)"):
        return True
    if stop[-1] in "?!":
        return len(stop) == 1 and word.istitle()
    return stop != "."


def _is_abbreviation(before: str, word: str, first: str) -> bool:
    """Whether the stop between `word` and the next word, `first`, is part of `word`."""
    lower = word.lower()
    if lower in NEVER_LAST or (lower in BEFORE_NUMBER and first[:1].isdigit()):
        return True
    if lower in MAYBE_LAST or _DOTTED.fullmatch(word):
        return first.islower() or first.lower() not in FIRST_WORDS
    day = word.isdecimal() and len(word) <= 2
    return day and (first.lower() in MONTHS or before in GERMAN_ARTICLES)
