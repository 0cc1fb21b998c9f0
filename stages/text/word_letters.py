"""Texts spelled in letters that stand for words, as ROUGE-L and as token overlap see them."""

from operator import eq
from typing import Final

from stages.text.letters import END, Letters, Spelling
from stages.text.rouge import rouge_words
from stages.text.sentences import split_sentences
from stages.text.tokens import Tokens, tokenize, tokenize_sentence
from stages.text.treebank import treebank_words
from stages.text.treebank_pieces import in_pieces, piece_words

_UNKNOWN: Final = "\1"


class WordLetters:
    """Spells texts; letters of two texts are the same where their words are."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        # The first letter is that of a piece which cannot be spelled alone.
        self._letters = Letters({_UNKNOWN: _UNKNOWN})
        self._words = Spelling(lambda piece: self._letters.spell(rouge_words(piece)))
        self._words_of_piece = Spelling(self._rouge_piece)
        self._treebank = Spelling(self._treebank_piece)

    def words(self, text: str) -> str:
        """The words that ROUGE-L counts."""
        return self._words.of(text.split(" "))

    def sentences(self, sentences: list[str]) -> list[str]:
        """The tokens of what are known to be single sentences."""
        return self.of_sentences(sentences)[1]

    def text(self, text: str) -> str:
        """The tokens of a text."""
        return self.of_text(text)[1]

    def of_sentences(self, sentences: list[str]) -> tuple[list[str], list[str]]:
        """For each of what are known to be single sentences `words`, and its tokens."""
        if self._tokens == "treebank":
            words, tokens = self._treebank_sentences(sentences)
            return words.split(END)[:-1], tokens.split(END)[:-1]
        found = [tokenize_sentence(text, tokens=self._tokens) for text in sentences]
        return list(map(self.words, sentences)), list(map(self._letters.spell, found))

    def of_text(self, text: str) -> tuple[str, str]:
        """`words` of a text, and its tokens."""
        if self._tokens != "treebank":
            return self.words(text), self._letters.spell(tokenize(text, tokens=self._tokens))
        spans = split_sentences(text)
        words, tokens = self._treebank_sentences([text[start:end] for start, end in spans])
        starts, ends = zip(*spans, strict=True) if spans else ((), ())
        if any(map(eq, starts[1:], ends)):
            # A sentence ends within what is one word for ROUGE-L.
            words = self.words(text)
        return words.replace(END, ""), tokens.replace(END, "")

    @property
    def is_full(self) -> bool:
        """Whether so many words are known that it is time to begin anew."""
        return self._letters.is_full

    def _treebank_sentences(self, sentences: list[str]) -> tuple[str, str]:
        """The words and the tokens of all sentences, with an end behind each."""
        pieces = in_pieces(sentences)
        words, tokens = self._words_of_piece.of(pieces), self._treebank.of(pieces)
        if not pieces:
            words = "".join([self.words(s) + END for s in sentences])
        if not pieces or _UNKNOWN in tokens:
            tokens = "".join([self._letters.spell(treebank_words([s])) + END for s in sentences])
        return words, tokens

    def _rouge_piece(self, piece: str) -> str:
        return self._letters.spell(rouge_words(piece)) + (END if piece[-1:] == "\n" else "")

    def _treebank_piece(self, piece: str) -> str:
        words = piece_words(piece)
        if words is None:
            return _UNKNOWN
        return self._letters.spell(words) + (END if piece[-1:] == "\n" else "")
