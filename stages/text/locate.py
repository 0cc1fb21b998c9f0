"""Locate a quotation in a text, and the sentence that a claim comes from."""

from collections.abc import Sequence
from typing import Final

import regex

from claimflow.stages.text.sentences import Span, split_sentences
from claimflow.stages.text.unicode_words import to_nfc, unicode_words
from claimflow.stages.text.word_lists import STOP_WORDS

_WORD: Final = regex.compile(r"(?V1)[\p{L}\p{N}_][\p{L}\p{N}\p{M}_]*+")


def find_quote(quote: str, text: str) -> Span | None:
    """The first place of `quote` in `text`; if there is none, that of its words in order.

    Words are compared without case, without what stands between them, and in NFC: models
    straighten quotation marks, fold line breaks and compose letters when they quote.
    """
    quote = quote.strip()
    if not quote:
        return None
    start = text.find(quote)
    if start >= 0:
        return Span(start, start + len(quote))
    words = _folded_words(quote)
    in_text = _folded_words(text)
    place = in_text.find(words) if words.strip() else -1
    if place < 0:
        return None
    first = in_text.count("\n", 0, place)
    spans = [match.span() for match in _WORD.finditer(text)]
    return Span(spans[first][0], spans[first + words.count("\n") - 2][1])


def source_sentences(claims: Sequence[str], text: str) -> list[Span | None]:
    """For each claim the sentence of `text` that shares most of its content words.

    None for a claim that shares none. Of equals the one of which most is in the claim, then the
    first: "Ann Lee left Rome" comes from "She left Rome", not from "Ann Lee was born in Oslo".
    """
    sentences = [(span, _content(text[span.start : span.end])) for span in split_sentences(text)]
    return [_closest(_content(claim), sentences) for claim in claims]


def _folded_words(text: str) -> str:
    """The words of a text without case, each on a line of its own.

    So a plain search, whose time is linear, finds the words of one text in those of another.
    """
    return to_nfc("\n".join(["", *_WORD.findall(text), ""])).casefold()


def _closest(words: set[str], sentences: list[tuple[Span, set[str]]]) -> Span | None:
    best, most = None, (0, 0.0)
    for span, content in sentences:
        shared = len(words & content)
        if shared and (shared, shared / len(content)) > most:
            best, most = span, (shared, shared / len(content))
    return best


def _content(text: str) -> set[str]:
    return set(unicode_words(text)) - STOP_WORDS
