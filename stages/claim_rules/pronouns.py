"""Pronouns: resolve the subject of a clause, and find claims with an unresolved pronoun."""

import re
from typing import Final

from claimflow.stages.claim_rules.clauses import ClauseStructure, clause_structure
from claimflow.stages.claim_rules.lexicon import (
    EVENT_PARTICIPLES,
    STATE_PARTICIPLES,
    is_person_noun,
)
from claimflow.stages.claim_rules.predicate_nominals import predicate_nominal
from claimflow.stages.claim_rules.tags import FINITE, tag
from claimflow.stages.claim_rules.tokens import (
    Clause,
    tokenize,
    without_parentheses,
    without_positions,
)

_PEOPLE: Final = frozenset({"he", "she"})
_VERBS_OF_THINGS: Final = frozenset(
    "located situated founded built published released written directed constructed".split()
)
_PARTS_OF_NAMES: Final = frozenset({"name", "determiner", "preposition", "parenthesis"})


class PronounResolver:
    """Replaces subject pronouns whose antecedent is certain, as sentences are read in order.

    "He" and "she" refer to the only person who was the subject of an earlier sentence; "it"
    refers to the subject of the sentence before, where that states what the subject is. Nothing
    else is resolved.
    """

    def __init__(self) -> None:
        self._people: dict[str, Clause] = {}
        self._gender: str | None = None
        self._thing: Clause = ()

    def resolve(self, clause: Clause) -> Clause:
        """The clause with the antecedent in place of its subject pronoun, where that is certain."""
        found = clause_structure(clause)
        if found is None or found.verb - found.subject != 1:
            return clause
        name = self._antecedent(clause[found.subject].low, clause)
        if not name:
            return clause
        name = without_positions(name)
        spaced = name[0]._replace(spaced=True)
        return (*clause[: found.subject], spaced, *name[1:], *clause[found.subject + 1 :])

    def remember(self, clause: Clause) -> None:
        """Remember the subject of a sentence, as it was written."""
        found = clause_structure(clause)
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
            self._add_person(named)
        elif (
            predicate_nominal(clause) is not None
            or subject[0].low == "the"
            or _is_thing(clause, found)
        ):
            self._thing = named

    def _antecedent(self, pronoun: str, clause: Clause) -> Clause:
        if pronoun in _PEOPLE and len(self._people) == 1 and self._gender in (None, pronoun):
            return next(iter(self._people.values()))
        if pronoun == "it" and self._thing and not _may_be_expletive(clause):
            return self._thing
        return ()

    def _add_person(self, named: Clause) -> None:
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
    """Whether the predicate holds of people only: a person noun, or "born"."""
    found = clause_structure(clause)
    if found is None:
        return False
    if any(token.low == "born" for token in clause[found.subject : found.main + 1]):
        return True
    if any(token.low.startswith("(born") for token in clause[found.subject : found.verb]):
        return True
    stated = predicate_nominal(clause)
    if stated is None:
        return False
    for token in clause[stated.start + 1 :]:
        if is_person_noun(token.low):
            return True
        if token.tag not in ("adjective", "noun", "adverb", "name", "coordinator"):
            return False
    return False


def _is_thing(clause: Clause, found: ClauseStructure) -> bool:
    """Whether the verb is only used of things: located, published, built."""
    return clause[found.main].low in _VERBS_OF_THINGS


def _may_be_expletive(clause: Clause) -> bool:
    """Whether "it" may be an expletive: "it is known that", "it was in 1990 that"."""
    lows = {token.low for token in clause}
    finite = next((i for i, token in enumerate(clause) if token.tag in FINITE), 0)
    bare = clause[finite].low in ("is", "was", "has", "would", "will", "can", "could", "may")
    after = clause[finite + 1] if finite + 1 < len(clause) else None
    stated = after is not None and (
        after.low in ("a", "an") or after.low in EVENT_PARTICIPLES | STATE_PARTICIPLES
    )
    return "that" in lows or (bare and not stated)


# Unresolved pronouns in a claim.

_PERSONAL_PRONOUNS: Final = frozenset(
    "he she it they him her them his its their hers theirs "
    "himself herself itself themselves".split()
)
_LONGEST: Final = 1_500
"""Characters of a claim that are read."""

