"""Tokens of a text: Penn Treebank words, content words, Unicode words, and character n-grams."""

import re
import string
from collections.abc import Callable, Sequence
from itertools import chain, groupby
from typing import Final, Generic, Literal

from claimflow.stages.text.sentences import Value, WordCache, split_sentences
from claimflow.stages.text.unicode_words import unicode_words
from claimflow.stages.text.word_lists import STOP_WORDS

Tokens = Literal["auto", "treebank", "content", "unicode"]
"""The units that token overlap and word BLEU count.

auto: treebank; in text that is mostly of scripts without spaces `unspaced_words`.
treebank: words and punctuation as in the Penn Treebank, case kept.
content: lower-case English words without stop words; numbers by value.
unicode: case-folded words of any language, Chinese and Japanese by character."""


def tokenize(text: str, *, tokens: Tokens = "auto") -> list[str]:
    """Tokens of `text` in order, repeats included."""
    if tokens == "auto" and lacks_spaces(text):
        return unspaced_words(text)
    if tokens == "content":
        return content_words(text)
    if tokens == "unicode":
        return unicode_words(text)
    return list(chain.from_iterable(_TOKENS.of_text(text)))


# Words of scripts without spaces.

_EAST_ASIAN: Final = (
    "\u2e80-\u2fd5\u3005\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9d\U00020000-\U0003ffff"
)
"""Han, Hiragana and Katakana."""

_SOUTH_EAST_ASIAN: Final = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ecd\u0edc-\u0edf\u1000-\u103f\u1050-\u108f"
    "\u1780-\u17d3\ua9e0-\ua9ef\uaa60-\uaa7f"
)
"""The letters and vowel signs of Thai, Lao, Burmese and Khmer."""

_UNSPACED: Final = re.compile(f"[{_EAST_ASIAN}{_SOUTH_EAST_ASIAN}]")
_PHONETIC: Final = re.compile(f"[{_SOUTH_EAST_ASIAN}]")


def lacks_spaces(*texts: str) -> bool:
    """Whether at least half of the Unicode words of `texts` are of scripts without spaces."""
    if not any(not text.isascii() and _UNSPACED.search(text) for text in texts):
        return False
    words = [word for text in texts for word in unicode_words(text)]
    return 2 * sum(map(_is_unspaced, words)) >= len(words)


def unspaced_words(text: str) -> list[str]:
    """Unicode words of `text`, characters of scripts without spaces as n-grams that overlap.

    Pairs of characters in Chinese and Japanese, triples of letters with their marks in Thai, Lao,
    Burmese and Khmer, which have few letters: there any two long texts share most letters, but
    few triples. Fewer characters between two other words are one token. Pairs are what search
    engines count where no dictionary says where words end: Nie and Ren, "Chinese information
    retrieval: using characters or words?", 1999.
    """
    tokens: list[str] = []
    for is_unspaced, words in groupby(unicode_words(text), _is_unspaced):
        run = list(words)
        if not is_unspaced:
            tokens += run
            continue
        size = 3 if _PHONETIC.match(run[0]) else 2
        last = max(1, len(run) - size + 1)
        tokens += ["".join(run[first : first + size]) for first in range(last)]
    return tokens


def _is_unspaced(word: str) -> bool:
    return _UNSPACED.match(word) is not None


_NO_PUNCTUATION: Final = str.maketrans("", "", string.punctuation)
_NUMBER: Final = re.compile(r"\d+(?:e\d+)?")
_COMPOUNDS: Final = re.compile(
    r"\b(can(?=not)|gim(?=me)|gon(?=na)|got(?=ta)|lem(?=me)|wan(?=na\s))(not|me|na|ta)\b",
    re.IGNORECASE,
)
# The words that _COMPOUNDS matches in ASCII text. In other text it also takes a dotless i as i.
_ASCII_COMPOUNDS: Final = ("cannot", "gimme", "gonna", "gotta", "lemme", "wanna")


def content_words(text: str) -> list[str]:
    """Lower-case words without ASCII punctuation and English stop words.

    Punctuation is deleted, not replaced: "3.14" is the number 314. Numbers are written
    "#314.0", so that 007 and 7, or digits of two scripts, are equal. Definition:
    continuous-eval 0.3, `DeterministicAnswerCorrectness`.
    """
    words = text.lower().translate(_NO_PUNCTUATION).split()
    words = [word for word in words if word not in STOP_WORDS]
    kept = " ".join(words)
    if not kept.isascii() or any(compound in kept for compound in _ASCII_COMPOUNDS):
        words = _COMPOUNDS.sub(r" \1 \2 ", f" {kept} ").split()
    return [_by_value(word) if word[0].isdecimal() else word for word in words]


def _by_value(word: str) -> str:
    return f"#{float(word)}" if _NUMBER.fullmatch(word) else word


# Penn Treebank tokens.

