"""What an aside speaks of, and the aside as a statement about it."""

from typing import Final

from claimflow.stages.text.claims.closed import FINITE
from claimflow.stages.text.claims.frame import first_finite
from claimflow.stages.text.claims.roles import is_role
from claimflow.stages.text.claims.tokens import Clause, added, borrowed, repeated
from claimflow.stages.text.claims.words import possessive

_WHOLE_EVENTS: Final = frozenset(
    "made makes means meant led leads caused causes resulted results allowed allows helped helps "
    "gave gives enabled enables is was".split()
)
_GOVERNORS: Final = frozenset({"verb", "participle", "be"})


def is_name(subject: Clause) -> bool:
    """Whether all of a subject is one name: "Paris", "The Hague", "Leonardo da Vinci"."""
    if not subject or subject[-1].tag not in ("name", "parenthesis"):
        return False
    small = all(token.tag in ("name", "parenthesis") or len(token.text) <= 3 for token in subject)
    return small and subject[0].tag in ("name", "determiner")


def antecedent(clause: Clause, comma: int) -> Clause:
    """The name or definite noun phrase that ends before a comma; empty when it is unclear."""
    end = comma
    while end > 1 and clause[end - 1].tag == "parenthesis":
        end -= 1
    start = end
    while start > 0 and clause[start - 1].tag == "name":
        start -= 1
    if start == end:
        return _definite(clause, end)
    if start and clause[start - 1].tag in ("comma", "coordinator"):
        return ()
    named = clause[start:end]
    while start > 1 and clause[start - 1].tag in ("adjective", "noun", "number"):
        start -= 1
    return clause[start - 1 : end] if start and clause[start - 1].low == "the" else named


def told(subject: Clause, inner: Clause) -> Clause | None:
    """A relative clause as a statement about its antecedent; None when it is not its subject."""
    word = inner[0].low
    if word == "whose" and len(inner) > 2 and first_finite(inner) not in (None, 1):
        owner = subject[-1]._replace(text=possessive(subject[-1].text))
        return (*borrowed((*subject[:-1], owner)), *inner[1:])
    after = 1
    while after < len(inner) - 1 and inner[after].tag == "adverb":
        after += 1
    if word not in ("who", "which") or after >= len(inner) or inner[after].tag not in FINITE:
        return None
    if word == "which" and subject[-1].tag not in ("name", "parenthesis"):
        indefinite = subject[0].low in ("a", "an") or subject[0].tag != "determiner"
        if indefinite or (inner[after].low in _WHOLE_EVENTS and after + 1 == len(inner)):
            return None
    return (*repeated(subject), *inner[1:])


def equated(subject: Clause, inner: Clause, rest: Clause) -> Clause:
    """ "subject is inner" in the tense of the first verb of `rest`."""
    be = added("was" if is_past(rest) else "is", "be")
    return (*repeated(subject), be, *inner)


def is_past(rest: Clause) -> bool:
    """Whether the first finite verb is in the past."""
    finite = first_finite(rest)
    if finite is None:
        return False
    token = rest[finite]
    if token.tag == "verb":
        return not token.low.endswith("s")
    return token.low in ("was", "were", "had", "did", "could", "would")


def is_singular(rest: Clause) -> bool:
    """Whether the first finite verb can have a singular subject."""
    finite = first_finite(rest)
    return finite is not None and rest[finite].low not in ("are", "were", "have", "do")


def _definite(clause: Clause, end: int) -> Clause:
    """ "the library", "his teacher" right after a verb or its preposition, so that it is unclear
    neither which one is meant nor what a relative clause goes with.
    """
    start = end
    while start > 0 and clause[start - 1].tag in ("adjective", "noun", "name"):
        start -= 1
    if start in (0, end) or clause[start - 1].tag != "determiner":
        return ()
    phrase = clause[start - 1 : end]
    if phrase[0].low in ("a", "an") or phrase[-1].tag != "noun":
        return ()
    if is_role(phrase[-1].low):
        return phrase
    governor = start - 2
    if governor > 0 and clause[governor].tag == "preposition":
        governor -= 1
    return phrase if governor >= 0 and clause[governor].tag in _GOVERNORS else ()
