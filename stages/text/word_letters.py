"""Texts spelled in letters that stand for words, as ROUGE-L and as token overlap see them."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import eq
from typing import Final, NamedTuple

import polars as pl

from stages.text.letters import END, Letters
from stages.text.rouge import rouge_words
from stages.text.sentences import Bounds, sentence_bounds
from stages.text.tokens import Tokens, tokenize, tokenize_sentence
from stages.text.treebank import treebank_words
from stages.text.treebank_pieces import in_pieces, piece_words

_UNKNOWN: Final = "\1"
_AT_ONCE: Final = 8_192
_MOST: Final = 50_000_000

Groups = Sequence[Sequence[str]]


class Spelled(NamedTuple):
    """For each of some texts the words that ROUGE-L counts, and its tokens."""

    words: list[str]
    tokens: list[str]


class WordLetters:
    """Spells texts; letters of two texts are the same where their words are.

    Texts come in groups, as do their spellings. The more of them at once, the faster.
    """

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        # The first letter is that of a piece which cannot be spelled alone.
        self._letters = Letters({_UNKNOWN: _UNKNOWN})
        self._pieces: dict[str, tuple[str, str]] = {}
        self._size = 0

    def sentences(self, groups: Groups) -> list[Spelled]:
        """Of what are known to be single sentences."""
        return self.sentences_and_texts(groups, ())

    def texts(self, groups: Groups) -> list[Spelled]:
        """Of texts of any number of sentences."""
        return self.sentences_and_texts((), groups)

    def sentences_and_texts(self, sentences: Groups, texts: Groups) -> list[Spelled]:
        """What `sentences` gives, and behind it what `texts` does."""
        groups = [*sentences, *texts]
        singles = sum(map(len, sentences))
        spell = self._treebank if self._tokens == "treebank" else self._one_by_one
        words, tokens = map(iter, spell(list(chain.from_iterable(groups)), singles))
        return [
            Spelled(list(islice(words, len(group))), list(islice(tokens, len(group))))
            for group in groups
        ]

    @property
    def is_full(self) -> bool:
        """Whether so much is known that it is time to begin anew."""
        return self._letters.is_full or self._size > _MOST

    def _one_by_one(self, texts: Sequence[str], singles: int) -> Spelled:
        found = [tokenize_sentence(text, tokens=self._tokens) for text in texts[:singles]]
        found += [tokenize(text, tokens=self._tokens) for text in texts[singles:]]
        return Spelled(list(map(self._words, texts)), list(map(self._letters.spell, found)))

    def _words(self, text: str) -> str:
        return self._letters.spell(rouge_words(text))

    def _treebank(self, texts: Sequence[str], singles: int) -> Spelled:
        """Of texts, the first so many of which are single sentences."""
        bounds = [sentence_bounds(text) for text in texts[singles:]]
        sentences = [
            text[start:end]
            for text, found in zip(texts[singles:], bounds, strict=True)
            for start, end in zip(*found, strict=True)
        ]
        spelled = self._treebank_sentences([*texts[:singles], *sentences])
        counts = [len(found.starts) for found in bounds]
        words, tokens = ([*p[:singles], *_joined(p[singles:], counts)] for p in spelled)
        for number, found in enumerate(bounds, singles):
            if _touch(found):
                # A sentence ends within what is one word for ROUGE-L.
                words[number] = self._words(texts[number])
        return Spelled(words, tokens)

    def _treebank_sentences(self, sentences: Sequence[str]) -> Spelled:
        words: list[str] = []
        tokens: list[str] = []
        for first in range(0, len(sentences), _AT_ONCE):
            some = self._by_piece(sentences[first : first + _AT_ONCE])
            words += some.words
            tokens += some.tokens
        for number, text in enumerate(tokens):
            if _UNKNOWN in text:
                tokens[number] = self._letters.spell(treebank_words([sentences[number]]))
        return Spelled(words, tokens)

    def _by_piece(self, sentences: Sequence[str]) -> Spelled:
        pieces = pl.Series("piece", [in_pieces(sentences)]).str.split(" ").explode()
        distinct = pieces.unique()
        words, tokens = zip(*self._spellings(distinct.to_list()), strict=True)
        table = pl.DataFrame({"piece": distinct, "words": words, "tokens": tokens})
        spelled = (
            pieces.to_frame()
            .join(table, on="piece", how="left", maintain_order="left")
            .select(pl.col("words", "tokens").str.join(""))
        )
        return Spelled(*(text.split(END)[:-1] for text in spelled.row(0)))

    def _spellings(self, pieces: list[str]) -> Iterator[tuple[str, str]]:
        """The words and the tokens of pieces, each piece looked at once."""
        known = self._pieces
        new = [piece for piece in pieces if piece not in known]
        self._size += sum(map(len, new))
        for piece, tokens in zip(new, piece_words(new), strict=True):
            end = END if piece[-1:] == "\n" else ""
            spelled = _UNKNOWN if tokens is None else self._letters.spell(tokens)
            known[piece] = self._words(piece) + end, spelled + end
        return map(known.__getitem__, pieces)


def _joined(parts: Iterable[str], counts: Iterable[int]) -> Iterator[str]:
    """The first so many parts as one, the next so many, and so on."""
    rest = iter(parts)
    return ("".join(islice(rest, count)) for count in counts)


def _touch(bounds: Bounds) -> bool:
    """Whether a sentence starts where another one ends."""
    return any(map(eq, bounds.starts[1:], bounds.ends))
