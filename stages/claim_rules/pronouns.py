"""Pronouns: what one at the head of a clause refers to, and claims whose pronoun is unresolved."""

import re
from typing import Final

from claimflow.stages.claim_rules.clauses import Frame, frame
from claimflow.stages.claim_rules.complements import predicate
from claimflow.stages.claim_rules.tags import FINITE, tag
from claimflow.stages.claim_rules.tokens import Clause, borrowed, tokenize, without_parentheses
from claimflow.stages.claim_rules.verbs import EVENTS, STATES
from claimflow.stages.claim_rules.words import is_role

# Who a pronoun at the head of a clause stands for, where the text leaves no doubt.
#
# "He" and "she" stand for the only person who has been the subject of an earlier sentence;
# "it" for what the sentence before says to be something. Nothing else is resolved.


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


# Whether an English claim can be understood alone: no pronoun that nothing stands for.


_PERSONAL: Final = frozenset(
    "he she it they him her them his its their hers theirs "
    "himself herself itself themselves".split()
)
_LONGEST: Final = 1_500
"""So much of a claim is looked at."""

_POINTING: Final = frozenset({"this", "that", "these", "those"})
_PRONOUN: Final = re.compile(rf"\b(?:{'|'.join(sorted(_PERSONAL | _POINTING))})\b", re.IGNORECASE)
_NAMING: Final = frozenset({"name", "noun", "parenthesis", "gerund"})
_OPENING: Final = frozenset({"subordinator", "preposition", "adverb", "gerund", "participle"})
_ASKING: Final = frozenset({"whether", "if", "how", "why", "when", "where"})
_INTRODUCING: Final = frozenset({"that", "to", "who"}) | _ASKING
_SEEMING: Final = frozenset(
    "seems seemed appears appeared follows followed happens happened".split()
)
_STATING: Final = frozenset({"be", "modal", "base", "verb", "adverb", "adjective", "participle"})
_WEATHER: Final = frozenset(
    "rain rains rained raining snow snows snowed snowing hail hailed hailing".split()
)


def open_pronoun(claim: str) -> str | None:
    """The first pronoun of an English claim that stands for nothing named in it; None if none.

    Before a pronoun anything named may be what it stands for, so "Einstein said that he left"
    has none and "He left" has one. In "After he left, Einstein wrote" the name follows. "It is
    known that" and "it rains" stand for nothing.
    """
    end = min(len(claim), _LONGEST)
    if not _PRONOUN.search(claim, 0, end):
        return None
    clause = tag(tokenize(claim, 0, end))
    named = False
    for index, token in enumerate(clause):
        if not named and _stands_for_something(clause, index):
            return token.text
        named = named or token.tag in _NAMING
    return None


def _stands_for_something(clause: Clause, index: int) -> bool:
    low = clause[index].low
    if low in _POINTING:
        following = clause[index + 1] if index + 1 < len(clause) else None
        return index == 0 and following is not None and following.tag in FINITE
    if low not in _PERSONAL or _named_behind(clause, index):
        return False
    return low != "it" or not _empty(clause, index)


def _named_behind(clause: Clause, index: int) -> bool:
    """Whether a name follows the clause that opens the sentence: "After he left, Einstein"."""
    if clause[0].tag not in _OPENING:
        return False
    behind = clause[index:]
    comma = next((place for place, token in enumerate(behind) if token.tag == "comma"), None)
    return comma is not None and any(token.tag in ("name", "noun") for token in behind[comma:][:4])


def _empty(clause: Clause, index: int) -> bool:
    """Whether "it" only fills the place of a subject that follows, or of none."""
    behind = clause[index + 1 :]
    if _WEATHER.intersection(token.low for token in behind[:3]):
        return True
    lows = [token.low for token in behind]
    place = next((place for place, low in enumerate(lows) if low in _INTRODUCING), None)
    if not place:
        return False
    between, tags = behind[:place], {token.tag for token in behind[:place]}
    if between[0].low not in _SEEMING and between[0].tag not in ("be", "modal"):
        return False
    if lows[place] == "to":
        infinitive = place + 1 < len(behind) and behind[place + 1].tag == "base"
        noted = "that" in lows[place : place + 4]
        return (infinitive or noted) and tags <= _STATING | {"noun"} and "participle" not in tags
    if lows[place] in _ASKING and "participle" in tags and "known" not in lows[:place]:
        return False
    return tags <= _STATING or _cleft(between)


def _cleft(between: Clause) -> bool:
    """ "It was Einstein who", "it was in 1990 that"; not "it is a city that"."""
    second = between[1] if len(between) > 1 else None
    if second is None or any(token.tag in ("participle", "comma") for token in between):
        return False
    return second.tag in ("name", "number", "preposition") or second.low == "the"
