"""Tokens of a text: the units that token overlap and word BLEU count."""

import re
import string
import unicodedata
from typing import Final, Literal

from stages.text.sentences import split_sentences
from stages.text.stopwords import ENGLISH
from stages.text.treebank import COMPOUNDS, treebank_words

Tokens = Literal["treebank", "content", "unicode"]
"""treebank: words and punctuation as in the Penn Treebank, case kept.
content: lower-case English words that are no stop words; numbers by value.
unicode: case-folded words of any language, Chinese and Japanese by character."""

_NO_PUNCTUATION: Final = str.maketrans("", "", string.punctuation)
_NUMBER: Final = re.compile(r"\d+(?:e\d+)?")

_IDEOGRAPHS: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
# What `\w` leaves out of a word: vowel signs and other marks, joiners, whole Indic blocks.
_MARKS: Final = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf-\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u06d6-\u06ed\u0900-\u0963\u0971-\u0df3\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1-\u0ebc"
    "\u0ec8-\u0ece\u0f18-\u0f87\u102b-\u103e\u1056-\u109d\u17b4-\u17d3\u200c\u200d"
)
_LETTER: Final = rf"(?:(?![{_IDEOGRAPHS}])[\w{_MARKS}])"
_UNICODE: Final = re.compile(
    r"(?:(?<!\w)[-+−])?\d+(?:[.,]\d+)*"
    rf"|[{_IDEOGRAPHS}]"
    rf"|{_LETTER}+(?:['’]{_LETTER}+)*"
)
_THOUSANDS: Final = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_LONGEST_WORD: Final = 100


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
    kept = " ".join(word for word in words if word not in ENGLISH)
    return [_by_value(word) for word in COMPOUNDS.sub(r" \1 \2 ", f" {kept} ").split()]


def _by_value(word: str) -> str:
    return f"#{float(word)}" if _NUMBER.fullmatch(word) else word


def unicode_words(text: str) -> list[str]:
    """Case-folded words of any language; punctuation is no token.

    Numbers keep sign and decimal point and lose the commas between thousands. Chinese and
    Japanese, written without blanks, are taken by character.
    """
    return [_folded(word) for word in _UNICODE.findall(text)]


def _folded(word: str) -> str:
    if word.isascii():
        plain = word.lower()
    elif len(word) <= _LONGEST_WORD:
        plain = unicodedata.normalize("NFKC", word.replace("’", "'").replace("−", "-")).casefold()
    else:
        # Normalising takes quadratic time on a long run of combining marks.
        plain = word.casefold()
    return _THOUSANDS.sub("", plain) if "," in plain else plain
