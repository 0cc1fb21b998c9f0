"""Who a pronoun at the head of a clause stands for, where the text leaves no doubt.

"He" and "she" stand for the only person who has been the subject of an earlier sentence;
"it" for what the sentence before says to be something. Nothing else is resolved.
"""

from typing import Final

from claimflow.stages.text.claims.closed import FINITE
from claimflow.stages.text.claims.complements import predicate
from claimflow.stages.text.claims.frame import Frame, frame
from claimflow.stages.text.claims.roles import is_role
from claimflow.stages.text.claims.tokens import Clause, borrowed, without_parentheses
from claimflow.stages.text.claims.verbs import EVENTS, STATES

_PEOPLE: Final = frozenset({"he", "she"})
_SAID_OF_THINGS: Final = frozenset(
    "located situated founded built published released written directed constructed".split()
)
_PARTS_OF_NAMES: Final = frozenset({"name", "determiner", "preposition", "parenthesis"})


class Referents:
    """The subjects of a text as its sentences are read in order."""

    def __init__(self) -> None:
        self._people: dict[str, Clause] = {}
        self._gender: str | None = None
        self._thing: Clause = ()

    def resolve(self, clause: Clause) -> Clause:
        """The clause with its subject in place of a pronoun that surely stands for one."""
        found = frame(clause)
        if found is None or found.verb - found.subject != 1:
            return clause
        name = self._name(clause[found.subject].low, clause)
        if not name:
            return clause
        name = borrowed(name)
        spaced = name[0]._replace(spaced=True)
        return (*clause[: found.subject], spaced, *name[1:], *clause[found.subject + 1 :])

    def note(self, clause: Clause) -> None:
        """Remember the subject of a sentence, as it was written."""
        found = frame(clause)
        if found is None:
            self._thing = ()
            return
        subject = clause[found.subject : found.verb]
        pronoun = subject[0].low if len(subject) == 1 else ""
        if pronoun in _PEOPLE:
            self._gender = pronoun
        if pronoun == "it":
            return
        self._thing = ()
        if not _is_name(subject):
            return
        named = without_parentheses(subject)
        if _is_person(clause):
            self._add(named)
        elif predicate(clause) is not None or subject[0].low == "the" or _is_thing(clause, found):
            self._thing = named

    def _name(self, pronoun: str, clause: Clause) -> Clause:
        if pronoun in _PEOPLE and len(self._people) == 1 and self._gender in (None, pronoun):
            return next(iter(self._people.values()))
        if pronoun == "it" and self._thing and not _impersonal(clause):
            return self._thing
        return ()

    def _add(self, named: Clause) -> None:
        words = {token.low for token in named}
        for known, clause in self._people.items():
            if words <= {token.low for token in clause}:
                return
            if words >= {token.low for token in clause}:
                del self._people[known]
                break
        self._people[" ".join(token.low for token in named)] = named


def _is_name(subject: Clause) -> bool:
    tags = {token.tag for token in subject}
    return tags <= _PARTS_OF_NAMES and any(token.tag == "name" for token in subject)


def _is_person(clause: Clause) -> bool:
    """Whether the clause says of its subject what only people are: a role, or born."""
    found = frame(clause)
    if found is None:
        return False
    if any(token.low == "born" for token in clause[found.subject : found.main + 1]):
        return True
    if any(token.low.startswith("(born") for token in clause[found.subject : found.verb]):
        return True
    stated = predicate(clause)
    if stated is None:
        return False
    for token in clause[stated.start + 1 :]:
        if is_role(token.low):
            return True
        if token.tag not in ("adjective", "noun", "adverb", "name", "coordinator"):
            return False
    return False


def _is_thing(clause: Clause, found: Frame) -> bool:
    """Whether the verb says what is only said of things: located, published, built."""
    return clause[found.main].low in _SAID_OF_THINGS


def _impersonal(clause: Clause) -> bool:
    """Whether "it" may stand for nothing: "it is known that", "it was in 1990 that"."""
    lows = {token.low for token in clause}
    finite = next((i for i, token in enumerate(clause) if token.tag in FINITE), 0)
    bare = clause[finite].low in ("is", "was", "has", "would", "will", "can", "could", "may")
    after = clause[finite + 1] if finite + 1 < len(clause) else None
    stated = after is not None and (after.low in ("a", "an") or after.low in EVENTS | STATES)
    return "that" in lows or (bare and not stated)
