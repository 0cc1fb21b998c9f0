"""Coordinated clauses, each made to stand alone.

Every rule takes a clause and gives its parts in text order, or nothing when it does not
apply or cannot be sure. "or" is never split: neither side of it is claimed.
"""

from typing import Final

from claimflow.stages.text.claims.frame import frame
from claimflow.stages.text.claims.tokens import Clause, trimmed

_PAIRED: Final = frozenset({"either", "neither", "only", "rather", "both", "between"})
_CONTRASTS: Final = frozenset({"while", "whereas"})
_SUBJECT_STARTS: Final = frozenset({"determiner", "name", "noun", "pronoun", "adjective"})


def semicolons(clause: Clause) -> list[Clause]:
    """Clauses on both sides of a semicolon, when each has a verb of its own."""
    for index, token in enumerate(clause):
        if token.tag == "semicolon":
            left, right = trimmed(clause[:index]), trimmed(clause[index + 1 :])
            if _complete(left) and _complete(right):
                return [left, right]
            return []
    return []


def clauses(clause: Clause) -> list[Clause]:
    """ "A did this, and B did that": two clauses, each with its subject."""
    if clause[0].tag == "subordinator" or _PAIRED & {token.low for token in clause}:
        return []
    for index, token in enumerate(clause):
        if token.tag in ("relative", "subordinator", "semicolon") and token.low not in _CONTRASTS:
            return []
        if not _joins(clause, index):
            continue
        left, right = trimmed(clause[:index]), trimmed(clause[index + 1 :])
        if _complete(left) and right and right[0].tag in _SUBJECT_STARTS and _new_subject(right):
            return [left, right]
    return []


def _joins(clause: Clause, index: int) -> bool:
    token = clause[index]
    if token.low in _CONTRASTS:
        return index > 0 and clause[index - 1].tag == "comma"
    return token.low in ("and", "but")


def _complete(clause: Clause) -> bool:
    return bool(clause) and frame(clause) is not None


def _new_subject(right: Clause) -> bool:
    """Whether a subject and its verb follow, with nothing between that could be a list."""
    found = frame(right)
    if found is None or found.subject != 0 or found.finite > 12:
        return False
    subject = right[: found.verb]
    if any(token.tag in ("coordinator", "participle") for token in subject):
        return False
    return subject[0].tag in ("determiner", "pronoun", "name") or len(subject) <= 3
