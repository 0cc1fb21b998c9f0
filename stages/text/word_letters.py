"""Texts spelled in letters that stand for words, as ROUGE-L and as token overlap see them."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from claimflow.stages.text.batches import Letters
from claimflow.stages.text.many_sentences import Sentences, find_sentences
from claimflow.stages.text.piece_letters import UNKNOWN, PieceLetters
from claimflow.stages.text.pieces import Pieces
from claimflow.stages.text.rouge import rouge_words
from claimflow.stages.text.sentences import Bounds, sentence_bounds
from claimflow.stages.text.tokens import Tokens, tokenize, tokenize_sentence
from claimflow.stages.text.unicode_words import composed, is_composed

_AT_ONCE: Final = 2_000_000


class Spelled(NamedTuple):
    """The words of a text that ROUGE-L counts, and its tokens."""

    words: str
    tokens: str


class Parts(NamedTuple):
    """Parts of a text: where they are, and for each what `Spelled` says of a text."""

    bounds: Bounds
    words: list[str]
    tokens: list[str]


class _Batch(NamedTuple):
    """The sentences of some texts, and of those `apart` what they are in truth."""

    found: Sentences
    words: list[str]
    tokens: list[str]
    apart: dict[int, Parts]

    def parts(self, number: int) -> Parts:
        """The sentences of one text."""
        if number in self.apart:
            return self.apart[number]
        own = slice(*self.found.firsts[number : number + 2])
        return Parts(self.found.bounds(number), self.words[own], self.tokens[own])


class WordLetters:
    """Spells texts; letters of two texts are the same where their words are.

    A letter with its marks is the same however they are written (NFC). The more texts at once,
    the faster.
    """

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._letters = Letters({UNKNOWN: UNKNOWN})
        self._pieces = PieceLetters(self._letters)

    def sentences(self, texts: Sequence[str]) -> list[Parts]:
        """The sentences of each text."""
        return self.sentences_and_texts(texts, ())[0]

    def texts(self, texts: Sequence[str]) -> list[Spelled]:
        """Each text as a whole."""
        return self.sentences_and_texts((), texts)[1]

    def sentences_and_texts(
        self, parted: Sequence[str], whole: Sequence[str]
    ) -> tuple[list[Parts], list[Spelled]]:
        """What `sentences` gives of `parted`, and what `texts` gives of `whole`, found at once."""
        whole = list(map(composed, whole))
        if self._tokens != "treebank":
            return list(map(self._parts, parted)), list(map(self._whole, whole))
        found = self._treebank([*parted, *whole])
        parts = [batch.parts(number) for batch, number in islice(found, len(parted))]
        return parts, [
            self._together(text, *place) for text, place in zip(whole, found, strict=True)
        ]

    @property
    def is_full(self) -> bool:
        """Whether so much is known that it is time to begin anew."""
        return self._letters.is_full or self._pieces.is_full

    def _parts(self, text: str) -> Parts:
        bounds = sentence_bounds(text)
        sentences = _cut(text, bounds)
        tokens = [tokenize_sentence(sentence, tokens=self._tokens) for sentence in sentences]
        words = list(map(self._words, sentences))
        return Parts(bounds, words, list(map(self._letters.spell, tokens)))

    def _whole(self, text: str) -> Spelled:
        tokens = self._letters.spell(tokenize(text, tokens=self._tokens))
        return Spelled(self._words(text), tokens)

    def _words(self, text: str) -> str:
        return self._letters.spell(rouge_words(text))

    def _together(self, text: str, batch: _Batch, number: int) -> Spelled:
        """The text of this number."""
        if number not in batch.apart:
            own = slice(*batch.found.firsts[number : number + 2])
            return Spelled("".join(batch.words[own]), "".join(batch.tokens[own]))
        # A sentence may end within what is one word for ROUGE-L: neither holds that word.
        return Spelled(self._words(text), "".join(batch.apart[number].tokens))

    def _treebank(self, texts: Sequence[str]) -> Iterator[tuple[_Batch, int]]:
        """For each text its batch, and its number there."""
        for some in _batches(texts):
            pieces = Pieces.of(some)
            found = find_sentences(some, pieces)
            apart = [n for n, text in enumerate(some) if n in found.apart or not is_composed(text)]
            others = self._apart([(some[n], found.bounds(n)) for n in apart])
            spelled = self._pieces.spell(pieces.distinct, found.codes, found.last)
            batch = _Batch(found, *spelled, dict(zip(apart, others, strict=True)))
            yield from ((batch, number) for number in range(len(some)))

    def _apart(self, texts: Sequence[tuple[str, Bounds]]) -> Iterator[Parts]:
        """The sentences of each text, which are not those that its pieces make."""
        lines = [line for text, bounds in texts for line in _cut(text, bounds)]
        words, tokens = map(iter, self._lines(lines) if lines else ([], []))
        for _, bounds in texts:
            count = len(bounds.starts)
            yield Parts(bounds, list(islice(words, count)), list(islice(tokens, count)))

    def _lines(self, lines: Sequence[str]) -> tuple[list[str], list[str]]:
        """The words and the tokens of what are known to be sentences."""
        pieces = Pieces.of(lines)
        kept, last = ~pieces.breaks, np.append(pieces.breaks[1:], False)
        return self._pieces.spell(pieces.distinct, pieces.codes[kept], last[kept])


def _batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Texts of at most so many characters together, or a longer one alone."""
    first = size = 0
    for number, text in enumerate(texts):
        size += len(text)
        if size > _AT_ONCE and number > first:
            yield texts[first:number]
            first, size = number, len(text)
    if first < len(texts):
        yield texts[first:]


def _cut(text: str, bounds: Bounds) -> list[str]:
    return [composed(text[start:end]) for start, end in zip(*bounds, strict=True)]
