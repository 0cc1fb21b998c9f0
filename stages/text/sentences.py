"""Sentences of a text in any language, as exact spans.

A sentence ends at a line break, at a stop of a script that needs no space behind it, and
at `.`, `?`, `!` or an ellipsis before white space, unless the stop belongs to an
abbreviation, an initial, a number or a quotation in running text, or stands between
brackets. Closing quotes, citation marks such as `[3]`, emoji and smileys stay with the
sentence they follow.
Headings, list items and rows of tables are sentences, because each stands on its own line.
Scripts that write no stop at all (Thai, Lao) are cut at line breaks only.
"""

import re
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, Literal, NamedTuple, TypeVar

from claimflow.stages.text.unicode_words import to_nfc
from claimflow.stages.text.word_lists import (
    ABBREVIATIONS,
    AFTER_ORDINAL,
    BEFORE_NUMBER,
    BEFORE_NUMBER_OR_SMALL,
    ENUMERATION_ENDS,
    GERMAN_ARTICLES,
    MONTHS,
    NEVER_SENTENCE_FINAL,
    RARELY_SENTENCE_FINAL,
    SENTENCE_STARTERS,
)


class Span(NamedTuple):
    """Characters `start:end` of a text."""

    start: int
    end: int


_LONGEST_WORD: Final = 40
"""The number of characters before a stop that are examined."""

_LONGEST_CACHED: Final = 100
_MOST_CACHED: Final = 100_000

Value = TypeVar("Value")


class WordCache(dict[str, Value], Generic[Value]):
    """Values of a function of short strings, each computed once; faster than `lru_cache`.

    Strings of more than 100 characters are not kept: in a script without blanks the string
    between two blanks may be a whole text. The cache is emptied when it holds 100,000 values.
    """

    def __init__(self, function: Callable[[str], Value]) -> None:
        self._function = function

    def __missing__(self, word: str) -> Value:
        value = self._function(word)
        if len(word) <= _LONGEST_CACHED:
            if len(self) >= _MOST_CACHED:
                self.clear()
            self[word] = value
        return value


# The characters that end a sentence, and those that may follow them.

_FULL_STOPS: Final = "。！？｡．।॥؟۔።։፧។៕‼⁇⁈⁉"
"""Stops that end a sentence without white space behind them."""

_LINE_ENDS: Final = "\n\r\v\f\x85\u2028\u2029"
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
# After the first character of a stop: further stop characters, then closing marks. The patterns
# look only a few characters ahead, and their quantifiers are possessive (no backtracking), so the
# time is linear for any text.
_STOP: Final = (
    rf"(?P<more>[.!?…{_FULL_STOPS}]*+(?:[ \u00a0][.!?…](?!\w))*+)(?P<trailer>(?:{_TRAILER})*+)"
)
# The search is fastest when the pattern begins with one class of characters. Most stops stand
# before a blank and a letter: these match without a group. No sentence ends where a digit or a
# small letter follows the full stop.
_MARKS: Final = rf".!?…{_FULL_STOPS}{_LINE_ENDS}"
_BEHIND: Final = rf"(?<=[.!?])(?=[ ][A-Za-z])|(?<=[{_LINE_ENDS}])\s*+|(?!(?<=[.．])[\da-z]){_STOP}"
_BREAK: Final = re.compile(rf"[{_MARKS}](?:{_BEHIND})")
"""What may end a sentence: a line break, or a stop and what closes it."""

# List items in running text. The search is for their marks, which are rarer than blanks.
_BULLETS: Final = "•‣⁃◦▪●"
_BULLET: Final = re.compile(rf"[ \t][{_BULLETS}]")
_NUMBER: Final = "|".join(rf"(?<=[ \t]{number}.)" for number in (r"\d", r"\d\d", r"\d\d\d"))
_NUMBER_AND_STOP: Final = re.compile(rf"\.(?:{_NUMBER})[.)]?\s")
_NUMBER_AND_BRACKET: Final = re.compile(rf"\)(?:{_NUMBER})[.)]?\s")
_LAST_DIGIT: Final = re.compile(r"\d(?=[.)])")
_ITEM: Final = rf"(?P<item>[{_BULLETS}]|\d{{1,3}}[.)]{{1,2}}(?![{_LINE_ENDS}])\s)"
_BREAK_OR_ITEM: Final = re.compile(
    rf"[ \t{_MARKS}](?:(?<=[ \t])(?={_ITEM})|(?<![ \t])(?:{_BEHIND}))"
)
_ITEM_NUMBER: Final = r"\W{0,6}(\d{1,3}|[A-Za-z]|[ivxIVX]{1,5})"
_IS_ITEM_NUMBER: Final = re.compile(_ITEM_NUMBER)
_ITEM_NUMBER_AND_STOP: Final = re.compile(rf"{_ITEM_NUMBER}(?=[.)])")
_LONGEST_NUMBER: Final = 12
_LONGEST_ITEM: Final = 1000


