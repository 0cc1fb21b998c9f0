"""The search for the reply in a text of prose, fences, thinking and broken JSON."""

import re
from typing import Any, Final, NamedTuple

from claimflow.flows.engine.llm.reading_decode import DecodeError, decode
from claimflow.flows.engine.llm.reading_outline import outline

_NAMES: Final = (
    "(?i:(?:seed:)?(?:think|thinking|thoughts?|reasoning|reflection|analysis|scratchpad))"
)
_THINK: Final = rf"{_NAMES}>|\|begin_of_thought\|>|\|channel\|>analysis"
_THOUGHT: Final = rf"/{_NAMES}>|\|end_of_thought\|>|\|channel\|>final"

# Each way begins with a plain character, so that a search can skip to it.
_MARK: Final = re.compile(
    rf"<(?=[/|\w])(?:{_THINK}|{_THOUGHT})|◁/?think▷|\[/?THINK\]"
    r'|\}|\{|\[(?=\s*+(?:[\[{"\]\-\d]|true|false|null))'
)
_END_OF_THOUGHT: Final = re.compile(rf"<(?=[/|])(?:{_THOUGHT})|◁/think▷|\[/THINK\]")

# Single quotes and bare names too: they are no JSON, but they are meant as a reply.
_LIKE_A_REPLY: Final = re.compile(r"""\{\s*+(?:["']|\w++\s*+:)|\[\s*+[\[{]""")
_FENCE: Final = re.compile(r"\s*+(?:`{3,}\w*+\s*+)?")
_INSIDE: Final = tuple(",:[{\"'")
_LIST_ENDS: Final = re.compile(r"\s*+\]")
_NOTHING_MORE: Final = re.compile(r"[\s`]*+\Z")

_STEPS: Final = 2_000
_FAILED_CHARACTERS: Final = 2_000_000
"""Each failed attempt may have read the whole text; together they read no more than this."""


class Found(NamedTuple):
    """A value at `start:end` of the text; `forgiven` as in `Decoded`."""

    value: Any
    start: int
    end: int
    forgiven: bool


class Broken(NamedTuple):
    """What began like a reply, and why it is none.

    `start` is where it begins, None where that is not sure.
    """

    start: int | None
    why: str


class Search:
    """One walk over the outermost values of `text`; `ended` says that it is not cut off."""

    def __init__(self, text: str, *, ended: bool) -> None:
        self._text = text
        self._ended = ended
        self._last: Found | Broken | None = None
        self._looked = False
        self._thought: re.Match[str] | None = None
        self._failures = 0
        self._thinking = False
        # Something broken was passed over: what follows may still be inside it.
        self._wary = False

    def last(self) -> Found | Broken | None:
        """The last value that could be a reply, whole or broken."""
        place = 0
        for _ in range(_STEPS):
            mark = _MARK.search(self._text, place)
            if mark is None:
                return self._last
            place = self._step(mark)
            if self._failures * len(self._text) > _FAILED_CHARACTERS:
                break
        return Broken(None, "the reply holds too many brackets")

    def _step(self, mark: re.Match[str]) -> int:
        if mark[0] in "{[":
            return self._value(mark.start())
        thought = self._end_of_thought(mark.start())
        if mark[0] == "}":
            self._doubt()
        elif thought is None:
            self._thinking = True
        elif thought.start() == mark.start():  # its beginning was left out: all was thinking
            self._last = None
        else:
            return thought.end()
        return mark.end()

    def _value(self, start: int) -> int:
        why = ""
        if self._text.startswith(("[", "{}"), start) or _LIKE_A_REPLY.match(self._text, start):
            try:
                value, end, forgiven = decode(self._text, start)
            except DecodeError as error:
                self._failures += 1
                why = str(error)
            else:
                if self._counts(value, start, end):
                    self._last = Found(value, start, end, forgiven)
                    if _LIST_ENDS.match(self._text, end):
                        self._doubt()
                return end
        return self._pass_over(start, why)

    def _counts(self, value: Any, start: int, end: int) -> bool:
        last_word = self._ended and _NOTHING_MORE.match(self._text, end) is not None
        if self._thinking and not last_word:
            return False
        if self._inside(start):
            return False
        if value and (isinstance(value, dict) or any(isinstance(entry, dict) for entry in value)):
            return True
        # In prose this is a citation; where it is all of the text, it is a wrong reply.
        first = _FENCE.match(self._text)
        return last_word and first is not None and first.end() == start

    def _pass_over(self, start: int, why: str) -> int:
        """Where to go on after something broken at `start`; `why` is empty for mere prose."""
        meant = _LIKE_A_REPLY.match(self._text, start) is not None
        if self._text[start] == "[" and not meant:
            return start + 1
        thought = self._end_of_thought(start)
        limit = len(self._text) if thought is None else thought.start()
        end = outline(self._text, start, limit).end
        inside = self._inside(start)
        self._wary |= meant or end is None
        if end is None and thought is not None:
            self._last = None
            return thought.end()
        if not self._thinking and (meant or (end is None and self._last is None)):
            why = why or "the reply holds an open bracket but no JSON"
            self._last = Broken(None if inside else start, why)
        return limit if end is None else end

    def _doubt(self) -> None:
        """Take a bracket that closes nothing for the end of something broken."""
        if isinstance(self._last, Found):
            self._last = Broken(None, "the JSON has a closing bracket too many")
            self._wary = True

    def _inside(self, start: int) -> bool:
        """Whether what begins at `start` may be a part of something broken."""
        before = self._text[max(0, start - 200) : start].rstrip()
        return self._wary and before.endswith(_INSIDE)

    def _end_of_thought(self, place: int) -> re.Match[str] | None:
        """The next end of thinking at or after `place`, which never goes back."""
        if not self._looked or (self._thought and self._thought.start() < place):
            self._thought = _END_OF_THOUGHT.search(self._text, place)
            self._looked = True
        return self._thought
