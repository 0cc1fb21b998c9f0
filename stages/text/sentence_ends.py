"""Which full stops end a sentence, and where a list item begins in running text."""

import re
from typing import Final

from claimflow.stages.text.abbreviations import (
    ABBREVIATIONS,
    BEFORE_NUMBER,
    FIRST_WORDS,
    GERMAN_ARTICLES,
    LAST_WORDS,
    MAYBE_LAST,
    MONTHS,
    NEVER_LAST,
    ORDERED,
)
from claimflow.stages.text.unicode_words import composed

FULL_STOPS: Final = "。！？｡．।॥؟۔።։፧។៕‼⁇⁈⁉"
"""Stops that end a sentence without white space behind them."""

_CLOSERS: Final = "\"'”’»›)\\]}」』】）〉》*_¹²³⁰⁴-⁹"
EMOJI: Final = "\u2600-\u27bf\ufe0f\u200d\U0001f000-\U0001faff"
_TRAILER: Final = "|".join(
    (
        rf"[{_CLOSERS}]",
        r"“(?!\w)",
        r"[ \u00a0\u202f]»(?!\w)",
        r"[ ]?\[[\d, ]{1,12}\]",
        rf"[ ]?[{EMOJI}]",
        r"[ ]?[:;=]-?[()DPp](?!\w)",
    )
)

# Nothing in these patterns depends on what comes far behind, and what they have matched
# they never give back: the time is linear whatever the text holds.
STOP: Final = (
    rf"(?P<more>[.!?…{FULL_STOPS}]*+(?:[ \u00a0][.!?…](?!\w))*+)(?P<trailer>(?:{_TRAILER})*+)"
)
"""What may stand behind the first character of a stop: more of them, then closing marks."""

# Of words whose letters and marks are apart.
_MARKS: Final = "\u0300-\u036f\u0653-\u0655\u3099\u309a"
_WORD_AFTER: Final = re.compile(rf"\s*+(?:[—–]\s*+)?[^\w\s]*+([\w{_MARKS}]{{0,20}})(\.?)")
_DASH: Final = re.compile(r"\s*+[—–]")
_UNSPACED: Final = re.compile(rf"[^\W\d_][\w{_MARKS}]{{0,40}}(?=[\s,.’'])")
LIST_NUMBER: Final = r"\W{0,6}(\d{1,3}|[A-Za-z]|[ivxIVX]{1,5})"
"""What a list item begins with."""

_LIST_NUMBER: Final = re.compile(rf"{LIST_NUMBER}(?=[.)])")
_LONGEST_NUMBER: Final = 12
LONGEST_WORD: Final = 40
"""So much is looked at before a stop."""

# Vowel signs of India are no letters, but stand between them.
_LETTER: Final = r"(?:[^\W\d_]|[\u0900-\u0dff])"
DOTTED: Final = re.compile(rf"(?:{_LETTER}{{1,3}}\.-?)+{_LETTER}{{1,3}}|[^\W\d_]")
NO_VOWEL: Final = re.compile(r"[A-ZА-Я]?[b-df-hj-np-tv-xzßб-джзй-нп-тф-щ]{1,4}")
"""Latin and Cyrillic words of consonants: "ff", "mgr", "кв". Capitals alone are names: "TV"."""

_INITIAL: Final = re.compile(r"[^\W\d_]\.")
ROMAN: Final = re.compile(r"[IVXLC]+")
_QUOTED_ON: Final = re.compile(r"(?:と|って|など|を)(?!\s)")
OPENERS: Final = "([{\"'“‘«„*_-"
OPENING: Final = "《〈（「『【"
"""Brackets inside which no stop ends a sentence, as in a title."""

_CLOSING: Final = "》〉）」』】"
_LONGEST_ASIDE: Final = 100
_LONGEST_ITEM: Final = 1000


def begins_item(text: str, start: int, match: re.Match[str]) -> bool:
    """Whether a mark in running text begins a list item: a bullet, or the next number."""
    mark = match["item"]
    if not mark[0].isdigit():
        return True
    number = int(mark.rstrip().rstrip(".)"))
    if number == 1 and text[match.start() - 1] == ":":
        return text.find(f"2{mark[1]} ", match.end(), match.end() + _LONGEST_ITEM) > 0
    previous = _LIST_NUMBER.match(text, start)
    return previous is not None and previous[1] == str(number - 1)


