"""What a text says, sentence by sentence, and what of it claims nothing; tables and lists."""

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from claimflow.stages.claim_rules.markdown import (
    LIST_MARKER,
    Table,
    code_blocks,
    find_tables,
    joined,
    list_label,
    list_stem,
    row_sentences,
    with_apposition,
    without_markup,
)
from claimflow.stages.claim_rules.non_claims import (
    MARKER,
    UNDERLINE,
    frame_end,
    is_fragment,
    is_reference,
    is_sign_off,
    is_signature,
    is_source_heading,
    is_underlined_heading,
    non_claim_kind,
)
from claimflow.stages.claim_rules.questions import Context, begins_as_question
from claimflow.stages.rows import NonClaimKind
from claimflow.stages.text.sentences import split_sentences

_LONGEST_QUESTION: Final = 1_500
"""Characters of a question that are read."""


class NonClaim(NamedTuple):
    """A sentence `start:end` of a text that claims nothing, and what it is."""

    kind: NonClaimKind
    start: int
    end: int


_HOW_TO: Final = re.compile(
    r"""\b(?:how\ (?:.{1,40}\ )?to|what\ to\ do
    |how\ (?:is|are)\ .{1,80}\ (?:made|cooked|prepared|done|installed)
    |(?:how|what|which|when|where)\b.{0,60}?\b(?:do|can|could|should|would|must|might|may|shall)
    \ (?:i|we|you|one|people|someone|somebody)
    |(?:should|can|could|may|must|do|shall|want|need)\ (?:i|we|to)|i\ (?:want|need)
    |recipes?|steps|instructions?|directions|procedure|tips|advice|tutorial|guide|guidelines
    |ways?\ (?:to|of|for)|uses\ (?:for|of)|best\ practices?|recommend\w{0,7}|suggest\w{0,5}
    |(?:show|teach|tell|help|walk)\ (?:me|us)\ (?:how|to|through)|(?:best|right|correct)\ way)\b
    |^(?!what|who|when|where|why|which|did|does|is|are|was|were)(?:[\w.-]{1,30}\ ){0,5}
    (?:remove|install|uninstall|fix|reset|replace|set\ up|update|create|configure|clean|grant)\b""",
    re.IGNORECASE | re.VERBOSE,
)


def asks_how_to(question: str) -> bool:
    """Whether a question asks how to do something, so that instructions are the answer's claims."""
    return _HOW_TO.search(question[:_LONGEST_QUESTION]) is not None


class Sentence(NamedTuple):
    """A sentence of a text that claims something.

    `said` is its wording where it is another than that of `text[start:end]`: a list item with its
    stem, or the sentence of a table's row. It is a claim as it stands with `whole`. `cut` says
    that words before it were left out, so that it begins with a small letter.
    """

    start: int
    end: int
    said: str | None = None
    whole: bool = False
    cut: bool = False


class _Block(NamedTuple):
    """A part `start:end` of a text that is not read sentence by sentence."""

    start: int
    end: int
    units: list[Sentence | NonClaim]


_FEWEST_STEPS: Final = 3


def read_sentences(text: str, context: Context, *, each_cell: bool) -> list[Sentence | NonClaim]:
    """What a text says, sentence by sentence, and what of it claims nothing.

    Instructions claim something where the question asks how to do something, and in a text
    that consists of them. With `each_cell` every cell of a table is a sentence, else every row.
    """
    how_to = asks_how_to(context.question)
    units = list(_read(text, how_to=how_to, each_cell=each_cell))
    steps = sum(isinstance(unit, NonClaim) and unit.kind == "instruction" for unit in units)
    said = sum(isinstance(unit, Sentence) for unit in units)
    answers = bool(context.question.strip()) and not said
    if steps and (answers or (steps >= _FEWEST_STEPS and steps > said)):
        return list(_read(text, how_to=True, each_cell=each_cell))
    return units


def _read(text: str, *, how_to: bool, each_cell: bool) -> Iterator[Sentence | NonClaim]:
    blocks = _blocks(text, each_cell=each_cell)
    reader = _Reader(text, how_to=how_to)
    for place, sentence in enumerate(reader.sentences):
        while blocks and blocks[0].end <= sentence.start:
            reader.leave_list()
            yield from blocks.popleft().units
        if not blocks or sentence.start < blocks[0].start:
            yield reader.read(place)
    for block in blocks:
        yield from block.units


