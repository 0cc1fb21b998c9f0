"""Which tokens of a claim its evidence holds, and which it lacks."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final

from claimflow.flows.engine.entailment.claim import WEIGHTS, Claim
from claimflow.flows.engine.entailment.opposites import opposites
from claimflow.flows.engine.entailment.tokens import Token, is_content, stem
from claimflow.flows.engine.entailment.words import ANSWERS, NEGATIONS

_ROOT: Final = 4
"""Akin words share this many first letters at least."""


class Alignment:
    """The tokens of `claim` against those of its `evidence`.

    `content` are the claim's tokens that say something; `absent` those of them whose key
    the evidence lacks; `missing` those of these to which no word of the evidence is akin.
    """

    def __init__(self, claim: Claim, evidence: Sequence[Token]) -> None:
        self.tokens = claim.tokens
        self.evidence = evidence
        self.content = [t for t in claim.tokens if is_content(t)] or claim.tokens
        self.keys = {token.key for token in claim.tokens}
        self.held = {token.key for token in evidence}
        self.unused = [t for t in evidence if is_content(t) and t.key not in self.keys]
        self.absent = [token for token in self.content if token.key not in self.held]
        roots: dict[str, set[str]] = {}
        for token in self.unused:
            roots.setdefault(token.form[:_ROOT], set()).add(token.form)
        relatives = {
            token.form
            for token in {token.form: token for token in self.absent}.values()
            if token.kind != "number"
            and any(akin(token.form, form) for form in roots.get(token.form[:_ROOT], ()))
        }
        self.missing = [token for token in self.absent if token.form not in relatives]

    def covered(self, missing: Iterable[Token]) -> float:
        """Share of the claim's content that is not `missing`, each kind by its weight."""
        total = sum(WEIGHTS[token.kind] for token in self.content)
        return 1 - sum(WEIGHTS[token.kind] for token in missing) / total

    @cached_property
    def opposed(self) -> bool:
        """Whether the evidence says the opposite of a word that it lacks."""
        unused = {stem(token.form) for token in self.unused}
        return any(not unused.isdisjoint(opposites(token.form)) for token in self.missing)

    @cached_property
    def negations(self) -> tuple[int, int]:
        """Negations in the claim, and in the evidence around what it shares with the claim.

        Where the evidence holds the claim word for word, what else it says does not count.
        """
        near = self._verbatim() or self._shared()
        return _negations(self.tokens), _negations(self.evidence[near.start : near.stop])

    def _shared(self) -> range:
        """From two tokens before the first that claim and evidence share to two after the last."""
        places = [
            place
            for place, token in enumerate(self.evidence)
            if is_content(token) and token.key in self.keys
        ]
        return range(max(0, places[0] - 2), places[-1] + 3) if places else range(len(self.evidence))

    def _verbatim(self) -> range:
        """Where the claim stands in the evidence word for word, and two tokens before it."""
        said = [token.key for token in self.tokens]
        told = [token.key for token in self.evidence]
        for start in range(len(told) - len(said) + 1):
            if told[start] == said[0] and told[start : start + len(said)] == said:
                return range(max(0, start - 2), start + len(said))
        return range(0)


def _negations(tokens: Sequence[Token]) -> int:
    """Negations among `tokens`, without a "no" that only answers a question."""
    found = 0
    for place, token in enumerate(tokens):
        if token.form in NEGATIONS:
            after = tokens[place + 1].start if place + 1 < len(tokens) else token.end
            answers = token.form in ANSWERS and after - token.end > 1
            found += not answers
    return found


def akin(word: str, other: str) -> bool:
    """Whether two words look like forms of one word: their first 60 % are equal."""
    length = max(len(word), len(other))
    root = max(_ROOT, -(-length * 3 // 5))
    return word[:root] == other[:root] and len(word) >= root and len(other) >= root
