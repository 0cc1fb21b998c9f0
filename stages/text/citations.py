"""Citation markers of a response, and the retrieved contexts that they point to.

These are markers, with numbers that count the contexts from 1:

- `[1]`, `[1, 2]`, `[1][2]`, `[1-3]`, `[Doc 2]`, `[Source 2]`, `【1†source】`, `<sup>1</sup>`;
- `Doc 2` and `(2)`, where there is a context of that number; `(2)` only behind a statement, not
  where it begins an item (`(2) Paris`), in a formula or behind a number;
- superscript digits that are no exponent;
- footnotes `[^1]`, whose definition `[^1]: ...` is a line of its own;
- a URL, alone or in a Markdown link, that also stands in a context.

A number of four digits is a year, and a list with 0 an interval. Code holds no citations. Where a
label has a definition, its URL or else its number counts before the label itself.

All patterns are bounded, so that the time is linear in the length of the text.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, islice
from typing import Final, NamedTuple

from claimflow.stages.text.locate import source_sentences
from claimflow.stages.text.sentences import Span, split_sentences

MOST_CITATIONS: Final = 20
"""How many citations of one claim count, the first ones: a judge is asked about each."""


class Mark(NamedTuple):
    """One citation: its marker, the context that it points to, and where the marker stands.

    `passage` counts from 0 and is None where there is no such context. `start:end` are characters
    of the text. A marker of several numbers is several marks at one place: `[1, 2]` is `[1]` and
    `[2]`.
    """

    marker: str
    passage: int | None
    start: int
    end: int


@dataclass(frozen=True)
class MarkedText:
    """A text without markers, definitions and fenced code, and the marks that it had.

    Markers that are words of a sentence (`Doc 2`, the text of a link) stay. `places` has for each
    mark the position in `text` of its marker, and `cuts` what was taken out of the original.
    """

    text: str
    marks: list[Mark]
    places: list[int]
    cuts: list[Span]

    def original(self, start: int, end: int) -> Span:
        """Where the characters `start:end` of `text`, at least one, are in the original."""
        places, removed = self._removed
        first, last = (place + removed[bisect_right(places, place)] for place in (start, end - 1))
        return Span(first, last + 1)

    @cached_property
    def _removed(self) -> tuple[list[int], list[int]]:
        """Where in `text` each cut was, and how many characters the first cuts took out."""
        removed = [0, *accumulate(cut.end - cut.start for cut in self.cuts)]
        places = [cut.start - before for cut, before in zip(self.cuts, removed, strict=False)]
        return places, removed


def find_marks(text: str, contexts: Sequence[str] | None) -> MarkedText:
    """The citations of a text in their order, and the text without them.

    None are contexts that are not known: any number may then be that of one, and no URL is.
    """
    return _find(text, _Contexts(contexts))


def cited_by(
    claims: Sequence[str],
    response: str,
    contexts: Sequence[str],
    starts: Sequence[int | None] | None = None,
) -> list[list[Mark]]:
    """For each claim of `response` the citations of the sentence that it comes from.

    A marker belongs to the sentence that it stands in or directly behind, as in ALCE (Gao et al.
    2023, https://arxiv.org/abs/2305.14627). The sentence of a claim is the one in which it starts
    (`starts` has the place of each in the response), else the one that shares most of its words; a
    claim of several sentences comes from several. Of several markers that point to one context the
    first counts.
    """
    of = _Contexts(contexts)
    marked = _find(response, of)
    if not marked.marks:
        return [[] for _ in claims]
    by_sentence = _by_sentence(marked)
    # Claims may still have their markers, whose numbers are no words of the sentence.
    bare = [_find(claim, of).text for claim in claims]
    parts = [[claim[start:end] for start, end in split_sentences(claim)] for claim in bare]
    sources = iter(source_sentences([part for some in parts for part in some], marked.text))
    places = _sentence_places(marked, starts or [None] * len(claims))
    found = []
    for some, place in zip(parts, places, strict=True):
        spans = [span.start for span in islice(sources, len(some)) if span is not None]
        if place is not None and len(some) <= 1:
            spans = [place]
        marks = (mark for start in spans for mark in by_sentence.get(start, ()))
        found.append(_first_of_each(marks))
    return found


def _sentence_places(marked: MarkedText, starts: Sequence[int | None]) -> list[int | None]:
    """Where in the text without markers the sentence begins that holds each place of the original.

    None for a place before the first sentence, and for None.
    """
    sentences = [span.start for span in split_sentences(marked.text)]
    original = [marked.original(start, start + 1).start for start in sentences]
    found = (None if start is None else bisect_right(original, start) - 1 for start in starts)
    return [None if number is None or number < 0 else sentences[number] for number in found]


def _by_sentence(marked: MarkedText) -> dict[int, list[Mark]]:
    """The citations of each sentence that has some, by where it begins."""
    text, sentences = marked.text, split_sentences(marked.text)
    starts = [span.start for span in sentences]
    found: dict[int, list[Mark]] = {}
    for mark, place in zip(marked.marks, marked.places, strict=True):
        # The last sentence that begins before the marker, which stands in it or behind it,
        number = bisect_left(starts, place) - 1
        if number + 1 < len(starts):
            behind = "\n" if number < 0 else text[sentences[number].end : place]
            if "\n" in behind and "\n" not in text[place : starts[number + 1]]:
                number += 1  # or the next one, where the marker begins a line of text.
        if number >= 0:
            found.setdefault(starts[number], []).append(mark)
    return {start: _first_of_each(marks) for start, marks in found.items()}


def _first_of_each(marks: Iterable[Mark]) -> list[Mark]:
    """The first mark of each context and each marker that points to none, `MOST_CITATIONS`."""
    found: dict[int | str, Mark] = {}
    for mark in marks:
        found.setdefault(mark.marker if mark.passage is None else mark.passage, mark)
    return list(found.values())[:MOST_CITATIONS]


# Patterns. No repetition is without a bound, or it is possessive.

_NAME: Final = r"(?:doc(?:ument)?|source|passage|context|ref(?:erence)?)s?\.?:?[ \u00a0_#]?"
_NUMBER: Final = r"[0-9]{1,3}(?![0-9])"
_NEXT: Final = rf"[ ]?(?:[,;&–—-]|\band\b)[ ]?(?:{_NAME})?{_NUMBER}"
_NUMBERS: Final = rf"(?:{_NAME})?{_NUMBER}(?:{_NEXT}){{0,30}}"
_URL_CHARACTER: Final = r"[^\s<>\"'`()\[\]{}|\\^]"
_URL: Final = rf"https?://(?:{_URL_CHARACTER}|\({_URL_CHARACTER}{{0,200}}\)){{1,2000}}+"
_SUPERSCRIPTS: Final = "⁰¹²³⁴⁵⁶⁷⁸⁹"

_MARKER: Final = re.compile(
    "|".join(
        (
            rf"(?<!!)\[(?P<link>[^\[\]\n]{{0,200}})\]\([ ]?<?(?P<target>{_URL})[^()\n]{{0,200}}\)",
            r"\[\^(?P<footnote>[^\[\]\s^]{1,40})\]",
            rf"(?<!!)[\[［【][ ]?(?P<square>{_NUMBERS})[ ]?[\]］】]",
            r"【(?P<dagger>[0-9]{1,3})†[^【】\n]{0,100}】",
            rf"\((?P<round>{_NUMBERS})\)",
            rf"<sup>\[?(?P<html>{_NUMBERS})\]?</sup>",
            rf"(?P<superscript>[{_SUPERSCRIPTS}]{{1,6}}(?:[,⁻][{_SUPERSCRIPTS}]{{1,6}}){{0,10}})",
            rf"(?P<url>{_URL})",
            rf"\b(?P<bare>(?:doc(?:ument)?|source|passage)[ \u00a0]{_NUMBER})\b",
        )
    ),
    re.IGNORECASE,
)
_TO_DIGITS: Final = str.maketrans(_SUPERSCRIPTS + "⁻", "0123456789-")
_PARTS: Final = re.compile(r"[0-9]{1,3}|[–—-]")
_LINKED: Final = re.compile(_NUMBERS, re.IGNORECASE)
_DEFINED: Final = re.compile(rf"\W{{0,3}}({_NAME}{_NUMBER})\b", re.IGNORECASE)
_URLS: Final = re.compile(_URL, re.IGNORECASE)
_INLINE_CODE: Final = re.compile(r"`[^`\n]{1,1000}`")
_LINE: Final = re.compile(r"[^\n]*+\n?")
_FENCE: Final = re.compile(r"[ \t]{0,40}(```|~~~)")
# A line "[1]: ..." or "[^1]: ...", or one of a list of sources, "[1] https://...".
_DEFINITION: Final = re.compile(
    r"[ ]{0,3}\[(\^?)([^\[\]\n^]{1,40})\](?::|[ ]{1,3}(?=<?https?://))([^\n]{0,2000})"
)

_OPERATORS: Final = frozenset("=+^<×÷−∈∉")
_INTERVALS: Final = frozenset({"interval", "range"})
_NO_STATEMENT: Final = frozenset(
    "and or to one two three four five six seven eight nine ten eleven twelve first second third "
    "fourth fifth then next finally case condition eq equation figure formula item option part "
    "point rule section step steps table".split()
)
"""Words behind which a number in parentheses belongs to them, as in "step (2)" or "two (2)"."""

_UNITS: Final = frozenset("in mi yd acre sin cos tan log exp".split())
"""Words behind which superscript digits are an exponent, beside those of consonants: "km"."""

_LONG_UNITS: Final = re.compile(r"[b-df-hj-np-tv-zµ]{1,3}", re.IGNORECASE)
_YEAR: Final = re.compile(r"(?<![0-9.,])(?:1[0-9]|20)[0-9]{2}$")
_BEHIND_ROUND: Final = re.compile(r"$|[ ]{0,3}(?:[\n.,;:!?…)]|[(\[][0-9])", re.MULTILINE)


_HIGHEST: Final = 999


class _Contexts:
    """The contexts of a sample: how many there are, and which have a URL."""

    def __init__(self, contexts: Sequence[str] | None) -> None:
        self.count = _HIGHEST if contexts is None else len(contexts)
        self._texts = contexts or ()

    @cached_property
    def _by_url(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for number, text in enumerate(self._texts):
            for url in dict.fromkeys(_bare(match[0]) for match in _URLS.finditer(text)):
                found.setdefault(url, []).append(number)
        return found

    def of_url(self, url: str) -> list[int]:
        """The contexts that a URL stands in."""
        return self._by_url.get(_bare(url), [])

    def passage(self, number: int) -> int | None:
        """The index of the context that has a number, which counts from 1."""
        return number - 1 if 1 <= number <= self.count else None


def _bare(url: str) -> str:
    """A URL without the punctuation of the sentence around it."""
    return url.rstrip(".,;:!?*_…/")


def _find(text: str, contexts: _Contexts) -> MarkedText:
    blocks, definitions = _blocks(text)
    code = [Span(*match.span()) for match in _INLINE_CODE.finditer(text)]
    skipped = _merged([*blocks, *code])
    skips = [span.start for span in skipped]
    marks: list[Mark] = []
    ends: list[int] = []
    cuts = blocks
    for match in _MARKER.finditer(text):
        start, end = match.span()
        before = bisect_left(skips, end) - 1
        if before >= 0 and skipped[before].end > start:
            continue
        named = _named(match, text, contexts, definitions)
        found = [Mark(marker, passage, start, end) for marker, passage in named]
        if found:
            marks += found
            ends += [end] * len(found)
            if match["bare"]:
                cuts.append(Span(end, end))
            elif not match["link"] or _LINKED.fullmatch(match["link"]):
                cuts.append(Span(_first_blank(text, start), end))
            else:
                cuts += [Span(start, match.start("link")), Span(match.end("link"), end)]
    cuts = _merged([_with_brackets(text, cut) for cut in _merged(cuts)])
    return MarkedText(_without(text, cuts), marks, _places(ends, cuts), cuts)


def _blocks(text: str) -> tuple[list[Span], dict[str, str]]:
    """The lines that are no statements, fenced code and definitions, and the definitions."""
    spans: list[Span] = []
    definitions: dict[str, str] = {}
    fence = None
    for match in _LINE.finditer(text):
        line = match[0]
        opened = _FENCE.match(line)
        if fence or opened:
            spans.append(Span(*match.span()))
            if not fence and opened:
                fence = opened[1]
            elif opened and opened[1] == fence:
                fence = None
        elif definition := _DEFINITION.match(line):
            spans.append(Span(*match.span()))
            definitions.setdefault(_label(definition[2]), definition[3])
    return spans, definitions


def _label(text: str) -> str:
    return text.strip().casefold()


def _named(
    match: re.Match[str], text: str, contexts: _Contexts, definitions: Mapping[str, str]
) -> Iterator[tuple[str, int | None]]:
    """The marker and the context of each citation of a match; none where it is no marker."""
    kind, start = match.lastgroup, match.start()
    if kind in ("url", "target"):
        url = _bare(match[kind])
        passages = contexts.of_url(url)
        yield from ((url, passage) for passage in passages)
        linked = None if passages or kind == "url" else _LINKED.fullmatch(match["link"])
        if linked:
            yield from _of_numbers(match, _numbers(linked[0]), contexts, definitions)
    elif kind == "footnote":
        yield from _of_label(match[0], match[kind], contexts, definitions)
    elif kind == "superscript":
        if not _is_exponent(text, start):
            numbers = _superscript_numbers(match[kind], contexts.count)
            yield from _of_numbers(match, numbers, contexts, definitions)
    elif kind is not None:
        numbers = _numbers(match[kind])
        within = all(contexts.passage(number) is not None for number in numbers)
        if {
            "square": _is_no_interval(text, start, numbers),
            "dagger": True,
            "html": not _is_exponent(text, start),
            "round": within
            and (match[kind][0].isalpha() or _is_behind_statement(text, start, match.end())),
            "bare": within,
        }[kind]:
            yield from _of_numbers(match, numbers, contexts, definitions)


def _of_numbers(
    match: re.Match[str], numbers: list[int], contexts: _Contexts, definitions: Mapping[str, str]
) -> Iterator[tuple[str, int | None]]:
    for number in numbers:
        marker = match[0] if len(numbers) == 1 and not match["link"] else f"[{number}]"
        yield from _of_label(marker, str(number), contexts, definitions)


def _of_label(
    marker: str, label: str, contexts: _Contexts, definitions: Mapping[str, str]
) -> Iterator[tuple[str, int | None]]:
    """The contexts that a label points to: by its definition, else as a number."""
    definition = definitions.get(_label(label)) if definitions else None
    if definition:
        passages = [p for url in _URLS.findall(definition) for p in contexts.of_url(url)]
        if passages:
            yield from ((marker, passage) for passage in dict.fromkeys(passages))
            return
        numbered = _DEFINED.match(definition)
        label = str(_numbers(numbered[1])[0]) if numbered else label
    is_number = label.isascii() and label.isdecimal() and len(label) <= 3
    yield marker, contexts.passage(int(label)) if is_number else None


def _numbers(text: str) -> list[int]:
    """The numbers that a marker names; `1-3` names three, and a long range its first ones."""
    numbers: list[int] = []
    begun = False
    for part in _PARTS.findall(text):
        if not part.isdecimal():
            begun = bool(numbers)
            continue
        number = int(part)
        if begun:
            numbers += range(numbers[-1] + 1, min(number, numbers[-1] + MOST_CITATIONS))
        numbers.append(number)
        begun = False
    return numbers


def _superscript_numbers(text: str, count: int) -> list[int]:
    """As `_numbers`; digits that are together no context's number are one number each."""
    digits = text.translate(_TO_DIGITS)
    if digits.isdecimal() and "0" not in digits and int(digits) > count:
        return [int(digit) for digit in digits]
    return _numbers(digits)


def _is_no_interval(text: str, start: int, numbers: Sequence[int]) -> bool:
    """Whether numbers in square brackets are no interval, as in "x ∈ [0, 1]"."""
    before, word = _before(text, start)
    several = len(numbers) > 1
    interval = before[-1:] in _OPERATORS or word.casefold() in _INTERVALS
    return not (several and (0 in numbers or interval))


def _is_exponent(text: str, start: int) -> bool:
    """Whether superscript digits at `start` are an exponent, as in "10²", "km²" or "x²"."""
    before, word = _before(text, start)
    if not before or text[start - 1].isspace() or _YEAR.search(before):
        return False
    last = before[-1]
    if last.isdecimal() or last in _OPERATORS:
        return True
    letters = len(word) == 1 or word.casefold() in _UNITS or _LONG_UNITS.fullmatch(word) is not None
    return last.isalpha() and letters


def _is_behind_statement(text: str, start: int, end: int) -> bool:
    """Whether a number in parentheses stands behind a statement, and no word follows it."""
    before, word = _before(text, start)
    if not before or not text[start - 1].isspace() or not _BEHIND_ROUND.match(text, end):
        return False
    if before[-1] in _OPERATORS or (before[-1].isdecimal() and not _YEAR.search(before)):
        return False
    return word.casefold() not in _NO_STATEMENT and not (len(word) == 1 and word.islower())


_REACH: Final = 40
"""How many characters before a marker are examined."""


def _before(text: str, start: int) -> tuple[str, str]:
    """What stands before `start` on its line, without blanks behind it, and its last word."""
    before = text[max(0, start - _REACH) : start].rpartition("\n")[2].rstrip()
    first = len(before)
    while first and before[first - 1].isalpha():
        first -= 1
    return before, before[first:]


def _with_brackets(text: str, cut: Span) -> Span:
    """A cut, or what it is in brackets together with these: `([1])`."""
    if text[cut.start - 1 : cut.start] == "(" and text[cut.end : cut.end + 1] == ")":
        return Span(_first_blank(text, cut.start - 1), cut.end + 1)
    return cut


def _first_blank(text: str, start: int) -> int:
    """Where the blanks before a marker begin."""
    first = start
    while first and text[first - 1] in " \u00a0":
        first -= 1
    return first


def _merged(spans: Sequence[Span]) -> list[Span]:
    """Spans in order that do not overlap and cover the same characters."""
    merged: list[Span] = []
    for span in sorted(spans):
        if merged and span.start <= merged[-1].end:
            merged[-1] = Span(merged[-1].start, max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return merged


def _without(text: str, cuts: Sequence[Span]) -> str:
    starts = [0, *(cut.end for cut in cuts)]
    ends = [*(cut.start for cut in cuts), len(text)]
    return "".join(text[start:end] for start, end in zip(starts, ends, strict=True))


def _places(ends: Sequence[int], cuts: Sequence[Span]) -> list[int]:
    """Where the cut that ends at or behind each of `ends` is in the text without cuts."""
    starts = [cut.start for cut in cuts]
    stops = [cut.end for cut in cuts]
    lengths = [0, *accumulate(cut.end - cut.start for cut in cuts)]
    numbers = (bisect_left(stops, end) for end in ends)
    return [starts[number] - lengths[number] for number in numbers]
