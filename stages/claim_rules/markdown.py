"""Markdown that is more than a line: code between fences, tables, and lists with a stem."""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from claimflow.stages.claim_rules.clauses import first_finite_verb
from claimflow.stages.claim_rules.lexicon import ADJECTIVES, is_past_or_participle
from claimflow.stages.claim_rules.non_claims import (
    clause_of,
    is_english,
    is_imperative,
    is_plain_form,
)
from claimflow.stages.claim_rules.predicate_nominals import is_definite_group, may_be_plural, one_of
from claimflow.stages.claim_rules.tags import CLOSED_CLASS, FINITE
from claimflow.stages.claim_rules.tokens import MULTIPLICATION, capitalized, text_of
from claimflow.stages.text.sentences import Span, split_sentences

_FENCE: Final = re.compile(r"^[ \t]*(?:(```)[^`\n]*$|(~~~))", re.MULTILINE)


def code_blocks(text: str) -> list[Span]:
    """Code between fences of three backticks or tildes, with the fences; an open one runs on."""
    blocks: list[Span] = []
    opened: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opened is None:
            opened = fence
        elif opened.lastindex == fence.lastindex:
            end = text.find("\n", fence.end())
            blocks.append(_trimmed(text, opened.start(), len(text) if end < 0 else end))
            opened = None
    if opened is not None:
        blocks.append(_trimmed(text, opened.start(), len(text)))
    return blocks


