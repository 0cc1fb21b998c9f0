"""The structure of a clause by its tags: leading adjunct, subject and verb group."""

from typing import Final, NamedTuple

from claimflow.stages.claim_rules.lexicon import NEGATIONS
from claimflow.stages.claim_rules.tags import FINITE, NOMINAL
from claimflow.stages.claim_rules.tokens import (
    Clause,
)

_ADJUNCT_STARTS: Final = frozenset(
    {"preposition", "adverb", "gerund", "participle", "base", "number", "adjective"}
)
_SUBJECT_STARTS: Final = frozenset(
    {"determiner", "name", "noun", "pronoun", "number", "adjective", "gerund"}
)
_INSIDE_GROUP: Final = frozenset({"adverb", "participle", "base", "gerund"})


class ClauseStructure(NamedTuple):
    """Indices into a clause: `subject:verb` is the subject, `verb:main+1` the verb group.

    The tokens before `subject` are an adjunct ("In 1990,"). `verb` is where the verb group begins,
    adverbs included; `finite` is the finite form itself, `main` the last word of the group.
    """

    subject: int
    verb: int
    finite: int
    main: int


def first_finite_verb(clause: Clause, start: int = 0) -> int | None:
    """Index of the first finite verb form from `start`."""
    for index in range(start, len(clause)):
        if clause[index].tag in FINITE:
            return index
    return None


def clause_structure(clause: Clause) -> ClauseStructure | None:
    """Structure of a clause; None without subject or verb, or where the subject is interrupted."""
    start = _after_adjunct(clause)
    if start is None:
        return None
    finite = first_finite_verb(clause, start)
    if finite is None:
        return None
    verb = finite
    while verb > start and clause[verb - 1].tag == "adverb":
        verb -= 1
    subject = clause[start:verb]
    if not subject or subject[0].tag not in _SUBJECT_STARTS or not _is_simple_subject(subject):
        return None
    return ClauseStructure(start, verb, finite, main_verb(clause, finite))


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


def is_negated(group: Clause) -> bool:
    """Whether a verb group holds a negation."""
    lows = [token.low for token in group]
    return any(low in NEGATIONS or low.endswith(("n't", "n’t")) or low == "cannot" for low in lows)


def _after_adjunct(clause: Clause) -> int | None:
    """Where the subject begins: after "In 1990," or after "When the war ended,"."""
    if not clause:
        return None
    if clause[0].tag == "subordinator":
        finite = first_finite_verb(clause)
        return _after_comma(clause, finite) if finite is not None else None
    if clause[0].tag not in _ADJUNCT_STARTS:
        return 0
    finite = first_finite_verb(clause) or 0
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


def _is_simple_subject(subject: Clause) -> bool:
    barriers = ("comma", "relative", "subordinator", "semicolon", "punctuation")
    if any(token.tag in barriers for token in subject):
        return False
    return any(token.tag in NOMINAL or token.tag in ("gerund", "determiner") for token in subject)
