"""Sentences as continuous-eval 0.3 finds them: the decisions of NLTK's Punkt for English.

Kiss and Strunk, "Unsupervised multilingual sentence boundary detection", 2006, as NLTK 3.9
carries it out. What Punkt learnt from its training texts is replaced by short word lists.
"""

import re
import string
from collections.abc import Iterator
from typing import Final

from claimflow.stages.text.continuous_eval_words import ABBREVIATIONS, FIRST_WORDS, LOWER_CASE
from claimflow.stages.text.sentences import Span

_PARTS: Final = r"[)\";}\]*:@'({\[?!]"
_ROW: Final = r"(?:-{2,}|\.{2,}|(?:\.\s){2,}\.)"
_STOP: Final = re.compile(rf"[.?!](?=(?P<after>{_PARTS}|\s+(?P<next>\S+)))")
_TOKEN: Final = re.compile(
    rf"{_ROW}"
    rf"|[^\s(\"`{{\[:;&#*@)}}\]\-,]\S*?(?=\s|$|{_PARTS}|{_ROW}|,(?=$|\s|{_PARTS}|{_ROW}))"
    r"|\S"
)
_CLOSERS: Final = re.compile(r"[\"')\]}]+?(?:\s+|(?=--)|$)", re.MULTILINE)
_MARKS: Final = frozenset(";:,.!?")
_ELLIPSIS: Final = re.compile(r"\.\.+$")
_INITIAL: Final = re.compile(r"[^\W\d]\.$")
_NUMBER: Final = re.compile(r"-?[.,]?\d[\d,.-]*$")


def punkt_sentences(text: str) -> list[Span]:
    """Spans of the sentences of `text`, in order; none for white space alone.

    White space between sentences and at the end belongs to none, white space before the
    first one to the first.
    """
    spans = []
    moved = 0
    slices = list(_slices(text))
    for (start, end), following in zip(slices, [*slices[1:], None], strict=True):
        first, last = start + moved, end
        moved = 0
        closers = following and _CLOSERS.match(text, *following)
        if closers:
            # Closing marks at the head of the next slice belong to this sentence.
            moved = closers.end() - closers.start()
            last = closers.start() + len(closers.group().rstrip())
        if first < last:
            spans.append(Span(first, last))
    return spans


def _slices(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    for word, stop in _stops(text):
        if _is_break(text, word, stop):
            yield start, stop.end()
            start = stop.end() if stop["next"] is None else stop.start("next")
    yield start, len(text.rstrip())


def _stops(text: str) -> Iterator[tuple[int, re.Match[str]]]:
    """The stops that may end a sentence, each with the start of the word before it.

    Of several in one word only the last counts.
    """
    word = before = 0
    last: tuple[int, re.Match[str]] | None = None
    for stop in _STOP.finditer(text):
        blank = max(text.rfind(mark, before, stop.start()) for mark in string.whitespace)
        # A blank at the very start of the text goes unseen.
        word = blank + 1 if blank > before else word
        if last and word >= before:
            yield last
        last, before = (word, stop), stop.start()
    if last:
        yield last


def _is_break(text: str, word: int, stop: re.Match[str]) -> bool:
    """Whether any token of the word, or of what follows its stop, ends a sentence.

    That the token behind the stop can decide is how the reference works: "Dr. Who?!" is cut
    behind "Dr.".
    """
    if stop.group() != ".":
        return True
    before = text[word : stop.end()]
    stem = before[:-1]
    if stem.isalpha() and len(stem) > 1 and stem.lower() not in ABBREVIATIONS:
        return True
    tokens = [
        token for line in f"{before}{stop['after']}".split("\n") for token in _TOKEN.findall(line)
    ]
    return any(map(_ends_sentence, tokens, tokens[1:]))


def _ends_sentence(token: str, following: str) -> bool:
    if token in (".", "?", "!"):
        return True
    if not token.endswith("."):
        return False
    if _ELLIPSIS.match(token):
        return _is_first_word(following)
    if _is_abbreviation(token[:-1].lower()):
        return _is_first_word(following)
    initial = _INITIAL.match(token)
    if initial or _NUMBER.match(token):
        return _may_begin(following, after_initial=bool(initial))
    return True


def _is_abbreviation(stem: str) -> bool:
    return stem in ABBREVIATIONS or stem.rpartition("-")[2] in ABBREVIATIONS


def _is_first_word(token: str) -> bool:
    return token[0].isupper() and _type(token) in FIRST_WORDS


def _may_begin(token: str, *, after_initial: bool) -> bool:
    """Whether a sentence may begin with `token` behind an initial or a number."""
    if token in _MARKS or token[0].islower():
        return False
    return not (after_initial and token[0].isupper() and _type(token) not in LOWER_CASE)


def _type(token: str) -> str:
    """The token in lower case, without a last stop that would end a sentence."""
    word = token.lower()
    ends = len(word) > 1 and word.endswith(".") and not word.endswith("..")
    return word[:-1] if ends and not _is_abbreviation(word[:-1]) else word
