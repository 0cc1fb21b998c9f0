"""Examples as the inputs of the network: token ids, and the place where the claim begins."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from random import Random
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from claimflow.flows.models.entailment.model import WINDOW, EncodedPair, encode_pairs
from claimflow.flows.models.entailment.texts import PreparedClaim, PreparedPremise, premise_excerpt
from tests.benchmarks.training.examples import Example, Label

_PAIR: Final = 25.6
"""Tokens that a batch has for each of its pairs, at least, so that none has too many pairs."""

CLS, SEP = 101, 102
_FULL_STOP = 1012
_ENDS: Final = frozenset({_FULL_STOP, 999, 1029, 1000})
"""The tokens `.`, `!`, `?` and `"`."""

_ROOM: Final = 20
"""Tokens that the window must have left before sentences are put around a premise."""

_premise = lru_cache(64)(PreparedPremise)


class EncodedExample(NamedTuple):
    """An example as the network reads it, and its place among all examples."""

    pair: EncodedPair
    label: Label | None
    weight: float
    number: int


def encoded(tokenizer: Tokenizer, pairs: Iterable[tuple[str, str]]) -> list[EncodedPair]:
    """Each pair of premise and claim, encoded as for judging."""
    return encode_pairs(tokenizer, [(_excerpt(*pair), pair[1]) for pair in pairs])


def _excerpt(premise: str, claim: str) -> str:
    return premise_excerpt(_premise(premise), PreparedClaim(claim))


class EncodedExamples:
    """Draws the batches of one epoch after another from `examples`.

    Every text is encoded once. `filling` are sentences to put around premises.
    """

    def __init__(
        self, tokenizer: Tokenizer, examples: Sequence[Example], filling: Sequence[str]
    ) -> None:
        numbers: dict[str, int] = {}
        rows = [(_excerpt(one.premise, one.claim), one.claim) for one in examples]
        self._examples = examples
        self._rows = [tuple(numbers.setdefault(text, len(numbers)) for text in row) for row in rows]
        self._filling = [numbers.setdefault(text, len(numbers)) for text in filling]
        found = tokenizer.encode_batch(list(numbers), add_special_tokens=False)
        self._texts: list[NDArray[np.uint16]] = [np.array(one.ids, np.uint16) for one in found]

    def epoch(self, seed: int, tokens: int) -> list[list[EncodedExample]]:
        """Batches of pairs of similar length, in a random order.

        A batch has at most that many tokens, with padding.
        """
        random = Random(seed)
        drawn = [
            EncodedExample(self._pair(number, random), one.label, one.weight, number)
            for number, one in enumerate(self._examples)
            for _ in range(int(one.times + random.random()))
        ]
        return _batches(drawn, tokens, random)

    def every(self, tokens: int) -> list[list[EncodedExample]]:
        """Batches with each example once, no premise among other sentences."""
        found = [
            EncodedExample(self._pair(number), one.label, one.weight, number)
            for number, one in enumerate(self._examples)
        ]
        return _batches(found, tokens, Random(0))

    def __len__(self) -> int:
        return len(self._examples)

    def _pair(self, number: int, random: Random | None = None) -> EncodedPair:
        premise, claim = (self._texts[text].tolist() for text in self._rows[number])
        claim = claim[: WINDOW // 2]
        room = WINDOW - 3 - len(claim)
        among = self._examples[number].among
        if random and random.random() < among and len(premise) < room - _ROOM:
            premise = self._among_others(premise, room, random)
        ids = (CLS, *premise[:room], SEP, *claim, SEP)
        return EncodedPair(ids, len(ids) - len(claim) - 1)

    def _among_others(self, premise: list[int], room: int, random: Random) -> list[int]:
        """The premise among one to five sentences of other documents, as many as fit."""
        count = random.randint(1, 5)
        before = random.randint(0, count)
        start = random.randrange(len(self._filling) - count)
        own = premise if premise[-1:] and premise[-1] in _ENDS else [*premise, _FULL_STOP]
        chosen = (
            self._filling[start : start + count]
            if random.random() < 0.5
            else random.sample(self._filling, count)
        )
        fitting = list(self._fitting(chosen, room - len(own)))
        parts = [*fitting[:before], own, *fitting[before:]]
        return [token for part in parts for token in part]

    def _fitting(self, chosen: Sequence[int], room: int) -> Iterator[list[int]]:
        for text in chosen:
            room -= len(self._texts[text])
            if room < 0:
                return
            yield self._texts[text].tolist()


def _batches(
    examples: list[EncodedExample], tokens: int, random: Random
) -> list[list[EncodedExample]]:
    examples.sort(key=lambda one: (len(one.pair.ids) // 8, random.random()))
    made: list[list[EncodedExample]] = [[]]
    for one in examples:
        room = tokens // len(one.pair.ids) if made[-1] else len(examples)
        if len(made[-1]) >= min(room, int(tokens / _PAIR)):
            made.append([])
        made[-1].append(one)
    random.shuffle(made)
    return made
