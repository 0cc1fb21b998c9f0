"""Sentences as continuous-eval 0.3 finds them: the decisions of NLTK's Punkt for English.

Kiss and Strunk, "Unsupervised multilingual sentence boundary detection", 2006, as implemented in
NLTK 3.9. Punkt learnt from newspapers which words are abbreviations, which often begin a sentence,
and which occur in lower case. The learnt parameters are replaced by short word lists that were
written for this project; all words are in lower case without their last stop.
"""

import re
import string
from collections.abc import Iterator
from typing import Final

from claimflow.stages.text.sentences import Span
from claimflow.stages.text.word_lists import STOP_WORDS, word_set

ABBREVIATIONS: Final = word_set(
    # titles and ranks
    "mr mrs ms dr prof messrs jr sr hon rev gov sen sens rep reps gen lt col sgt adm cmdr maj capt "
    # firms
    "inc corp co cos ltd bros cie s.a s.p.a a.g b.v n.v l.p "
    # places
    "st ave ft u.s u.s.a u.s.s.r u.k u.n d.c l.a n.y n.j n.h n.c n.d n.m s.c s.d r.i w.va "
    "ala ariz ark calif colo conn fla ga ill kan ky mich minn neb nev okla ok ore pa tenn va "
    "wash wis wyo "
    # times
    "jan feb aug sept oct nov dec mon tues wed thurs fri a.m p.m a.d b.c yr "
    # degrees and the rest
    "ph.d m.d b.a m.a m.b.a vs mg "
)
"""A stop behind these ends no sentence, unless a frequent sentence starter follows.

Not in the list, and so always the end of a sentence: e.g, i.e, no, fig, eq, approx.
"""

SENTENCE_STARTERS: Final = word_set(
    "according after all also although among analysts and another as at because both but by "
    "despite during even for he his how however if in indeed instead it its last many meanwhile "
    "moreover most nevertheless now one our over separately she since so some still such that "
    "the their then there these they this those thus under unlike until we what when where while "
    "with without yesterday yet you"
)
"""Words that often begin a sentence."""

LOWER_CASE: Final = frozenset(
    word for word in STOP_WORDS | SENTENCE_STARTERS if len(word) > 1 or word == "a"
) | word_set(
    "add almost along already always animals any anyone apart around ask away back become before "
    "best better big blood books bring business call cars cases cells change check children cities "
    "come common companies compare consider costs countries data day days different doctors early "
    "earth eat either else energy enough every everyone everything example experts few find first "
    "food found four get give go good government great group groups half heat help here high hold "
    "home hundreds important including inside keep know large later learn leave less let life "
    "light like little local long look low make makes man may maybe men methods might million "
    "money months more much music must near need never new next nobody nothing notice often old "
    "once only open order others outside part parts patients people perhaps place plants please "
    "power prices products put read recent remember research results run say says scientists "
    "second see seen set several shall show small soon start stay stop students studies study "
    "take tell thank things think third thousands three time times today together tomorrow two "
    "use used using usually values various very vitamins wait want war was water ways well "
    "whether whole whose within women words work workers write years young"
)
"""Words that are not only names: a stop behind an initial and before one of these, capitalised,
ends a sentence."""


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

    The token behind the stop can decide in the reference implementation too: "Dr. Who?!" is cut
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
        return _is_sentence_starter(following)
    if _is_abbreviation(token[:-1].lower()):
        return _is_sentence_starter(following)
    initial = _INITIAL.match(token)
    if initial or _NUMBER.match(token):
        return _may_begin(following, after_initial=bool(initial))
    return True


def _is_abbreviation(stem: str) -> bool:
    return stem in ABBREVIATIONS or stem.rpartition("-")[2] in ABBREVIATIONS


def _is_sentence_starter(token: str) -> bool:
    return token[0].isupper() and _type(token) in SENTENCE_STARTERS


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