def split_sentences(text: str) -> list[Span]:
    """Spans of the sentences of `text`, in order, trimmed of white space.

    Every character outside the spans is white space, and a blank text has no sentence.
    """
    spans: list[Span] = []
    start, end = _skip_space(text, 0), len(text)
    breaks = _BREAK_OR_ITEM if _may_hold_item(text) else _BREAK
    brackets = _bracketed(text) if "(" in text or "[" in text else None
    for match in breaks.finditer(text, start):
        first, stop = match.span()
        while brackets and brackets[0].end < stop:
            brackets.popleft()
        if brackets and brackets[0].start < first:
            continue
        if _clearly_ends(text, start, first, stop):
            spans.append(Span(start, stop))
            # `_clearly_ends` is true only before a single blank.
            start = stop + 1
        elif text[first] in _LINE_ENDS:
            _append(spans, text, start, first)
            start = stop
        elif text[stop : stop + 1] not in _LINE_ENDS and _ends(text, start, match):
            # A stop at the end of a line or of the text is not examined: the sentence ends there.
            _append(spans, text, start, stop)
            start = _skip_space(text, stop)
    _append(spans, text, start, end)
    return spans


_BRACKET: Final = re.compile(rf"[()\[\]{_LINE_ENDS}](?<![:;=][()])(?<![:;=]-[()])")
"""A round or square bracket that is no part of a smiley, or a line end."""

_LONGEST_BRACKETS: Final = 500
"""Characters from a bracket to the one that closes it: a forgotten bracket, which a later one seems
to close, must not make one sentence of a long text."""


def _bracketed(text: str) -> deque[Span]:
    """The outermost pairs of brackets, in order: `start` is the first, `end` the last of each.

    Both are on one line. A bracket that is never closed is none.
    """
    spans: deque[Span] = deque()
    round_ones: list[int] = []
    square_ones: list[int] = []
    for match in _BRACKET.finditer(text):
        bracket, place = match[0], match.start()
        if bracket == "(":
            round_ones.append(place)
        elif bracket == "[":
            square_ones.append(place)
        elif bracket in ")]":
            same, other = round_ones, square_ones
            if bracket == "]":
                same, other = other, same
            if not same:
                continue
            first = same.pop()
            # What was opened inside and never closed is no bracket.
            while other and other[-1] > first:
                other.pop()
            if place - first <= _LONGEST_BRACKETS:
                while spans and spans[-1].start > first:
                    spans.pop()
                spans.append(Span(first, place))
        else:
            round_ones.clear()
            square_ones.clear()
    return spans


def halve(text: str, *, overlap: int) -> tuple[Span, Span] | None:
    """Two spans that cover all sentences of `text`, of about equal length.

    They share the `overlap` sentences on either side of the cut, as far as both stay
    shorter than the text. A text of one sentence is cut between words, and the spans then
    share `overlap` words on either side of the cut. None when there is nothing to cut.
    """
    pieces = split_sentences(text)
    if len(pieces) < 2:
        pieces = [Span(*match.span()) for match in re.finditer(r"\S+", text)]
    if len(pieces) < 2:
        return None
    middle = (pieces[0].start + pieces[-1].end) / 2
    last = len(pieces) - 1
    cut = min(range(1, len(pieces)), key=lambda number: abs(pieces[number].start - middle))
    # Each half must leave out at least one piece, or cutting would never end.
    left_end = min(cut + overlap, last)
    right_start = max(cut - overlap, 1)
    return (
        Span(pieces[0].start, pieces[left_end - 1].end),
        Span(pieces[right_start].start, pieces[-1].end),
    )


def _skip_space(text: str, start: int) -> int:
    """The index of the first character from `start` on that is not white space."""
    while start < len(text) and text[start].isspace():
        start += 1
    return start


def _append(spans: list[Span], text: str, start: int, end: int) -> None:
    while start < end and text[end - 1].isspace():
        end -= 1
    if start < end:
        spans.append(Span(start, end))


