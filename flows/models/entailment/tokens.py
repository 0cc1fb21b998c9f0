"""Tokens of a text: words, numbers and names of any language in a normal form."""

import re
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from claimflow.flows.models.entailment.word_lists import (
    CALENDAR,
    NEGATIONS,
    NUMBERS,
    REMEMBERED,
    SCALES,
    STOP,
    UNITS,
    fold,
)

Kind = Literal["stop", "word", "name", "number", "calendar", "unit"]

_CJK: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_TOKEN: Final = re.compile(
    r"(?P<number>\d{1,30}(?:[.,]\d{1,30}){0,9})(?:(?:st|nd|rd|th|s|er|e)\b)?"
    r"|(?P<sign>[%$€£¥₹])"
    rf"|(?P<cjk>[{_CJK}])"
    rf"|(?P<word>(?:(?![{_CJK}])[^\W\d_]){{1,64}})(?P<contracted>['’]\w{{1,8}})?"
)
_SIGNS: Final = dict(zip("%$€£¥₹", "percent dollar euro pound yen rupee".split(), strict=True))
_BRACKETS: Final = frozenset("lrb rrb lsb rsb lcb rcb".split())
"""What is left of brackets in texts that were tokenised for a treebank."""


class Token(NamedTuple):
    """One token: `form` as written in lower case, `key` by which equal tokens are known.

    Inflections of a word share a key, and so do `1,000`, `1000` and `thousand`.
    `start` and `end` are characters of the text.
    """

    key: str
    form: str
    kind: Kind
    start: int
    end: int


def is_content(token: Token) -> bool:
    """Whether a token says something by itself."""
    return token.kind != "stop"


def tokenize(text: str, start: int = 0, end: int | None = None) -> list[Token]:
    """Tokens of `text[start:end]` in order; punctuation is left out."""
    tokens: list[Token] = []
    for match in _TOKEN.finditer(text, start, len(text) if end is None else end):
        kind, written = match.lastgroup, match[0]
        begin, stop = match.span()
        if kind == "number":
            tokens.append(Token(_number(match["number"]), written, "number", begin, stop))
        elif kind == "sign":
            tokens.append(Token(_SIGNS[written], written, "unit", begin, stop))
        elif kind == "cjk":
            tokens.append(Token(written, written, _kind(written), begin, stop))
        else:
            _add_word(tokens, text, match)
    return tokens


def _add_word(tokens: list[Token], text: str, match: re.Match[str]) -> None:
    form = fold(match["word"])
    start, end = match.span()
    kind = _kind(form)
    if form in _BRACKETS:
        return
    if form[-1] == "n" and (match["contracted"] or "").lower().endswith("t"):
        tokens.append(Token(form[:-1] or form, form, "stop", start, end))
        tokens.append(Token("n't", "n't", "stop", start, end))
    elif form in SCALES and tokens and tokens[-1].kind == "number":
        scaled = _key_of(float(tokens[-1].key[1:]) * SCALES[form])
        tokens[-1] = tokens[-1]._replace(key=scaled, end=end)
    elif kind == "number":
        tokens.append(Token(_key_of(NUMBERS[form]), form, kind, start, end))
    else:
        if kind == "word" and text[start].isupper() and not _opens(text, start):
            kind = "name"
        tokens.append(Token(_key(form), form, kind, start, end))


def _opens(text: str, start: int) -> bool:
    """Whether the word at `start` opens a sentence, so that its capital says nothing."""
    before = text[max(0, start - 3) : start].rstrip(" ")
    return not before.strip() or before[-1] in '.!?:"“\n'


@lru_cache(maxsize=REMEMBERED)
def _kind(form: str) -> Kind:
    if form in STOP or form in NEGATIONS:
        return "stop"
    if form in NUMBERS:
        return "number"
    if form in UNITS:
        return "unit"
    return "calendar" if form in CALENDAR else "word"


@lru_cache(maxsize=REMEMBERED)
def _key(form: str) -> str:
    return UNITS.get(form) or CALENDAR.get(form) or stem(form)


def stem(word: str) -> str:
    """`word` without the commonest English endings, so that its inflections are equal."""
    if len(word) <= 3 or not word.isascii():
        return word
    word = _singular(word)
    for ending in ("ing", "ed", "ly"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            if word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    return word[:-1] if len(word) > 3 and word[-1] in "ey" else word


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith("es") and word[-3] in "sxzh":
        return word[:-2]
    return word[:-1] if word.endswith("s") and word[-2] not in "sui" else word


@lru_cache(maxsize=REMEMBERED)
def _number(digits: str) -> str:
    """Key of a number: `1,234.5` is 1234.5, `3,5` is 3.5, `1.234.567` is 1234567."""
    groups = re.split(r"[.,]", digits)
    if len(groups) == 1:
        return _key_of(float(digits))
    last = digits[-len(groups[-1]) - 1]
    thousands = len(groups[0]) <= 3 and all(len(group) == 3 for group in groups[1:])
    if thousands and (len(groups) > 2 or last == ","):
        return _key_of(float("".join(groups)))
    return _key_of(float("".join(groups[:-1]) + "." + groups[-1]))


def _key_of(value: float) -> str:
    return f"#{value:.10g}"
