"""Texts spelled in letters that stand for words, as ROUGE-L and as token overlap see them."""

from typing import Final

from stages.text.letters import END, Letters, Spelling
from stages.text.rouge import rouge_words
from stages.text.sentences import split_sentences
from stages.text.tokens import Tokens, tokenize
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
        self._treebank = Spelling(self._treebank_piece)

    def words(self, text: str) -> str:
        """The words that ROUGE-L counts."""
        return self._words.of(text.split(" "))

    def sentences(self, sentences: list[str]) -> list[str]:
        """The tokens of what are known to be single sentences."""
        if self._tokens == "treebank":
            return self._treebank_words(sentences).split(END)[:-1]
        return [self._letters.spell(tokenize(text, tokens=self._tokens)) for text in sentences]

    def text(self, text: str) -> str:
        """The tokens of a text."""
        if self._tokens == "treebank":
            sentences = [text[start:end] for start, end in split_sentences(text)]
            return self._treebank_words(sentences).replace(END, "")
        return self._letters.spell(tokenize(text, tokens=self._tokens))

    @property
    def is_full(self) -> bool:
        """Whether so many words are known that it is time to begin anew."""
        return self._letters.is_full

    def _treebank_words(self, sentences: list[str]) -> str:
        """The tokens of all sentences, with an end behind each."""
        spelled = self._treebank.of(in_pieces(sentences))
        if not spelled or _UNKNOWN in spelled:
            return "".join([self._letters.spell(treebank_words([s])) + END for s in sentences])
        return spelled

    def _treebank_piece(self, piece: str) -> str:
        words = piece_words(piece)
        if words is None:
            return _UNKNOWN
        return self._letters.spell(words) + (END if piece[-1:] == "\n" else "")
