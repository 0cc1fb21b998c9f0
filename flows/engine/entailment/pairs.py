"""From pairs of texts to features: evidence is looked for, and the claim aligned with it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from flows.engine.entailment.alignment import Alignment
from flows.engine.entailment.claim import Claim
from flows.engine.entailment.evidence import best_window, candidates
from flows.engine.entailment.features import measure
from flows.engine.entailment.premise import Premise
from stages.tools import Embedder, Pair

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    Vectors = Mapping[str, NDArray[float32]]

_CHARACTERS: Final = 2_000_000
"""Premises are held in groups of about this many characters, which bounds memory."""


class Measured(NamedTuple):
    """Features of a pair by name, and the characters `start:end` of the premise they are of."""

    features: dict[str, float]
    start: int
    end: int


class _Question(NamedTuple):
    pair: Pair
    premise: Premise
    claim: Claim
    candidates: list[list[int]]


def measure_pairs(pairs: Iterable[Pair], embedder: Embedder) -> dict[Pair, Measured]:
    """Features of the distinct `pairs`; a pair is left out where either text has no word.

    A premise is read once for all its claims. The embedder is asked for sentences of the
    claims and for the pieces of the premises that hold most of their words; it is not
    asked at all when there are none.
    """
    measured: dict[Pair, Measured] = {}
    for group in _groups(pairs):
        questions = list(_questions(group))
        vectors = _vectors(questions, embedder)
        measured |= {question.pair: _measure(question, vectors) for question in questions}
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
                found = [candidates(premise, part) for part in claim.parts]
                yield _Question(pair, premise, claim, found)


def _vectors(questions: Sequence[_Question], embedder: Embedder) -> "Vectors":
    texts = dict.fromkeys(chain.from_iterable(_texts(question) for question in questions))
    if not texts:
        return {}
    table = embedder.embed(list(texts))
    return dict(zip(table["text"], table["embedding"].to_numpy(), strict=True))


def _texts(question: _Question) -> Iterator[str]:
    for part, pieces in zip(question.claim.parts, question.candidates, strict=True):
        yield part.text
        yield from map(question.premise.piece, pieces)


def _measure(question: _Question, vectors: "Vectors") -> Measured:
    premise, claim = question.premise, question.claim
    pieces: dict[int, None] = {}
    nearest = []
    for part, found in zip(claim.parts, question.candidates, strict=True):
        cosines = {
            piece: float(vectors[part.text] @ vectors[premise.piece(piece)]) for piece in found
        }
        window = best_window(premise, part, cosines)
        nearest.append(max(cosines[piece] for piece in window if piece in cosines))
        pieces |= dict.fromkeys(window)
    evidence = list(chain.from_iterable(premise.tokens[piece] for piece in pieces))
    features = measure(Alignment(claim, evidence), premise, nearest)
    start, end = premise.pieces[min(pieces)].start, premise.pieces[max(pieces)].end
    return Measured(features, start, end)
