"""Tokens of a text: Penn Treebank words, content words and Unicode words."""

import re
import string
from collections.abc import Iterable
from typing import Final, Literal

from claimflow.stages.text.sentences import split_sentences
from claimflow.stages.text.unicode_words import unicode_words

# English function words that carry no content of their own.
#
# The list of NLTK's stop words corpus without its entries that hold an apostrophe: those
# can never match a word whose punctuation is gone.


ENGLISH: Final = frozenset(
    """
    a about above after again against ain all am an and any are aren as at be because been
    before being below between both but by can couldn d did didn do does doesn doing don down
    during each few for from further had hadn has hasn have haven having he her here hers
    herself him himself his how i if in into is isn it its itself just ll m ma me mightn more
    most mustn my myself needn no nor not now o of off on once only or other our ours
    ourselves out over own re s same shan she should shouldn so some such t than that the
    their theirs them themselves then there these they this those through to too under until
    up ve very was wasn we were weren what when where which while who whom why will with won
    wouldn y you your yours yourself yourselves
    """.split()
)


# Words and punctuation of English sentences in the manner of the Penn Treebank.
#
# Behaves as NLTK 3.9.1's `word_tokenize` does on a single sentence.


COMPOUNDS: Final = re.compile(
    r"\b(can(?=not)|gim(?=me)|gon(?=na)|got(?=ta)|lem(?=me)|wan(?=na\s))(not|me|na|ta)\b",
    re.IGNORECASE,
)
"""Two words written as one: cannot, gimme, gonna, gotta, lemme, wanna."""

CLOSERS: Final = "])}>\"'»”’ "
"""What may stand behind the full stop that ends a sentence."""

_Rule = tuple[re.Pattern[str], str]


def _rules(*rules: tuple[str, str]) -> tuple[_Rule, ...]:
    return tuple((re.compile(pattern), replacement) for pattern, replacement in rules)


_OPENING: Final = _rules(
    (r"([«“‘„]|`+)", r" \1 "),
    (r'(?m)^"', "``"),
    (r"``", " `` "),
    (r"""([ (\[{<])(?:"|'')""", r"\1 `` "),
    (r"'(?![sSmMtTdDnN])(?=\w\b)", r"' "),
)
_INNER: Final = _rules(
    (r"([:,])(\D)", r" \1 \2"),
    (r"([:,])$", r" \1 "),
    (r"(\.{2,}|[;@#$%&?!])", r" \1 "),
    (r"([^'])' ", r"\1 ' "),
    (r"(--|[*\][(){}<>])", r" \1 "),
)
_CLOSING: Final = _rules(
    (r"([»”’])", r" \1 "),
    (r"\"|''", " '' "),
    (r"\s+", " "),
    (r"([^' ])('(?:[sSmMdD]|)) ", r"\1 \2 "),
    (r"([^' ])('ll|'LL|'re|'RE|'ve|'VE|n't|N'T) ", r"\1 \2 "),
)
_CONTRACTIONS: Final = _rules(
    (r"(?i)\b(d(?='ye)|more(?='n))('ye|'n)\b", r" \1 \2 "),
    (r"(?i) ('t)(is)\b", r" \1 \2 "),
    (r"(?i) ('t)(was)\b", r" \1 \2 "),
)


def treebank_words(sentences: Iterable[str]) -> list[str]:
    """Tokens of `sentences` in order, case kept; double quotes become `` and ''."""
    # One sentence a line: the rules run once for all, and only two look at where one begins.
    text = "\n".join(sentence.replace("\n", "\t") for sentence in sentences)
    lines = _apply(_OPENING, text).split("\n")
    text = _apply(_INNER, "\n".join(map(_part_last_stop, lines)))
    text = _apply(_CLOSING, f" {text} ")
    text = COMPOUNDS.sub(r" \1 \2 ", text)
    return _apply(_CONTRACTIONS, text).split()


def _apply(rules: tuple[_Rule, ...], text: str) -> str:
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text


def _part_last_stop(text: str) -> str:
    """Part the full stop that ends the sentence, and the closers behind it, from its word."""
    body = text.rstrip()
    core = body.rstrip(CLOSERS)
    if len(core) < 2 or core[-1] != "." or core[-2] == ".":
        return text
    return f"{core[:-1]} . {body[len(core) :]} "


# Tokens of a text: the units that token overlap and word BLEU count.


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
