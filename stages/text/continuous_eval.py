"""ROUGE-L and token overlap of continuous-eval 0.3: a text, or its sentences, against sources.

They differ from ours in the sentences, in the tokens that are counted, and in ROUGE-L. Its
BLEU is ours on characters.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from claimflow.stages.text.continuous_eval_rouge import EmptySourceError, Triple, rouge_with
from claimflow.stages.text.continuous_eval_sentences import punkt_sentences
from claimflow.stages.text.sentences import Span
from claimflow.stages.text.tokens import content_words


class Measures(NamedTuple):
    """A sentence of a text, or all of it, and what it has in common with one source."""

    position: int | None
    text: str
    span: Span
    rouge_l: Triple
    token_overlap: Triple


class _Part(NamedTuple):
    position: int | None
    text: str
    span: Span
    tokens: list[str]


def continuous_eval_measures(
    text: str, sources: Sequence[str], *, by_sentence: bool
) -> list[list[Measures]]:
    """Every sentence of `text`, or all of it, against the first source, the second, ...

    There is nothing where the library raises an error: for a text without sentences, and
    for all of `sources` when one of them holds only full stops and `text` more than
    punctuation.
    """
    if by_sentence:
        spans = punkt_sentences(text)
        parts = [_part(text, position, span) for position, span in enumerate(spans)]
    else:
        parts = [_part(text, None, Span(0, len(text)))]
    try:
        return [_against(source, parts) for source in sources] if parts else []
    except EmptySourceError:
        return []


def content_tokens(text: str) -> list[str]:
    """The content words of each of its sentences, in order, repeats included."""
    return [word for start, end in punkt_sentences(text) for word in content_words(text[start:end])]


def overlap_with(source: Sequence[str]) -> Callable[[Sequence[str]], Triple]:
    """Distinct tokens in common, over the tokens of each side with repeats."""
    in_source = frozenset(source)

    def overlap(tokens: Sequence[str]) -> Triple:
        hits = len(in_source.intersection(tokens))
        precision = hits / len(tokens) if tokens else 0.0
        recall = hits / len(source) if source else 0.0
        f1 = 2 * ((precision * recall) / (precision + recall)) if hits else 0.0
        return Triple(precision, recall, f1)

    return overlap


def _part(text: str, position: int | None, span: Span) -> _Part:
    part = text[span.start : span.end]
    # A sentence is cut into sentences once more for its tokens, and may fall apart then.
    return _Part(position, part, span, content_tokens(part))


def _against(source: str, parts: Sequence[_Part]) -> list[Measures]:
    rouge_l = rouge_with(source)
    overlap = overlap_with(content_tokens(source))
    return [
        Measures(position, text, span, rouge_l(text), overlap(tokens))
        for position, text, span, tokens in parts
    ]