_Rule = tuple[re.Pattern[str], str]


def _rules(*rules: tuple[str, str]) -> tuple[_Rule, ...]:
    return tuple((re.compile(pattern), replacement) for pattern, replacement in rules)


_OPENING: Final = _rules(
    (r"([«“‘„]|`+)", r" \1 "),
    (r'^"', "``"),
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
_CLOSING: Final = (
    *_rules(
        (r"([»”’])", r" \1 "),
        (r"\"|''", " '' "),
        (r"\s+", " "),
        (r"([^' ])('(?:[sSmMdD]|)) ", r"\1 \2 "),
        (r"([^' ])('ll|'LL|'re|'RE|'ve|'VE|n't|N'T) ", r"\1 \2 "),
    ),
    (_COMPOUNDS, r" \1 \2 "),
    *_rules(
        (r"(?i)\b(d(?='ye)|more(?='n))('ye|'n)\b", r" \1 \2 "),
        (r"(?i) ('t)(is)\b", r" \1 \2 "),
        (r"(?i) ('t)(was)\b", r" \1 \2 "),
    ),
)
_CLOSERS: Final = "])}>\"'»”’ "
"""The characters that may follow the full stop at the end of a sentence."""

_PLAIN_WORD: Final = re.compile(r"([A-Za-z0-9]+)([,;:?!.]?)")


class Treebank(Generic[Value]):
    """Penn Treebank tokens of sentences, in the form that `function` gives to a list of tokens.

    Case is kept, and double quotes become `` and ''. The tokens equal those of NLTK 3.9.1's
    `word_tokenize` on a single sentence. No rule looks beyond the blanks around a piece of text,
    except those for the begin and the end of a sentence. So each piece between blanks is tokenized
    on its own, and what `function` returns for its tokens is cached. The tokens of a piece are
    cached for all instances.
    """

    def __init__(self, function: Callable[[Sequence[str]], Value]) -> None:
        self._function = function
        self._inner = WordCache(lambda piece: function(_INNER_TOKENS[piece]))
        self._last = WordCache(lambda piece: function(_LAST_TOKENS[piece]))

    def of_sentence(self, sentence: str) -> list[Value]:
        """What `function` returns for each piece of one sentence, in order."""
        pieces = sentence.rstrip().split(" ")
        last = pieces.pop()
        # Two quotation marks that begin a sentence are separated by another rule than within it.
        # Where only closers follow the last blank, the full stop stands before the blank.
        if "''" in sentence or '""' in sentence or not last.strip(_CLOSERS):
            return [self._function(_apply_rules(sentence))]
        return [*map(self._inner.__getitem__, pieces), self._last[last]]

    def of_text(self, text: str) -> list[Value]:
        """What `function` returns for each piece of all sentences, in order."""
        values: list[Value] = []
        for start, end in split_sentences(text):
            values += self.of_sentence(text[start:end])
        return values


def treebank_words(sentence: str) -> list[str]:
    """The Penn Treebank tokens of one sentence, in order (see `Treebank`)."""
    return list(chain.from_iterable(_TOKENS.of_sentence(sentence)))


def _inner_tokens(piece: str) -> tuple[str, ...]:
    """Tokens of a piece between two blanks."""
    return _plain_tokens(piece, last=False) or tuple(_apply_rules(f"x {piece} x")[1:-1])


def _last_tokens(piece: str) -> tuple[str, ...]:
    """Tokens of the piece between the last blank and the end of a sentence."""
    return _plain_tokens(piece, last=True) or tuple(_apply_rules(f"x {piece}")[1:])


_INNER_TOKENS: Final = WordCache(_inner_tokens)
_LAST_TOKENS: Final = WordCache(_last_tokens)
_TOKENS: Final = Treebank(tuple[str, ...])


def _plain_tokens(piece: str, *, last: bool) -> tuple[str, ...]:
    """Tokens of a word with at most one mark behind it; none for any other piece."""
    match = _PLAIN_WORD.fullmatch(piece)
    if match is None or match[1].lower() in _ASCII_COMPOUNDS:
        return ()
    word, mark = match.groups()
    return (piece,) if not mark or (mark == "." and not last) else (word, mark)


def _apply_rules(sentence: str) -> list[str]:
    text = _substitute(_OPENING, sentence)
    text = _substitute(_INNER, _separate_last_stop(text))
    return _substitute(_CLOSING, f" {text} ").split()


def _substitute(rules: tuple[_Rule, ...], text: str) -> str:
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text


def _separate_last_stop(text: str) -> str:
    """Separate the full stop that ends the sentence, and its closers, from the last word."""
    body = text.rstrip()
    core = body.rstrip(_CLOSERS)
    if len(core) < 2 or core[-1] != "." or core[-2] == ".":
        return text
    return f"{core[:-1]} . {body[len(core) :]} "
