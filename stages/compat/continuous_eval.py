"""Lexical matches as continuous-eval 0.3 computes them.

They differ from ours in the sentences, in the tokens that are counted, and in ROUGE-L. Its BLEU is
our character BLEU.
"""

import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import polars as pl

from claimflow.stages.compat.punkt import punkt_sentences
from claimflow.stages.rows import MatchCompat, SentenceMatch
from claimflow.stages.sample_texts import Against, sources_of
from claimflow.stages.tables import SentenceMatches, schema
from claimflow.stages.text.bleu import character_bleus
from claimflow.stages.text.comparison import Comparison
from claimflow.stages.text.sentences import Span
from claimflow.stages.text.tokens import content_words

CONTINUOUS_EVAL: Final[MatchCompat] = "continuous-eval-0.3"


def compat_matches(
    samples: pl.DataFrame,
    *,
    against: Against,
    unit: Literal["sentence", "text"],
) -> SentenceMatches:
    """One row per sample, source and part of the response, by continuous-eval 0.3.

    `samples` has the fields of a sample's texts. The contexts are joined by line breaks; the
    reference and every other reference are a source each. A sample for which the library
    raises an error has no row: its response has no sentence, or a source of it holds only
    full stops. An empty response has one row as a whole, of zeros.
    """
    rows: list[dict[str, Any]] = []
    comparisons: list[Comparison] = []
    for sample in samples.iter_rows(named=True):
        sources = sources_of(sample, against) if sample["response"] is not None else []
        measured = continuous_eval_measures(
            sample["response"] or "",
            [source for _, source in sources],
            by_sentence=unit == "sentence",
        )
        # Where the library raises an error there are sources, but no measures.
        for (number, source), parts in zip(sources, measured, strict=False):
            key = {"sample_id": sample["sample_id"], "against": against, "source": number}
            rows += [key | _columns(part) for part in parts]
            comparisons.append(Comparison([part.text for part in parts], source))
    return pl.DataFrame(rows, schema=schema(SentenceMatch), orient="row").with_columns(
        bleu=pl.Series(character_bleus(comparisons), dtype=pl.Float64)
    )


class Triple(NamedTuple):
    """Precision is the share of a text found in its source, recall the reverse; in [0, 1]."""

    precision: float
    recall: float
    f1: float


class Measures(NamedTuple):
    """A sentence of a text, or all of it, and what it has in common with one source."""

    position: int | None
    text: str
    span: Span
    rouge_l: Triple
    token_overlap: Triple


def _columns(part: Measures) -> dict[str, Any]:
    return {
        "position": part.position,
        "sentence": part.text,
        "start": part.span.start,
        "end": part.span.end,
        **{f"rouge_l_{name}": value for name, value in part.rouge_l._asdict().items()},
        **{f"token_overlap_{name}": value for name, value in part.token_overlap._asdict().items()},
        "compat": CONTINUOUS_EVAL,
    }


def continuous_eval_measures(
    text: str, sources: Sequence[str], *, by_sentence: bool
) -> list[list[Measures]]:
    """Every sentence of `text`, or all of it, against the first source, the second, ...

    Empty where the library raises an error: for a text without sentences, and for all of
    `sources` when one of them holds only full stops and `text` more than punctuation.
    """
    spans = punkt_sentences(text) if by_sentence else [Span(0, len(text))]
    if not spans:
        return []
    parts = [text[start:end] for start, end in spans]
    # A sentence is split into sentences once more for its tokens, and may fall apart then.
    tokens = list(map(content_tokens, parts))
    positions = range(len(parts)) if by_sentence else [None]
    measured = []
    for source in sources:
        overlap = overlap_with(content_tokens(source))
        try:
            rouge_l = list(map(rouge_with(source), parts))
        except EmptySourceError:
            return []
        overlaps = map(overlap, tokens)
        columns = zip(positions, parts, spans, rouge_l, overlaps, strict=True)
        measured.append([Measures(*part) for part in columns])
    return measured


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


