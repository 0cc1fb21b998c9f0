"""The numbers that the entailment model weighs: of each pair, its evidence and its features.

For each sentence of a claim the evidence is one to three neighbouring pieces of the premise. The
tokens of the claim are aligned with those of all its evidence, and the features are counted on
this alignment; two more come from the network's logits.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Final, NamedTuple

from claimflow.flows.models.entailment.texts import (
    KIND_WEIGHTS,
    ClaimPart,
    PreparedClaim,
    PreparedPremise,
    is_mostly_latin,
    numbers_as_in,
    premise_excerpt,
    spelled_out,
)
from claimflow.flows.models.entailment.tokens import Kind, Token, is_content, stem
from claimflow.flows.models.entailment.word_lists import ANSWERS, NEGATIONS
from claimflow.flows.models.entailment.word_relations import ROOT_LETTERS, opposites, share_root
from claimflow.stages.tools import Pair

FEATURES_VERSION: Final = 4
"""Raised when the same texts start to give other numbers; part of the model's identity."""

NETWORK_FEATURES: Final = ("read_entailed", "read_contradicted")
"""The features that come from the network's logits."""

SHARED_FEATURES: Final = (
    "complete", "number_missing", "number_alone_missing", "denied", "opposite"
)  # fmt: skip
"""The counted features that are weighed with those of the network, which overlooks them."""

LEXICAL_FEATURES: Final = (*SHARED_FEATURES, "covered")
"""The features that are weighed where the network cannot read the claim."""

_EXACT_KINDS: Final[tuple[Kind, ...]] = ("number", "calendar")
"""Kinds of tokens that no other token can stand for."""

_GROUP_CHARACTERS: Final = 2_000_000
"""Prepared premises are held in groups of about this many characters, which bounds memory."""

_CANDIDATES: Final = 4
"""Pieces around which evidence is searched."""

_WIDEST: Final = 3
"""Neighbouring pieces that one window of evidence joins at most."""

_PIECE_COST: Final = 0.06
"""The share of coverage that one more piece in the window must add."""


class PairFeatures(NamedTuple):
    """Features of a pair by name, and the evidence `start:end` in characters of the premise."""

    features: dict[str, float]
    start: int
    end: int


ReadLogits = Callable[[Sequence[tuple[str, str]]], Iterable[Sequence[float]]]
"""Logits of entailed, contradicted and neutral for each (excerpt of a premise, claim), in order."""


class _PreparedPair(NamedTuple):
    pair: Pair
    premise: PreparedPremise
    claim: PreparedClaim


def measure_pairs(pairs: Iterable[Pair], read_logits: ReadLogits) -> dict[Pair, PairFeatures]:
    """Features of the distinct `pairs`, without those where either text has no word.

    A premise is prepared once for all its claims. `read_logits` is called only where the network
    can read a claim, with an excerpt of each premise and the claim's numbers written as there.
    """
    measured: dict[Pair, PairFeatures] = {}
    for group in _groups(pairs):
        prepared = list(_prepare(group))
        readable = [one for one in prepared if is_mostly_latin(one.pair.claim)]
        excerpts = (spelled_out(premise_excerpt(one.premise, one.claim)) for one in readable)
        texts = [
            (excerpt, numbers_as_in(excerpt, spelled_out(one.pair.claim)))
            for excerpt, one in zip(excerpts, readable, strict=True)
        ]
        rows = read_logits(texts) if texts else ()
        logits = dict(zip((one.pair for one in readable), rows, strict=True))
        for one in prepared:
            measured[one.pair] = _measure_pair(one, logits.get(one.pair))
    return measured


