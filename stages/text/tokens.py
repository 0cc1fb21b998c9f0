"""Tokens of a text: the units that token overlap and word BLEU count."""

import re
import string
from typing import Final, Literal

from claimflow.stages.text.sentences import split_sentences
from claimflow.stages.text.stopwords import ENGLISH
from claimflow.stages.text.treebank import COMPOUNDS, treebank_words
from claimflow.stages.text.unicode_words import unicode_words

Tokens = Literal["treebank", "content", "unicode"]
"""treebank: words and punctuation as in the Penn Treebank, case kept.
content: lower-case English words that are no stop words; numbers by value.
unicode: case-folded words of any language, Chinese and Japanese by character."""

_NO_PUNCTUATION: Final = str.maketrans("", "", string.punctuation)
_NUMBER: Final = re.compile(r"\d+(?:e\d+)?")

# What COMPOUNDS can match in ASCII; elsewhere a dotless i passes for an i.
_COMPOUND: Final = ("cannot", "gimme", "gonna", "gotta", "lemme", "wanna")


def tokenize(text: str, *, tokens: Tokens = "treebank") -> list[str]:
    """Tokens of `text` in order, repeats included."""
    match tokens:
        case "treebank":
            return treebank_words(text[start:end] for start, end in split_sentences(text))
        case "content":
            return content_words(text)
        case "unicode":
            return unicode_words(text)


def tokenize_sentence(sentence: str, *, tokens: Tokens = "treebank") -> list[str]:
    """`tokenize` for a text that is known to be one sentence."""
    if tokens == "treebank":
        return treebank_words((sentence,))
    return tokenize(sentence, tokens=tokens)


def content_words(text: str) -> list[str]:
    """Lower-case words without ASCII punctuation and English stop words.

    Punctuation is deleted, not replaced: "3.14" is the number 314. Numbers are written
    "#314.0", so that 007 and 7, or digits of two scripts, are equal. Definition:
    continuous-eval 0.3, `DeterministicAnswerCorrectness`.
    """
    words = text.lower().translate(_NO_PUNCTUATION).split()
    words = [word for word in words if word not in ENGLISH]
    kept = " ".join(words)
    if not kept.isascii() or any(compound in kept for compound in _COMPOUND):
        words = COMPOUNDS.sub(r" \1 \2 ", f" {kept} ").split()
    return [_by_value(word) if word[0].isdecimal() else word for word in words]


def _by_value(word: str) -> str:
    return f"#{float(word)}" if _NUMBER.fullmatch(word) else word
