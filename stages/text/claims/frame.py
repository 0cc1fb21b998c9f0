"""The frame of a clause: leading adjunct, subject, verb group."""

from typing import Final, NamedTuple

from claimflow.stages.text.claims.closed import FINITE, NOMINAL
from claimflow.stages.text.claims.tokens import Clause
from claimflow.stages.text.claims.words import NEGATIONS

_ADJUNCT_STARTS: Final = frozenset(
    {"preposition", "adverb", "gerund", "participle", "base", "number", "adjective"}
)
_SUBJECT_STARTS: Final = frozenset(
    {"determiner", "name", "noun", "pronoun", "number", "adjective", "gerund"}
)
_INSIDE_GROUP: Final = frozenset({"adverb", "participle", "base", "gerund"})


class Frame(NamedTuple):
    """Indices into a clause: `subject:verb` is the subject, `verb:main+1` the verb group.

    What stands before `subject` is an adjunct ("In 1990,"). `verb` includes adverbs that
    belong to it; `finite` is the finite form itself.
    """

    subject: int
    verb: int
    finite: int
    main: int


def first_finite(clause: Clause, start: int = 0) -> int | None:
    """Index of the first finite verb form from `start`."""
    for index in range(start, len(clause)):
        if clause[index].tag in FINITE:
            return index
    return None


def frame(clause: Clause) -> Frame | None:
    """Frame of a clause whose subject is plain; None when it has none or is not plain."""
    start = _after_adjunct(clause)
    if start is None:
        return None
    finite = first_finite(clause, start)
    if finite is None:
        return None
    verb = finite
    while verb > start and clause[verb - 1].tag == "adverb":
        verb -= 1
    subject = clause[start:verb]
    if not subject or subject[0].tag not in _SUBJECT_STARTS or not _plain(subject):
        return None
    return Frame(start, verb, finite, main_verb(clause, finite))


def main_verb(clause: Clause, finite: int) -> int:
    """Index of the last word of the verb group that begins at `finite`."""
    main = finite
    if clause[finite].tag == "verb":
        return main
    for index in range(finite + 1, len(clause)):
        if clause[index].tag not in _INSIDE_GROUP:
            break
        if clause[index].tag != "adverb":
            main = index
    return main


def negated(group: Clause) -> bool:
    """Whether a verb group says that something is not so."""
    lows = [token.low for token in group]
    return any(low in NEGATIONS or low.endswith(("n't", "n’t")) or low == "cannot" for low in lows)


def _after_adjunct(clause: Clause) -> int | None:
    """Where the subject begins: after "In 1990," or after "When the war ended,"."""
    if not clause:
        return None
    if clause[0].tag == "subordinator":
        finite = first_finite(clause)
        return _after_comma(clause, finite) if finite is not None else None
    if clause[0].tag not in _ADJUNCT_STARTS:
        return 0
    finite = first_finite(clause) or 0
    commas = [i for i in range(finite) if clause[i].tag == "comma"]
    if commas:
        return commas[-1] + 1
    if clause[0].tag == "preposition":  # "In 1990 he moved": only a pronoun shows the border
        pronouns = [i for i in range(1, finite) if clause[i].tag == "pronoun"]
        return pronouns[-1] if pronouns else None
    return 0


def _after_comma(clause: Clause, start: int) -> int | None:
    for index in range(start, len(clause)):
        if clause[index].tag == "comma":
            return index + 1
    return None


def _plain(subject: Clause) -> bool:
    barriers = ("comma", "relative", "subordinator", "semicolon", "punctuation")
    if any(token.tag in barriers for token in subject):
        return False
    return any(token.tag in NOMINAL or token.tag in ("gerund", "determiner") for token in subject)