# ROUGE-L of the package `rouge` 1.0.1 at summary level, which continuous-eval 0.3 uses.
#
# Both texts are cut at every full stop. The distinct words that stand in the longest common
# subsequence of any two pieces are counted, over the distinct words of either text. Which
# of several equally long subsequences is taken matters then, so the rule for ties is kept.

_PUNCTUATION: Final = frozenset(string.punctuation)
_BLOCK: Final = 1024


class EmptySourceError(ValueError):
    """The source holds nothing but full stops: `rouge` gives no number for it."""


class _Piece(NamedTuple):
    """The words between two full stops, in order and distinct."""

    words: list[str]
    distinct: frozenset[str]


def rouge_with(source: str) -> Callable[[str], Triple]:
    """ROUGE-L of texts against `source`, which is prepared once for all of them.

    The function returned raises `EmptySourceError` when the source has no piece, unless its
    text is ASCII punctuation alone, or nothing: that has 0 against every source.
    """
    source_pieces = _pieces(source)
    in_source = frozenset[str]().union(*(piece.distinct for piece in source_pieces))

    def rouge(text: str) -> Triple:
        if _PUNCTUATION.issuperset(text):
            return Triple(0.0, 0.0, 0.0)
        if not source_pieces:
            raise EmptySourceError
        pieces = _pieces(text)
        distinct = frozenset[str]().union(*(piece.distinct for piece in pieces))
        common = len(_union(source_pieces, pieces))
        precision, recall = common / len(distinct), common / len(in_source)
        f1 = 2 * (precision * recall) / (precision + recall + 1e-8)
        return Triple(precision, recall, f1)

    return rouge


def _pieces(text: str) -> list[_Piece]:
    # A piece of white space alone is one empty word.
    lists = [part.split() or [""] for part in text.split(".") if part]
    return [_Piece(words, frozenset(words)) for words in lists]


def _union(source_pieces: Sequence[_Piece], pieces: Sequence[_Piece]) -> set[str]:
    """The words of the longest common subsequences of all pairs of pieces."""
    union: set[str] = set()
    for words, distinct in pieces:
        places = _places(words)
        for source_piece in source_pieces:
            common = distinct & source_piece.distinct
            if len(common) == 1:
                union |= common
            elif not common <= union:
                union.update(_common_words(source_piece.words, words, places))
    return union


def _places(words: Sequence[str]) -> dict[str, int]:
    """For each word the bits where it stands."""
    places: dict[str, int] = {}
    for place, word in enumerate(words):
        places[word] = places.get(word, 0) | 1 << place
    return places


def _common_words(
    source: Sequence[str], words: Sequence[str], places: Mapping[str, int]
) -> Iterator[str]:
    """One longest common subsequence, last word first.

    Walked back through the table of lengths L: equal words are taken; else the last word of
    the source is dropped if L without it exceeds L without the last of `words`, else the
    latter is. Unequal words leave L the larger of both, so the source's word goes if and
    only if L grew at the other: one bit of each cell decides. A row of the table is one
    integer (Hyyrö 2004, see `lcs_length`); rows are made again block by block, so that the memory
    stays proportional to the texts.
    """
    # A word that stands nowhere in the other text changes neither L nor the words taken.
    rows = [places[word] for word in source if word in places]
    blocks = [rows[first : first + _BLOCK] for first in range(0, len(rows), _BLOCK)]
    full = (1 << len(words)) - 1
    starts = [full]
    for block in blocks[:-1]:
        starts.append(_table(block, starts[-1], full)[-1])
    end = len(words)
    for block, start in zip(reversed(blocks), reversed(starts), strict=True):
        for here, row in zip(reversed(block), reversed(_table(block, start, full)), strict=True):
            end = ((here | (full ^ row)) & ((1 << end) - 1)).bit_length()
            if not end:
                return
            if here >> (end - 1) & 1:
                end -= 1
                yield words[end]


def _table(rows: Sequence[int], row: int, full: int) -> list[int]:
    """The rows of L: a bit is 0 where L grows at that word of the piece."""
    table = []
    for here in rows:
        matched = row & here
        row = ((row + matched) | (row - matched)) & full
        table.append(row)
    return table