def _groups(pairs: Iterable[Pair]) -> Iterator[dict[str, list[Pair]]]:
    """The distinct pairs by premise, in groups of bounded size."""
    by_premise: dict[str, list[Pair]] = {}
    for pair in dict.fromkeys(pairs):
        by_premise.setdefault(pair.premise, []).append(pair)
    group: dict[str, list[Pair]] = {}
    characters = 0
    for premise, of_premise in by_premise.items():
        group[premise] = of_premise
        characters += len(premise) + sum(len(pair.claim) for pair in of_premise)
        if characters >= _GROUP_CHARACTERS:
            yield group
            group, characters = {}, 0
    yield group


def _prepare(group: Mapping[str, Sequence[Pair]]) -> Iterator[_PreparedPair]:
    for text, pairs in group.items():
        premise = PreparedPremise(text)
        for pair in pairs:
            claim = PreparedClaim(pair.claim)
            if premise.pieces and claim.parts:
                yield _PreparedPair(pair, premise, claim)


def _measure_pair(prepared: _PreparedPair, logits: Sequence[float] | None) -> PairFeatures:
    premise, claim = prepared.premise, prepared.claim
    windows = (best_window(premise, part) for part in claim.parts)
    pieces = dict.fromkeys(chain.from_iterable(windows))
    evidence = list(chain.from_iterable(premise.tokens[piece] for piece in pieces))
    features = measure(Alignment(claim, evidence), premise, logits)
    start, end = premise.pieces[min(pieces)].start, premise.pieces[max(pieces)].end
    return PairFeatures(features, start, end)


def measure(
    alignment: "Alignment", premise: PreparedPremise, logits: Sequence[float] | None
) -> dict[str, float]:
    """Features by name: `NETWORK_FEATURES` where there are `logits`, and `LEXICAL_FEATURES`.

    The lexical features are whether the evidence has every word of the claim (`complete`),
    whether the premise lacks a number, day or month of it (`number_missing`), and nothing else
    is missing (`number_alone_missing`), whether one side negates what the other says (`denied`)
    or says the opposite (`opposite`), and the share of the claim's content in the evidence
    (`covered`).
    """
    complete = not alignment.missing
    inexact = [
        token
        for token in alignment.missing
        if token.kind in _EXACT_KINDS and token.key not in premise.pieces_by_key
    ]
    in_claim, in_evidence = alignment.negations
    return {
        **(_log_odds(*map(float, logits)) if logits is not None else {}),
        "complete": float(complete),
        "number_missing": float(bool(inexact)),
        "number_alone_missing": float(bool(inexact) and len(inexact) == len(alignment.missing)),
        "denied": float(complete and (in_claim - in_evidence) % 2 == 1),
        "opposite": float(alignment.opposed),
        "covered": alignment.covered(alignment.missing),
    }


def _log_odds(entailed: float, contradicted: float, neutral: float) -> dict[str, float]:
    """Log odds of entailed against the others, and of contradicted against neutral."""
    high = max(contradicted, neutral)
    either = high + math.log1p(math.exp(min(contradicted, neutral) - high))
    odds = entailed - either, contradicted - neutral
    return dict(zip(NETWORK_FEATURES, odds, strict=True))


def best_window(premise: PreparedPremise, part: ClaimPart) -> range:
    """One to three neighbouring pieces that cover most of `part`; among equals the first."""
    found = set(candidates(premise, part))
    near = sorted({piece + step for piece in found for step in range(1 - _WIDEST, _WIDEST)})
    hits = {
        piece: {token.key for token in premise.tokens[piece]} & part.weights.keys()
        for piece in near
        if 0 <= piece < len(premise.pieces)
    }
    windows = (
        range(first, first + width)
        for width in range(1, _WIDEST + 1)
        for first in hits
        if first + width - 1 in hits and found & set(range(first, first + width))
    )

    def score(window: range) -> float:
        keys = set(chain.from_iterable(hits[piece] for piece in window))
        covered = sum(part.weights[key] for key in sorted(keys)) / part.total
        return round(covered - _PIECE_COST * (len(window) - 1), 9)

    return max(windows, key=score)