def ends_sentence(text: str, start: int, match: re.Match[str]) -> bool:
    """Whether the sentence that began at `start` ends with `match`, a stop and its closers."""
    first, end = match.start(), match.end()
    trailer = match["trailer"] or ""
    stop = text[first : end - len(trailer)]
    if stop[-1] in FULL_STOPS:
        return not _is_inside(text, start, first) and not (
            trailer and trailer[-1] in "」』" and _QUOTED_ON.match(text, end)
        )
    if end < len(text) and not text[end].isspace():
        unspaced = _UNSPACED.match(text, end)
        return unspaced is not None and _lacks_space(
            _last_words(text, start, first)[1], stop, capital=text[end].isupper()
        )
    before, word = _last_words(text, start, first)
    if first - start < _LONGEST_NUMBER:
        number = _LIST_NUMBER.match(text, start)
        if number and number.end() == first:
            return False
    following = _WORD_AFTER.match(text, end)
    after, dot = (composed(following[1]), following[2]) if following else ("", "")
    if after[:1].islower() and (_goes_on(word, stop, trailer) or _DASH.match(text, end)):
        return False
    return stop != "." or not _is_abbreviation(before, word, after, initial=dot == ".")


def _is_inside(text: str, start: int, stop: int) -> bool:
    """Whether a stop stands inside East Asian brackets, as in a title: 《摔跤吧！爸爸》."""
    first = max(start, stop - _LONGEST_ASIDE)
    opened = max(text.rfind(mark, first, stop) for mark in OPENING)
    if opened < 0:
        return False
    partner = _CLOSING[OPENING.index(text[opened])]
    closed = text.find(partner, opened, stop + _LONGEST_ASIDE)
    # A stop right before the bracket closes what is quoted, and its trailer holds the bracket.
    return closed > stop + 1


def _last_words(text: str, start: int, end: int) -> tuple[str, str]:
    """The last two words before `end`, empty where the sentence has none."""
    words = ["", "", *composed(text[max(start, end - LONGEST_WORD) : end]).split()]
    return words[-2].lower().lstrip(OPENERS), words[-1].lstrip(OPENERS)


def _lacks_space(word: str, stop: str, *, capital: bool) -> bool:
    """Whether a stop between letters ends a sentence, as in "so fine.We" or "why?he"."""
    if not word.isalpha():
        return False
    return stop[-1] in "?!" or (len(word) > 1 and word.islower() and capital)


def _goes_on(word: str, stop: str, trailer: str) -> bool:
    """Whether a sentence goes on in lower case behind a quotation, an ellipsis or "Yahoo!"."""
    if any(closer in trailer for closer in "\"'”’»)"):
        return True
    if stop[-1] in "?!":
        return len(stop) == 1 and word.istitle()
    return stop != "."


def _is_abbreviation(before: str, word: str, after: str, *, initial: bool) -> bool:
    """Whether the stop between `word` and `after` is part of `word`.

    `initial` says that `after` has a stop of its own.
    """
    lower = word.lower()
    if _INITIAL.fullmatch(before):
        lower = before + lower if before + lower in ABBREVIATIONS else lower
    lower_after = after.lower()
    number, small = after[:1].isdigit(), after[:1].islower()
    if lower in NEVER_LAST or (lower in BEFORE_NUMBER and number):
        return True
    if lower in MONTHS:
        return number or small
    if lower in LAST_WORDS:
        return small
    if lower in MAYBE_LAST or DOTTED.fullmatch(word):
        return small or (initial and len(after) == 1) or lower_after not in FIRST_WORDS
    if (number or (small and lower_after not in FIRST_WORDS)) and NO_VOWEL.fullmatch(word):
        return True
    if small and ROMAN.fullmatch(word):
        return True
    day = word.isdecimal() and len(word) <= 2
    return day and (lower_after in ORDERED or before in GERMAN_ARTICLES)
