"""Words and punctuation of English sentences in the manner of the Penn Treebank.

Behaves as NLTK 3.9.1's `word_tokenize` does on a single sentence.
"""

import re
from collections.abc import Iterable
from typing import Final

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