def candidates(premise: PreparedPremise, part: ClaimPart) -> list[int]:
    """The four pieces that have most of the content of `part`; among equals the first.

    Every piece of the premise counts; time is linear in the occurrences of the words.
    """
    scores: dict[int, float] = {}
    for key, weight in part.weights.items():
        for piece in premise.pieces_by_key.get(key, ()):
            scores[piece] = scores.get(piece, 0.0) + weight
    best = sorted(scores, key=lambda piece: (-scores[piece], piece))[:_CANDIDATES]
    others = (piece for piece in range(len(premise.pieces)) if piece not in scores)
    return best + [piece for piece, _ in zip(others, range(_CANDIDATES - len(best)), strict=False)]


class Alignment:
    """The tokens of `claim` aligned with those of its `evidence`.

    `content` are the content tokens of the claim; `absent` those whose key the evidence lacks;
    `missing` those of `absent` that also have no other form of the same word in the evidence.
    """

    def __init__(self, claim: PreparedClaim, evidence: Sequence[Token]) -> None:
        self.tokens = claim.tokens
        self.evidence = evidence
        self.content = [t for t in claim.tokens if is_content(t)] or claim.tokens
        self.keys = {token.key for token in claim.tokens}
        evidence_keys = {token.key for token in evidence}
        self.unshared = [t for t in evidence if is_content(t) and t.key not in self.keys]
        self.absent = [token for token in self.content if token.key not in evidence_keys]
        by_start: dict[str, set[str]] = {}
        for token in self.unshared:
            by_start.setdefault(token.form[:ROOT_LETTERS], set()).add(token.form)
        other_forms = {
            token.form
            for token in {token.form: token for token in self.absent}.values()
            if token.kind != "number"
            and any(
                share_root(token.form, form) for form in by_start.get(token.form[:ROOT_LETTERS], ())
            )
        }
        self.missing = [token for token in self.absent if token.form not in other_forms]

    def covered(self, missing: Iterable[Token]) -> float:
        """Share of the claim's content that is not `missing`, weighted by kind."""
        total = sum(KIND_WEIGHTS[token.kind] for token in self.content)
        return 1 - sum(KIND_WEIGHTS[token.kind] for token in missing) / total

    @cached_property
    def opposed(self) -> bool:
        """Whether the evidence has the opposite of a missing word."""
        unshared = {stem(token.form) for token in self.unshared}
        return any(not unshared.isdisjoint(opposites(token.form)) for token in self.missing)

    @cached_property
    def negations(self) -> tuple[int, int]:
        """Negations in the claim, and in the evidence around the content that both share.

        Where the evidence contains the claim verbatim, only that passage counts.
        """
        near = self._verbatim() or self._shared()
        return _count_negations(self.tokens), _count_negations(
            self.evidence[near.start : near.stop]
        )

    def _shared(self) -> range:
        """The evidence from two tokens before the first shared one to two after the last."""
        places = [
            place
            for place, token in enumerate(self.evidence)
            if is_content(token) and token.key in self.keys
        ]
        return range(max(0, places[0] - 2), places[-1] + 3) if places else range(len(self.evidence))

    def _verbatim(self) -> range:
        """The claim's verbatim passage in the evidence and two tokens before it, or nothing."""
        claim = [token.key for token in self.tokens]
        evidence = [token.key for token in self.evidence]
        for start in range(len(evidence) - len(claim) + 1):
            if evidence[start] == claim[0] and evidence[start : start + len(claim)] == claim:
                return range(max(0, start - 2), start + len(claim))
        return range(0)


def _count_negations(tokens: Sequence[Token]) -> int:
    """Negations among `tokens`, without a "no" that only answers a question."""
    found = 0
    for place, token in enumerate(tokens):
        if token.form in NEGATIONS:
            after = tokens[place + 1].start if place + 1 < len(tokens) else token.end
            is_answer = token.form in ANSWERS and after - token.end > 1
            found += not is_answer
    return found
