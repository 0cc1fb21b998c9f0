"""The claims of one text, looked at one by one: what is wrong with them, and of how many."""

from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, get_args

from claimflow.stages.text.claims import TextClaim
from claimflow.stages.text.claims.standing import open_pronoun
from claimflow.stages.text.grounding import new_words, stating_sentences, uncovered, word_forms
from claimflow.stages.text.languages import language_of

Check = Literal["repeated", "unplaced", "new_words", "open_pronoun", "other_language", "uncovered"]
CHECKS: Final[tuple[Check, ...]] = get_args(Check)


class Written(NamedTuple):
    """A claim of the store: whether it has a place in its text, and the claim that it repeats."""

    claim: str
    placed: bool = True
    repeats: str | None = None


class Finding(NamedTuple):
    """A claim, or a sentence that no claim holds, and the words that speak against it.

    `words` are, by check: the claim that is repeated; none; words that the text has not; the
    pronoun; the claim's language; words of the sentence that no claim has.
    """

    check: Check
    said: str
    words: list[str]


class Looked(NamedTuple):
    """What was found, and how many claims or sentences each check could look at."""

    of: Counter[Check]
    findings: list[Finding]


def look(text: str | None, claims: Sequence[Written]) -> Looked:
    """All checks of the claims of one text.

    Without a text only what needs none: whether a claim is repeated or has an open pronoun.
    """
    looked = Looked(Counter(), [])
    language = language_of(text or "")
    of_claims = [language_of(one.claim) for one in claims]
    _alone(claims, [found or language for found in of_claims], looked)
    if text is not None and text.strip():
        sentences = stating_sentences(text)
        _words(text, language, claims, looked)
        _languages(language, sentences, list(zip(claims, of_claims, strict=True)), looked)
        looked.of["uncovered"] += len(sentences)
        for start, end, words in uncovered(sentences, [one.claim for one in claims], language):
            looked.findings.append(Finding("uncovered", text[start:end], words))
    return looked


def _alone(claims: Sequence[Written], languages: Sequence[str | None], looked: Looked) -> None:
    looked.of["repeated"] += len(claims)
    for one, language in zip(claims, languages, strict=True):
        if one.repeats is not None:
            looked.findings.append(Finding("repeated", one.claim, [one.repeats]))
        if language not in ("English", None):
            continue
        looked.of["open_pronoun"] += 1
        pronoun = open_pronoun(one.claim)
        if pronoun is not None:
            looked.findings.append(Finding("open_pronoun", one.claim, [pronoun]))


def _words(text: str, language: str | None, claims: Sequence[Written], looked: Looked) -> None:
    known = word_forms(text)
    looked.of["unplaced"] += len(claims)
    looked.of["new_words"] += len(claims)
    for one in claims:
        if not one.placed:
            looked.findings.append(Finding("unplaced", one.claim, []))
        words = new_words(one.claim, known, language)
        if words:
            looked.findings.append(Finding("new_words", one.claim, words))


def _languages(
    language: str | None,
    sentences: Sequence[TextClaim],
    claims: Sequence[tuple[Written, str | None]],
    looked: Looked,
) -> None:
    """Claims in a language that neither their text as a whole nor a sentence of it is in."""
    spoken = {language} - {None}
    if any(of_claim not in (language, None) for _, of_claim in claims):
        spoken |= {language_of(sentence.claim) for sentence in sentences} - {None}
    for one, of_claim in claims:
        if of_claim is not None and spoken:
            looked.of["other_language"] += 1
            if of_claim not in spoken:
                looked.findings.append(Finding("other_language", one.claim, [of_claim]))