def _trimmed(text: str, start: int, end: int) -> Span:
    """The span without the white space at its ends."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return Span(start, end)


# Tables.

_LINE: Final = re.compile(r"^[^\n|]*+\|[^\n]*+", re.MULTILINE)
_BAR: Final = re.compile(r"(?<!\\)\|")
_SEPARATOR: Final = re.compile(r":?-+:?")
_NO_VALUE: Final = frozenset(
    ("", "-", "–", "—", "n/a", "na", "none", "null", "?", "...", "…", "tbd")
)
_MOST_COLUMNS: Final = 100
_LONGEST_NAME: Final = 200
"""Columns of a table, and characters of the name of a column or a row, which sentences repeat."""

_ORDINAL_HEADERS: Final = frozenset(("no", "no.", "nr", "nr.", "number", "s.no", "s/n", "id"))
_BREAK: Final = re.compile(r"<br ?/?>", re.IGNORECASE)


class TableRow(NamedTuple):
    """A row of the body of a table: its span, and its sentences with the spans of their cells.

    Each is a part of a sentence, such as "the Capital is Paris"; `about` is what they begin with,
    such as "For France, ".
    """

    span: Span
    about: str
    parts: list[tuple[Span, str]]


class Table(NamedTuple):
    """A table: the lines of its header and separator, which may be none, and of its body."""

    span: Span
    header: Span | None
    separator: Span | None
    rows: list[TableRow]


def find_tables(text: str) -> Iterator[Table]:
    """The tables of a text: a header above a separator of dashes, or lines between bars."""
    for lines in _adjacent(text):
        rule = next((i for i, line in enumerate(lines[:2]) if _is_separator(text, line)), None)
        if rule is None:
            bare = [line for line in lines if text[line.start] == text[line.end - 1] == "|"]
            if len(lines) < 2 or len(bare) < len(lines) or not _same_width(text, lines):
                continue
            yield Table(
                Span(lines[0].start, lines[-1].end), None, None, [_plain(text, x) for x in lines]
            )
            continue
        names = [_shown(text, cell) for cell in _cells(text, lines[0])] if rule else []
        named = any(names) and len(names) <= _MOST_COLUMNS
        named = named and all(len(name) <= _LONGEST_NAME for name in names)
        body = lines[rule + 1 :]
        yield Table(
            Span(lines[0].start, lines[-1].end),
            lines[0] if rule else None,
            lines[rule],
            [_row(text, line, names) if named else _plain(text, line) for line in body],
        )


def _adjacent(text: str) -> Iterator[list[Span]]:
    """Lines with a bar that follow each other, without the white space at their ends."""
    lines: list[Span] = []
    last = -2
    for match in _LINE.finditer(text):
        if lines and match.start() > last + 1:
            yield lines
            lines = []
        lines.append(_trimmed(text, *match.span()))
        last = match.end()
    if lines:
        yield lines


def _is_separator(text: str, line: Span) -> bool:
    cells = [text[cell.start : cell.end] for cell in _cells(text, line)]
    return bool(cells) and all(map(_SEPARATOR.fullmatch, cells))


def _same_width(text: str, lines: Iterable[Span]) -> bool:
    """Whether rows between bars have the same number of cells, at least two."""
    widths = {len(_cells(text, line)) for line in lines}
    return len(widths) == 1 and min(widths) > 1


def _cells(text: str, line: Span) -> list[Span]:
    """The cells of a row; a bar with a backslash before it is part of one."""
    start, end = line
    if text[start:end].startswith("|"):
        start += 1
    if end > start and text[end - 1] == "|" and text[end - 2 : end] != "\\|":
        end -= 1
    cells: list[Span] = []
    for bar in _BAR.finditer(text, start, end):
        cells.append(_trimmed(text, start, bar.start()))
        start = bar.end()
    return [*cells, _trimmed(text, start, end)]


def _shown(text: str, cell: Span) -> str:
    """What a cell says, on one line and without markup."""
    said = text[cell.start : cell.end].replace("\\|", "|")
    return without_markup(_BREAK.sub(", ", said)).strip()


def _row(text: str, line: Span, names: list[str]) -> TableRow:
    cells = _cells(text, line)
    said = [_shown(text, cell).removesuffix(".") for cell in cells]
    key = 0
    if len(names) > 2 and len(said) > 1 and said[0].isdecimal() and _is_ordinal(names[0]):
        key = 1
    if len(names) < 2 or len(said) > len(names) or len(said[key : key + 1][0]) > _LONGEST_NAME:
        return _plain(text, line)
    about = said[key] if said[key].casefold() not in _NO_VALUE else ""
    if about and not any(map(str.isalpha, about)) and any(map(str.isalpha, names[key])):
        about = f"{names[key]} {about}"
    parts = [
        (cell, f"the {_without_article(name) or 'value'} {_is_or_are(name)} {_quoted(value)}")
        for cell, value, name in list(zip(cells, said, names, strict=False))[key + 1 :]
        if value.casefold() not in _NO_VALUE
    ]
    return TableRow(line, f"For {about}, " if about else "", parts)


def _is_ordinal(name: str) -> bool:
    return not any(map(str.isalpha, name)) or name.casefold() in _ORDINAL_HEADERS


def _without_article(name: str) -> str:
    name = name.rstrip(": ")
    return name[4:] if name[:4].casefold() == "the " else name


def _is_or_are(name: str) -> str:
    last = re.sub(r"\([^()]{0,200}\)", "", name).rstrip(": ").casefold()
    plural = last.endswith("s") and not last.endswith(("ss", "us", "is", "ics"))
    return "are" if plural else "is"


def _quoted(value: str) -> str:
    """The value, in quotation marks where it is a sentence or several."""
    several = len(value) <= 1500 and len(split_sentences(value)) > 1
    return f"“{value}.”" if several else value


def _plain(text: str, line: Span) -> TableRow:
    """A row whose cells have no names: its cells in order."""
    said = [_shown(text, cell) for cell in _cells(text, line)]
    shown = ", ".join(value for value in said if value.casefold() not in _NO_VALUE)
    return TableRow(line, "", [(line, shown)] if any(map(str.isalnum, shown)) else [])


def row_sentences(row: TableRow, *, each: bool) -> Iterator[tuple[Span, str]]:
    """The sentences of a row: with `each` one for every cell, else one for all."""
    if each:
        for span, part in row.parts:
            yield span, _as_sentence(row.about + part)
    elif row.parts:
        *first, last = (part for _, part in row.parts)
        said = f"{', '.join(first)} and {last}" if first else last
        yield row.span, _as_sentence(row.about + said)


def _as_sentence(said: str) -> str:
    said = capitalized(said)
    return said if said.endswith((".", "!", "?", "”")) else said + "."


# Lists.

LIST_MARKER: Final = re.compile(r"[ \t]*(?:[-*+•‣⁃◦▪●–]|\(?\d{1,3}[.)]|\(?[a-zA-Z]\))[ \t]+")
_LONGEST_STEM: Final = 300
_FOLLOWING: Final = re.compile(r",?\s+(?:as follows|(?:the )?following)$", re.IGNORECASE)
_LINKING: Final = frozenset({"be", "have", "verb", "preposition"})
_BEFORE_PLAIN_FORM: Final = frozenset(("to", "they", "you", "we"))
_LINKING_WORDS: Final = frozenset("include includes included including contain contains".split())


def list_stem(sentence: str) -> str | None:
    """What the items of a list complete: "The benefits are" of "The benefits are:".

    None where it has no subject with a verb, or where an item could not follow it.
    """
    stem = sentence.strip(" \t*_").removesuffix(":").removesuffix("：").rstrip(" \t*_")
    if len(sentence) > _LONGEST_STEM:
        return None
    stem = without_markup(LIST_MARKER.sub("", stem, count=1))
    shorter = _FOLLOWING.sub("", stem)
    clause = clause_of(shorter)
    verbs = sum(token.tag in FINITE for token in clause)
    subordinate = sum(token.tag in ("relative", "subordinator") for token in clause)
    if not clause or not is_english([token.low for token in clause]):
        return None
    last = clause[-1]
    if last.low in ("include", "includes", "included") and len(clause) > 1:
        return shorter
    if not first_finite_verb(clause):
        return None
    if last.low in _BEFORE_PLAIN_FORM:
        return shorter
    if verbs <= subordinate:
        return None
    if last.tag == "modal":
        return shorter
    linking = last.tag in _LINKING or last.low in _LINKING_WORDS
    return shorter if linking and last.low not in ("this", "like", "below", "above") else None


def list_label(sentence: str) -> str:
    """What stands above a list, as it is, without markup and colon; empty where it is too long."""
    if len(sentence) > _LONGEST_STEM:
        return ""
    bare = without_markup(LIST_MARKER.sub("", sentence.strip(" \t*_#"), count=1))
    return bare.rstrip(" *_").removesuffix(":").removesuffix("：").strip(" *_")


def with_apposition(item: str) -> str:
    """An item that tells what its name is, as one phrase: "Rust: a language" is "Rust, a language".

    Any other item as it is.
    """
    found = _NAME_AND_KIND.match(item)
    if found is None:
        return item
    name, kind = found["name"], found["kind"]
    first = kind.split(None, 1)[0].casefold()
    told = first in ("a", "an", "the") or (found["mark"] != ":" and is_past_or_participle(first))
    whole = first_finite_verb(clause_of(name)) is not None
    return f"{name}, {kind[0].lower()}{kind[1:]}" if told and not whole else item


_NAME_AND_KIND: Final = re.compile(
    r"(?P<name>[^:.,;]{1,80}?)(?P<mark>:| [-–—])\s+(?P<kind>\S.*)", re.DOTALL
)


def joined(stem: str, item: str) -> str | None:
    """The sentence of a stem and a list item; None where they do not fit."""
    last = stem.rsplit(None, 1)[-1].casefold()
    word = re.match(r"[^\W\d_]+", item)
    first = word[0] if word else ""
    plain_form = is_plain_form(first.casefold())
    needs_plain_form = last in _BEFORE_PLAIN_FORM or CLOSED_CLASS.get(last) == "modal"
    if needs_plain_form != plain_form and (needs_plain_form or is_imperative(item)):
        return None
    governed = CLOSED_CLASS.get(last) == "preposition" and last not in ("as", "including")
    if governed and CLOSED_CLASS.get(first.casefold()) == "preposition":
        return None
    common = plain_form if needs_plain_form else _is_common(first.casefold())
    if (common and first[1:].islower()) or (common and len(first) == 1):
        item = item[0].lower() + item[1:]
    item = item.rstrip(" .;,")
    return _one_of_several(stem, item) or f"{capitalized(f'{stem} {item}')}."


def _one_of_several(stem: str, item: str) -> str | None:
    """ "Ann Lee is one of the founders" of "The founders are"; None for what is no name."""
    *group, be = clause_of(stem)
    if be.low not in ("are", "were") or not is_definite_group(tuple(group)):
        return None
    name, comma, told = item.partition(", ")
    parts = _NAME_PART.findall(name)
    words = [word for word in parts if word not in _SMALL_WORDS]
    named = len(words) > 1 and all(word[0].isupper() for word in words)
    # "Blood Clots" may be a plural, "Music for the Masses" is a title.
    if not named or (may_be_plural(words[-1]) and words == parts):
        return None
    verb = "is" if be.low == "are" else "was"
    return f"{name}{f', {told},' if comma else ''} {verb} {text_of(one_of(tuple(group)))}."


_NAME_PART: Final = re.compile(r"[^\W\d_][\w'’.]*(?![^(]*\))")
_SMALL_WORDS: Final = frozenset("of the and in for to on at by de la le von van der".split())


def _is_common(word: str) -> bool:
    """Whether a word is certainly no name, so that a capital letter only begins the item."""
    return word in CLOSED_CLASS or word in ADJECTIVES or word.endswith("ing")


# Markup within a line.

# Marks of citations with the white space before them, which is tried once for each run of it.
_MARKUP: Final = re.compile(rf"(?!{MULTIPLICATION})\*\*|__|(?<!\s)\s*+\[(?!0\])\d{{1,3}}\]|`")
_LINK: Final = re.compile(r"\[([^\[\]\n]{1,200})\]\([^()\s]{1,300}\)")


def without_markup(sentence: str) -> str:
    """The sentence without markup, on one line."""
    return " ".join(_LINK.sub(r"\1", _MARKUP.sub("", sentence)).split())