def _may_hold_item(text: str) -> bool:
    """Whether an item of a list may begin in running text: a bullet, or the next number."""
    if _NUMBER_AND_STOP.search(text) or _NUMBER_AND_BRACKET.search(text):
        # A number is an item only where the number before it or after it is there as well.
        digits = set(map(int, _LAST_DIGIT.findall(text)))
        if any((digit + 1) % 10 in digits for digit in digits):
            return True
    return not text.isascii() and _BULLET.search(text) is not None


def _ends(text: str, start: int, match: re.Match[str]) -> bool:
    """Whether the sentence that began at `start` ends with `match`."""
    if match.lastgroup == "item":
        return _begins_item(text, start, match)
    return _ends_with_stop(text, start, match)


def _begins_item(text: str, start: int, match: re.Match[str]) -> bool:
    """Whether a mark in running text begins a list item: a bullet, or the next number."""
    mark = match["item"]
    if not mark[0].isdigit():
        return True
    number = int(mark.rstrip().rstrip(".)"))
    if number == 1 and text[match.start() - 1] == ":":
        return text.find(f"2{mark[1]} ", match.end(), match.end() + _LONGEST_ITEM) > 0
    previous = _ITEM_NUMBER_AND_STOP.match(text, start)
    return previous is not None and previous[1] == str(number - 1)


# Stops that only further rules can decide.

# Combining marks of letters that are not composed (NFD).
_COMBINING: Final = "\u0300-\u036f\u0653-\u0655\u3099\u309a"
_WORD_AFTER: Final = re.compile(rf"\s*+(?:[—–]\s*+)?[^\w\s]*+([\w{_COMBINING}]{{0,20}})(\.?)")
_DASH: Final = re.compile(r"\s*+[—–]")
_UNSPACED: Final = re.compile(rf"[^\W\d_][\w{_COMBINING}]{{0,40}}(?=[\s,.’'])")
# The vowel signs of Indian scripts are no letters for `re`, but stand between letters.
_LETTER: Final = r"(?:[^\W\d_]|[\u0900-\u0dff])"
_DOTTED: Final = re.compile(rf"(?:{_LETTER}{{1,3}}\.-?)+{_LETTER}{{1,3}}|[^\W\d_]")
_NO_VOWEL: Final = re.compile(r"[A-ZА-Я]?[b-df-hj-np-tv-xzßб-джзй-нп-тф-щ]{1,4}")
"""Latin and Cyrillic words of consonants: "ff", "mgr", "кв". Capitals alone are names: "TV"."""

_INITIAL: Final = re.compile(r"[^\W\d_]\.")
_ROMAN: Final = re.compile(r"[IVXLC]+")
_QUOTED_ON: Final = re.compile(r"(?:と|って|など|を)(?!\s)")
_OPENERS: Final = "([{\"'“‘«„*_-"
_OPENING: Final = "《〈（「『【"
_CLOSING: Final = "》〉）」』】"
"""Brackets inside which no stop ends a sentence, as in a title."""

_LONGEST_TITLE: Final = 100


def _ends_with_stop(text: str, start: int, match: re.Match[str]) -> bool:
    """Whether the sentence that began at `start` ends with `match`, a stop and its closers."""
    first, end = match.start(), match.end()
    trailer = match["trailer"] or ""
    stop = text[first : end - len(trailer)]
    if stop[-1] in _FULL_STOPS:
        return not _is_inside_brackets(text, start, first) and not (
            trailer and trailer[-1] in "」』" and _QUOTED_ON.match(text, end)
        )
    if end < len(text) and not text[end].isspace():
        if stop == "." and text[first - 1 : first].isspace():
            return False  # "of the .NET platform"
        unspaced = _UNSPACED.match(text, end)
        return unspaced is not None and _lacks_space(
            _last_words(text, start, first)[1], stop, capital=text[end].isupper()
        )
    before, word = _last_words(text, start, first)
    if first - start < _LONGEST_NUMBER:
        number = _ITEM_NUMBER_AND_STOP.match(text, start)
        if number and number.end() == first:
            return False
    following = _WORD_AFTER.match(text, end)
    after, dot = (to_nfc(following[1]), following[2]) if following else ("", "")
    if after[:1].islower() and (_goes_on(word, stop, trailer) or _DASH.match(text, end)):
        return False
    if word in _UNITS and before[-1:].isdigit() and after[:1].isupper() and not dot:
        return True  # "The hill is 300 m. Walkers need an hour."
    return stop != "." or not _is_abbreviation(before, word, after, initial=dot == ".")