_DEMONSTRATIVES: Final = frozenset({"this", "that", "these", "those"})
_PRONOUN: Final = re.compile(
    rf"\b(?:{'|'.join(sorted(_PERSONAL_PRONOUNS | _DEMONSTRATIVES))})\b", re.IGNORECASE
)
_NOMINAL_TAGS: Final = frozenset({"name", "noun", "parenthesis", "gerund"})
_OPENING: Final = frozenset({"subordinator", "preposition", "adverb", "gerund", "participle"})
_INTERROGATIVES: Final = frozenset({"whether", "if", "how", "why", "when", "where"})
_COMPLEMENTIZERS: Final = frozenset({"that", "to", "who"}) | _INTERROGATIVES
_RAISING_VERBS: Final = frozenset(
    "seems seemed appears appeared follows followed happens happened".split()
)
_COPULAR_TAGS: Final = frozenset(
    {"be", "modal", "base", "verb", "adverb", "adjective", "participle"}
)
_WEATHER_VERBS: Final = frozenset(
    "rain rains rained raining snow snows snowed snowing hail hailed hailing".split()
)


def unresolved_pronoun(claim: str) -> str | None:
    """The first pronoun of an English claim without an antecedent in the claim; None if none.

    Any noun before a pronoun may be its antecedent, so "Einstein said that he left" has no
    unresolved pronoun and "He left" has one. In "After he left, Einstein wrote" the antecedent
    follows. The "it" of "it is known that" and "it rains" is an expletive, which has none.
    """
    end = min(len(claim), _LONGEST)
    if not _PRONOUN.search(claim, 0, end):
        return None
    clause = tag(tokenize(claim, 0, end))
    named = False
    for index, token in enumerate(clause):
        if not named and _is_unresolved(clause, index):
            return token.text
        named = named or token.tag in _NOMINAL_TAGS
    return None


def _is_unresolved(clause: Clause, index: int) -> bool:
    low = clause[index].low
    if low in _DEMONSTRATIVES:
        following = clause[index + 1] if index + 1 < len(clause) else None
        return index == 0 and following is not None and following.tag in FINITE
    if low not in _PERSONAL_PRONOUNS or _has_later_antecedent(clause, index):
        return False
    return low != "it" or not _is_expletive(clause, index)


def _has_later_antecedent(clause: Clause, index: int) -> bool:
    """Whether the antecedent follows an opening clause: "After he left, Einstein"."""
    if clause[0].tag not in _OPENING:
        return False
    behind = clause[index:]
    comma = next((place for place, token in enumerate(behind) if token.tag == "comma"), None)
    return comma is not None and any(token.tag in ("name", "noun") for token in behind[comma:][:4])


def _is_expletive(clause: Clause, index: int) -> bool:
    """Whether "it" only fills the place of a subject: "it rains", "it is known that"."""
    behind = clause[index + 1 :]
    if _WEATHER_VERBS.intersection(token.low for token in behind[:3]):
        return True
    lows = [token.low for token in behind]
    place = next((place for place, low in enumerate(lows) if low in _COMPLEMENTIZERS), None)
    if not place:
        return False
    between, tags = behind[:place], {token.tag for token in behind[:place]}
    if between[0].low not in _RAISING_VERBS and between[0].tag not in ("be", "modal"):
        return False
    if lows[place] == "to":
        infinitive = place + 1 < len(behind) and behind[place + 1].tag == "base"
        noted = "that" in lows[place : place + 4]
        return (
            (infinitive or noted) and tags <= _COPULAR_TAGS | {"noun"} and "participle" not in tags
        )
    if lows[place] in _INTERROGATIVES and "participle" in tags and "known" not in lows[:place]:
        return False
    return tags <= _COPULAR_TAGS or _is_cleft(between)


def _is_cleft(between: Clause) -> bool:
    """ "It was Einstein who", "it was in 1990 that"; not "it is a city that"."""
    second = between[1] if len(between) > 1 else None
    if second is None or any(token.tag in ("participle", "comma") for token in between):
        return False
    return second.tag in ("name", "number", "preposition") or second.low == "the"
