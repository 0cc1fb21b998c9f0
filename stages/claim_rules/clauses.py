"""The structure of a clause: leading adjunct, subject and verb group; time and place adjuncts."""

from typing import Final, NamedTuple

from claimflow.stages.claim_rules.lexicon import INTRANSITIVE, NEGATIONS
from claimflow.stages.claim_rules.tags import FINITE, NOMINAL
from claimflow.stages.claim_rules.tokens import (
    Clause,
    repeated_subject,
    trim_punctuation,
    without_positions,
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


# Time and place: two adjuncts of one verb.


_MONTHS: Final = frozenset(
    "january february march april may june july august september october november december "
    "jan feb mar apr jun jul aug sep sept oct nov dec".split()
)
_TIME_OPENINGS: Final = frozenset({"in", "on"})
_PLACE_OPENINGS: Final = frozenset({"in", "at"})
_DATE_WORDS: Final = frozenset({"early", "late", "mid", "the", "c", "circa", "ad", "bc"}) | _MONTHS


def split_time_and_place(clause: Clause) -> list[Clause]:
    """ "X was born in 1879 in Germany": X was born in 1879. X was born in Germany.

    Only of verbs without an object, so that each part still says what happened.
    """
    found = clause_structure(clause)
    if found is None or is_negated(clause[found.verb : found.main + 1]):
        return []
    if clause[found.main].tag != "participle" and clause[found.main].low not in INTRANSITIVE:
        return []
    rest = clause[found.main + 1 :]
    if any(token.tag in FINITE or token.tag in ("relative", "subordinator") for token in rest):
        return []
    divided = _time_first(rest) or _place_first(rest)
    if not divided:
        return []
    before, after = divided
    head = clause[: found.main + 1]
    again = repeated_subject(clause[found.subject : found.verb])
    group = without_positions(clause[found.verb : found.main + 1])
    return [(*head, *before), (*again, *group, *after)]


def _time_first(rest: Clause) -> tuple[Clause, Clause] | None:
    end = _date_end(rest, 0)
    place = end + 1 if end < len(rest) and rest[end].tag == "comma" else end
    if not end or not _opens_place(rest, place):
        return None
    return trim_punctuation(rest[:end]), rest[place:]


def _place_first(rest: Clause) -> tuple[Clause, Clause] | None:
    if not _opens_place(rest, 0):
        return None
    for index in range(2, len(rest)):
        if rest[index].low in _TIME_OPENINGS and _date_end(rest, index) == len(rest):
            return trim_punctuation(rest[:index]), rest[index:]
        if rest[index].tag not in ("name", "noun", "comma", "determiner", "adjective"):
            return None
    return None


def _date_end(rest: Clause, start: int) -> int:
    """Index after the date that begins at `start`; `start` itself when none does."""
    index = start
    if index < len(rest) and rest[index].low in _TIME_OPENINGS:
        index += 1
    numbers = 0
    while index < len(rest):
        token = rest[index]
        dated = token.tag == "number" or token.low in _DATE_WORDS
        between = token.tag == "comma" and index + 1 < len(rest) and rest[index + 1].tag == "number"
        if not dated and not between:
            break
        numbers += token.tag == "number"
        index += 1
    return index if numbers else start


def _opens_place(rest: Clause, index: int) -> bool:
    if index + 1 >= len(rest) or rest[index].low not in _PLACE_OPENINGS:
        return False
    return rest[index + 1].tag in ("name", "determiner") and _date_end(rest, index) == index