def _is_inside_brackets(text: str, start: int, stop: int) -> bool:
    """Whether a stop stands inside East Asian brackets, as in a title: 《摔跤吧！爸爸》."""
    first = max(start, stop - _LONGEST_TITLE)
    opened = max(text.rfind(mark, first, stop) for mark in _OPENING)
    if opened < 0:
        return False
    partner = _CLOSING[_OPENING.index(text[opened])]
    closed = text.find(partner, opened, stop + _LONGEST_TITLE)
    # A stop right before the closing bracket ends the quotation: its trailer has the bracket.
    return closed > stop + 1


def _last_words(text: str, start: int, end: int) -> tuple[str, str]:
    """The last two words before `end`, empty where the sentence has none."""
    words = ["", "", *to_nfc(text[max(start, end - _LONGEST_WORD) : end]).split()]
    return words[-2].lower().lstrip(_OPENERS), words[-1].lstrip(_OPENERS)


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
    lower = _without_elision(word.lower())
    if _INITIAL.fullmatch(before):
        lower = before + lower if before + lower in ABBREVIATIONS else lower
    lower_after = after.lower()
    number, small = after[:1].isdigit(), after[:1].islower()
    if lower in NEVER_SENTENCE_FINAL:
        return True
    numbered = lower in BEFORE_NUMBER or _STREET.fullmatch(lower)
    if numbered and (number or (len(after) > 1 and _ROMAN.fullmatch(after))):
        return True
    if lower in BEFORE_NUMBER_OR_SMALL:
        return number or small or (word.islower() and lower_after not in SENTENCE_STARTERS)
    if lower in MONTHS:
        return number or small
    if lower in ENUMERATION_ENDS:
        return small
    if lower in RARELY_SENTENCE_FINAL or _DOTTED.fullmatch(word):
        return small or (initial and len(after) == 1) or lower_after not in SENTENCE_STARTERS
    if (number or (small and lower_after not in SENTENCE_STARTERS)) and _NO_VOWEL.fullmatch(word):
        return True
    if small and _ROMAN.fullmatch(word):
        return True
    day = word.isdecimal() and len(word) <= 2
    return day and (lower_after in AFTER_ORDINAL or before in GERMAN_ARTICLES)


_UNITS: Final = frozenset({"m", "g", "l", "s"})
_ELISION: Final = re.compile(r"[^\W\d_]{1,5}['’]")
_STREET: Final = re.compile(r"[^\W\d_]{3,}str")
"""A German street: "Goethestr. 5"."""


def _without_elision(word: str) -> str:
    """An abbreviation without the article before it: "art" of "l'art"; else `word`."""
    rest = _ELISION.sub("", word, count=1)
    return rest if rest in ABBREVIATIONS else word


# A fast path for most stops: those between a word that is no abbreviation and a blank.

_Next = Literal["unclear", "capital", "any"]

# The last parts of abbreviations that may be written with a blank: "eks" of "f. eks.".
_ENDINGS: Final = frozenset(word[2:] for word in ABBREVIATIONS if word[1:2] == ".")


def _clearly_ends(text: str, start: int, first: int, stop: int) -> bool:
    """Whether a sentence ends with the stop `first:stop` before a single blank, by its word."""
    after = text[stop + 1 : stop + 2]
    if not after or text[stop] != " ":
        return False
    blank = text.rfind(" ", start, first)
    word_start = start if blank < 0 else blank + 1
    following = _may_follow(text[word_start:first], text[first:stop])
    if following == "any":
        return not after.isspace() and after not in "—–"
    return following == "capital" and after.isupper()


def _may_follow(word: str, stop: str) -> _Next:
    """What may stand behind a word, its stop and a blank for a sentence to end there.

    capital: a capital letter; any: anything but a dash or white space; unclear: further rules
    decide.
    """
    if stop == ".":
        return _AFTER_FULL_STOP[word]
    if len(stop) == 1:
        return ("any" if word.islower() else "capital") if stop in "?!" else "unclear"
    return "capital" if stop.isascii() and _AFTER_FULL_STOP[word] != "unclear" else "unclear"


def _may_follow_full_stop(piece: str) -> _Next:
    word = to_nfc(piece.lstrip(_OPENERS))
    if not word or len(piece) >= _LONGEST_WORD or piece.split() != [piece]:
        return "unclear"
    if _DOTTED.fullmatch(word) or _IS_ITEM_NUMBER.fullmatch(word):
        return "unclear"
    lower = _without_elision(word.lower())
    if lower in ABBREVIATIONS or lower in _ENDINGS or _STREET.fullmatch(lower):
        return "unclear"
    return "capital" if _NO_VOWEL.fullmatch(word) or _ROMAN.fullmatch(word) else "any"


_AFTER_FULL_STOP: Final = WordCache(_may_follow_full_stop)
