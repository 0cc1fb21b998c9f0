"""Claims of a text by rules: what is said, split as finely and kept as fully as asked.

| atomicity | coverage | a sentence gives |
|---|---|---|
| low | high | itself |
| low | low | itself without details |
| high | high | every statement in it, each with its subject |
| high | low | the statements in it that are left without the details |

The rules are of English. A sentence of another language, one longer than the rules can
overlook, and one that they cannot take apart with certainty is a claim as it stands.
"""

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from claimflow.stages.text.claims.frame import first_finite
from claimflow.stages.text.claims.nonclaims import code_blocks, is_non_claim
from claimflow.stages.text.claims.plain import plain, without_connective
from claimflow.stages.text.claims.pronouns import Referents
from claimflow.stages.text.claims.split import split
from claimflow.stages.text.claims.tags import tag
from claimflow.stages.text.claims.tokens import TIMES, Clause, render, span, tokenize, trimmed
from claimflow.stages.text.claims.words import ENGLISH, FOREIGN
from claimflow.stages.text.refusals import is_refusal
from claimflow.stages.text.sentences import Span, split_sentences

Extent = Literal["low", "high"]

_LONGEST: Final = 1500
_MARKER: Final = re.compile(r"(?:(?:[-*+•‣◦–>]|#{1,6}|\(?\d{1,3}[.)]|\(?[a-zA-Z]\))\s+)+")
_MARKUP: Final = re.compile(rf"(?!{TIMES})\*\*|__|\s*\[\d{{1,3}}\]|`")
_LINK: Final = re.compile(r"\[([^\[\]\n]{1,200})\]\([^()\s]{1,300}\)")


class TextClaim(NamedTuple):
    """A claim and the characters `start:end` of the text that it was taken from."""

    claim: str
    start: int
    end: int


def decompose(text: str, *, atomicity: Extent, coverage: Extent) -> list[TextClaim]:
    """Claims of `text` in the order in which they are made, each once."""
    claims: dict[str, TextClaim] = {}
    referents = Referents()
    for sentence in _stating(text):
        for claim in _claims(text, sentence, referents, atomicity, coverage):
            claims.setdefault(claim.claim, claim)
    return sorted(claims.values(), key=lambda claim: (claim.start, claim.end))


def _stating(text: str) -> Iterator[Span]:
    """Sentences that can be true or false, without their list markers."""
    sentences = split_sentences(text)
    blocks = code_blocks(text)
    for start, end in sentences:
        while blocks and blocks[0][1] < start:
            blocks.pop(0)
        if blocks and blocks[0][0] <= start:
            continue
        piece = text[start:end]
        if is_non_claim(piece, alone=len(sentences) == 1) or is_refusal(piece):
            continue
        marker = _MARKER.match(piece)
        if marker is None or marker.end() < len(piece):
            yield Span(start + (marker.end() if marker else 0), end)


def _claims(
    text: str, sentence: Span, referents: Referents, atomicity: Extent, coverage: Extent
) -> list[TextClaim]:
    whole = TextClaim(_clean(text[sentence.start : sentence.end]), *sentence)
    kept_whole = (atomicity, coverage) == ("low", "high")
    if kept_whole or sentence.end - sentence.start > _LONGEST:
        return [whole]
    tokens = tokenize(text, *sentence)
    if not _is_english([token.low for token in tokens]):
        return [whole]
    clause = trimmed(tag(tokens))
    if first_finite(clause) is None:
        referents.note(clause)
        return [whole]
    told = without_connective(clause)
    if coverage == "low":
        told = plain(told)
    parts = split(referents.resolve(told)) if atomicity == "high" else [told]
    referents.note(clause)
    if parts == [clause] or not all(parts):
        return [whole]
    return [_claim(part, sentence) for part in parts]


def _claim(part: Clause, sentence: Span) -> TextClaim:
    start, end = span(part) or sentence
    return TextClaim(render(part), start, end)


def _clean(sentence: str) -> str:
    """The sentence without markup, on one line."""
    return " ".join(_LINK.sub(r"\1", _MARKUP.sub("", sentence)).split())


def _is_english(words: list[str]) -> bool:
    """Whether nothing speaks against English: a name alone may be of any language."""
    return sum(word in ENGLISH for word in words) >= sum(word in FOREIGN for word in words)
