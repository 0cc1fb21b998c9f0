"""High atomicity: a clause into clauses that each state one thing."""

from collections.abc import Callable
from typing import Final

from claimflow.stages.text.claims.adjuncts import time_and_place
from claimflow.stages.text.claims.asides import asides
from claimflow.stages.text.claims.complements import participle, relative, roles
from claimflow.stages.text.claims.coordination import clauses, semicolons
from claimflow.stages.text.claims.phrases import verb_phrases
from claimflow.stages.text.claims.tokens import Clause, trimmed

_RULES: Final[tuple[Callable[[Clause], list[Clause]], ...]] = (
    semicolons,
    asides,
    clauses,
    relative,
    verb_phrases,
    participle,
    roles,
    time_and_place,
)
_MOST_PARTS: Final = 40
_SIGNS: Final = frozenset(".°%$€£¥+=/#&@×")
_CONDITIONS: Final = frozenset({"if", "unless", "whether", "lest"})


def split(clause: Clause) -> list[Clause]:
    """The statements of a clause in the order found; the clause alone when it is one.

    A clause with punctuation that the rules do not read (colons, dashes, stray quotation
    marks) or with a condition is left whole.
    """
    done: list[Clause] = []
    waiting = [clause]
    while waiting:
        part = trimmed(waiting.pop())
        pieces = _pieces(part) if len(done) + len(waiting) < _MOST_PARTS else []
        if pieces:
            waiting.extend(reversed(pieces))
        elif part:
            done.append(part)
    return done


def _pieces(clause: Clause) -> list[Clause]:
    if not clause or any(_unread(token.tag, token.low) for token in clause):
        return []
    for rule in _RULES:
        pieces = rule(clause)
        if pieces:
            return pieces
    return []


def _unread(kind: str, low: str) -> bool:
    return (kind == "punctuation" and low not in _SIGNS) or low in _CONDITIONS
