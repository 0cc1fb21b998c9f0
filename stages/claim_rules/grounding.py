"""Check claims against their text: ungrounded words, and sentences that no claim covers."""

import unicodedata
from collections.abc import Iterable
from typing import Final, NamedTuple

from claimflow.stages.claim_rules.decompose import TextClaim, decompose
from claimflow.stages.text.languages import FUNCTION_WORDS
from claimflow.stages.text.unicode_words import unicode_words
from claimflow.stages.text.word_lists import STOP_WORDS

_ENDING: Final = 3
_SHORTEST: Final = 4
_LONGEST_WORD: Final = 100
_NO_WORDS: Final[frozenset[str]] = frozenset()


class UncoveredSentence(NamedTuple):
    """A sentence `start:end` of a text, and its content words that are in no claim."""

    start: int
    end: int
    words: list[str]


def content_words(text: str, language: str | None) -> list[str]:
    """The words of a text, each once, that are no function words of English or of `language`.

    Words end at an apostrophe: "Einstein's" is "einstein". Accents are removed.
    """
    other = FUNCTION_WORDS.get(language or "", _NO_WORDS)
    return [word for word in _words(text) if word not in STOP_WORDS and word not in other]


def word_forms(text: str) -> frozenset[str]:
    """The forms of all words of a text, for a comparison that ignores endings."""
    return frozenset(form for word in _words(text) for form in _forms(word))


def ungrounded_words(claim: str, known: frozenset[str], language: str | None) -> list[str]:
    """The content words of a claim of which no form is in `known`, the forms of its text."""
    words = content_words(claim, language)
    return [word for word in words if known.isdisjoint(_forms(word))]


def uncovered_sentences(
    sentences: Iterable[TextClaim], claims: Iterable[str], language: str | None
) -> list[UncoveredSentence]:
    """The sentences of a text of which more than half of the content words are in no claim.

    `sentences` are its `declarative_sentences`.
    """
    known = word_forms("\n".join(claims))
    found = []
    for sentence, start, end, _ in sentences:
        lacking = ungrounded_words(sentence, known, language)
        if 2 * len(lacking) > len(content_words(sentence, language)):
            found.append(UncoveredSentence(start, end, lacking))
    return found


def declarative_sentences(text: str) -> list[TextClaim]:
    """The sentences of a text that can be true or false, each once and without markup."""
    return decompose(text, atomicity="low", coverage="high")


def _words(text: str) -> list[str]:
    words = (_without_accents(word.partition("'")[0]) for word in unicode_words(text))
    return list(dict.fromkeys(word for word in words if word))


def _without_accents(word: str) -> str:
    # Normalising takes quadratic time on a long run of combining marks.
    if word.isascii() or len(word) > _LONGEST_WORD:
        return word
    apart = unicodedata.normalize("NFD", word)
    return "".join(character for character in apart if unicodedata.category(character) != "Mn")


def _forms(word: str) -> list[str]:
    """The word, and a long word also without its last one, two and three letters."""
    if not word.isalpha():
        return [word]
    shortest = max(_SHORTEST, len(word) - _ENDING)
    return [word[:end] for end in range(min(shortest, len(word)), len(word) + 1)]