def _blocks(text: str, *, each_cell: bool) -> deque[_Block]:
    """Fenced code and tables, in the order of the text."""
    code = code_blocks(text)
    blocks = [_Block(*span, [NonClaim("code", *span)]) for span in code]
    starts = [span.start for span in code]
    for table in find_tables(text) if "|" in text else ():
        before = bisect_right(starts, table.span.end) - 1
        if before < 0 or code[before].end <= table.span.start:
            blocks.append(_Block(*table.span, list(_table_units(text, table, each_cell=each_cell))))
    return deque(sorted(blocks))


def _table_units(text: str, table: Table, *, each_cell: bool) -> Iterator[Sentence | NonClaim]:
    if table.header:
        yield NonClaim("heading", *table.header)
    if table.separator:
        yield NonClaim("markup", *table.separator)
    for row in table.rows:
        for span, said in row_sentences(row, each=each_cell):
            yield Sentence(*span, said=said, whole=True)
        if not row.parts:
            words = any(map(str.isalnum, text[row.span.start : row.span.end]))
            yield NonClaim("heading" if words else "markup", *row.span)


class _Reader:
    """Reads the sentences of a text one by one, with the list and the sources they belong to."""

    def __init__(self, text: str, *, how_to: bool) -> None:
        self.sentences = split_sentences(text)
        self._text = text
        self._how_to = how_to
        self._single_line = not _LINE_END.search(text.strip())
        # The stems of the list items that a further item may belong to, with their indents.
        self._stems: list[tuple[int, str | None, str]] = []
        self._lists_facts = False
        self._in_sources = False
        self._signed_off = False

    def leave_list(self) -> None:
        """The next sentence stands below a table or code, and belongs to no list above."""
        self._stems.clear()
        self._in_sources = self._lists_facts = False

    def read(self, place: int) -> Sentence | NonClaim:
        """What the sentence at a place says, or is."""
        start, end = self.sentences[place]
        piece = self._text[start:end]
        marker = MARKER.match(piece)
        first = start + (marker.end() if marker else 0)
        item = LIST_MARKER.match(piece)
        stem, label = self._stem_above(place, item=item is not None)
        kind = self._kind(place, piece, self._text[first:end])
        if kind == "question" and (told := _before_tag(piece)):
            kind = self._kind(place, told, told)
            if kind is None:
                return Sentence(start, end, said=told)
        own = list_stem(piece) if self._opens_list(place, piece) else None
        self._remember_stem(place, piece, own, item=item is not None)
        if kind is None and own:
            kind = "heading"
        if kind is not None:
            return NonClaim(kind, start, end)
        if item and label and (self._is_one_sentence(place) or self._is_in_line(place)):
            words = _BEFORE_NEXT.sub("", without_markup(piece[item.end() :]))
            words = with_apposition(words) if stem else words
            if is_fragment(words):
                said = joined(stem, words) if stem else None
                # An item alone may say the contrary: "The warranty does not cover: theft."
                said = said or f"{label}: {words.rstrip(' .;,')}."
                return Sentence(start + item.end(), end, said=said, whole=stem is None)
        cut = frame_end(self._text[first:end])
        if first + cut >= end:  # A mark of a list is the whole answer.
            first, cut = start, 0
        return Sentence(first + cut, end, cut=cut > 0)

    def _kind(self, place: int, piece: str, content: str) -> NonClaimKind | None:
        whole_line = self._begins_line(place) and self._ends_line(place)
        if self._signed_off and place == len(self.sentences) - 1 and is_signature(piece):
            return "greeting"
        self._signed_off = whole_line and is_sign_off(piece)
        if whole_line and not self._single_line and is_source_heading(piece):
            self._in_sources = True
            return "heading" if piece.startswith(("#", "*", "_")) else "source"
        if self._in_sources:
            # A source may be more than a sentence: "Smith, J. (2020). Rome."
            self._in_sources = is_reference(content) or not self._begins_line(place)
            if self._in_sources:
                return "source"
        kind = non_claim_kind(
            piece,
            whole_line=whole_line,
            single_line=self._single_line,
            alone=len(self.sentences) == 1,
            how_to=self._how_to or self._lists_facts,
        )
        if kind is None and whole_line and self._is_underlined(place):
            return "heading"
        return kind

    # Where a sentence stands.

    def _between(self, place: int) -> str:
        """The white space before a sentence."""
        before = self.sentences[place - 1].end if place else 0
        return self._text[before : self.sentences[place].start]

    def _begins_line(self, place: int) -> bool:
        return not place or _LINE_END.search(self._between(place)) is not None

    def _ends_line(self, place: int) -> bool:
        return place + 1 == len(self.sentences) or self._begins_line(place + 1)

    def _is_one_sentence(self, place: int) -> bool:
        """Whether a list item is no longer than its sentence."""
        return self._ends_line(place) or self._is_item(place + 1)

    def _is_in_line(self, place: int) -> bool:
        """Whether a list item stands in a line with the one before: "1) a door, 2) a window"."""
        return place > 0 and not self._begins_line(place) and self._is_item(place - 1)

    def _is_item(self, place: int) -> bool:
        start, end = self.sentences[place]
        return LIST_MARKER.match(self._text, start, end) is not None

    def _is_underlined(self, place: int) -> bool:
        if place + 1 == len(self.sentences) or self._between(place + 1).count("\n") > 1:
            return False
        start, end = self.sentences[place + 1]
        if end - start > 203 or not UNDERLINE.fullmatch(self._text, start, end):
            return False
        start, end = self.sentences[place]
        return is_underlined_heading(self._text[start:end])

    def _indent(self, place: int) -> int:
        """The white space before a sentence on its line; items within a line are one level."""
        if not self._begins_line(place):
            return 0
        between = self._between(place)
        line = max(between.rfind(end) for end in _LINE_ENDS)
        return len(between[line + 1 :].expandtabs(4))

    # The stem of a list.

    def _opens_list(self, place: int, piece: str) -> bool:
        ends = piece.rstrip(" *_").endswith((":", "："))
        return ends and place + 1 < len(self.sentences) and self._is_item(place + 1)

    def _stem_above(self, place: int, *, item: bool) -> tuple[str | None, str]:
        """The stem of the list that a sentence is an item of; nearer items leave it."""
        if not item:
            if self._begins_line(place):
                self._stems.clear()
                self._lists_facts = False
            return None, ""
        indent = self._indent(place)
        while len(self._stems) > 1 and self._stems[-1][0] >= indent:
            self._stems.pop()
        return self._stems[-1][1:] if self._stems else (None, "")

    def _remember_stem(self, place: int, piece: str, stem: str | None, *, item: bool) -> None:
        opens = self._opens_list(place, piece)
        label = list_label(piece) if opens else ""
        if item:
            if not self._stems:
                self._stems.append((-1, None, ""))
            self._stems.append((self._indent(place), stem, label))
        else:
            self._stems = [(-1, stem, label)] if opens else []
            # "Compounds: - Show the properties of ...": predicates, not instructions.
            self._lists_facts = opens and not piece.startswith("To ") and not asks_how_to(piece)


_TAG: Final = re.compile(
    r"""(.+?),\s+(?:(?:is|are|was|were|do|does|did|has|have|had|can|could|will|would|should|must)
    (?:n['’]t)?\s+(?:it|he|she|they|we|you|there|that|this)(?:\s+not)?|right|correct|no|eh|true)
    \s*\?[\s\W]*""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_LEAD_IN: Final = re.compile(r"\W*(?:(?:so|and|but|well|or)\b\W*)?", re.IGNORECASE)


def _before_tag(question: str) -> str | None:
    """What a sentence states before its tag: "Honey is sweet, isn't it?"; None for a question."""
    found = _TAG.fullmatch(question) if len(question) <= _LONGEST_QUESTION else None
    if found is None or begins_as_question(_LEAD_IN.sub("", found[1], count=1)):
        return None
    return f"{found[1]}."


_BEFORE_NEXT: Final = re.compile(r"[,;]?\s+(?:and|or)\s*[,;]?\s*$", re.IGNORECASE)
"""What leads from an item of a list to the next one: "a door, and"."""
_LINE_ENDS: Final = "\n\r\v\f\x85\u2028\u2029"
_LINE_END: Final = re.compile(rf"[{_LINE_ENDS}]")
