"""From pairs of texts to features: evidence is looked for, and the claim aligned with it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple, Protocol

from claimflow.flows.engine.entailment.alignment import Alignment
from claimflow.flows.engine.entailment.claim import Claim
from claimflow.flows.engine.entailment.evidence import best_window
from claimflow.flows.engine.entailment.features import measure
from claimflow.flows.engine.entailment.premise import Premise
from claimflow.flows.engine.entailment.reading import legible, reading
from claimflow.stages.tools import Pair

_CHARACTERS: Final = 2_000_000
"""Premises are held in groups of about this many characters, which bounds memory."""


class Measured(NamedTuple):
    """Features of a pair by name, and the characters `start:end` of the premise they are of."""

    features: dict[str, float]
    start: int
    end: int


class Reader(Protocol):
    """Reads a premise and a claim together."""

    def logits(self, pairs: Sequence[tuple[str, str]]) -> Iterable[Sequence[float]]:
        """Of entailed, contradicted and neutral, for each of `pairs` in order."""
        ...


class _Question(NamedTuple):
    pair: Pair
    premise: Premise
    claim: Claim


def measure_pairs(pairs: Iterable[Pair], reader: Reader) -> dict[Pair, Measured]:
    """Features of the distinct `pairs`; a pair is left out where either text has no word.

    A premise is prepared once for all its claims. The reader is given what matters of it,
    and is not asked at all when there are no pairs.
    """
    measured: dict[Pair, Measured] = {}
    for group in _groups(pairs):
        questions = list(_questions(group))
        legibles = [question for question in questions if legible(question.pair.claim)]
        texts = [(reading(one.premise, one.claim), one.pair.claim) for one in legibles]
        read = reader.logits(texts) if texts else ()
        logits = dict(zip((one.pair for one in legibles), read, strict=True))
        for question in questions:
            measured[question.pair] = _measure(question, logits.get(question.pair))
    return measured


def _groups(pairs: Iterable[Pair]) -> Iterator[dict[str, list[Pair]]]:
    by_premise: dict[str, list[Pair]] = {}
    for pair in dict.fromkeys(pairs):
        by_premise.setdefault(pair.premise, []).append(pair)
    group: dict[str, list[Pair]] = {}
    characters = 0
    for premise, asked in by_premise.items():
        group[premise] = asked
        characters += len(premise) + sum(len(pair.claim) for pair in asked)
        if characters >= _CHARACTERS:
            yield group
            group, characters = {}, 0
    yield group


def _questions(group: Mapping[str, Sequence[Pair]]) -> Iterator[_Question]:
    for text, pairs in group.items():
        premise = Premise(text)
        for pair in pairs:
            claim = Claim(pair.claim)
            if premise.pieces and claim.parts:
                yield _Question(pair, premise, claim)


def _measure(question: _Question, logits: Sequence[float] | None) -> Measured:
    premise, claim = question.premise, question.claim
    windows = (best_window(premise, part) for part in claim.parts)
    pieces = dict.fromkeys(chain.from_iterable(windows))
    evidence = list(chain.from_iterable(premise.tokens[piece] for piece in pieces))
    features = measure(Alignment(claim, evidence), premise, logits)
    start, end = premise.pieces[min(pieces)].start, premise.pieces[max(pieces)].end
    return Measured(features, start, end)
