"""Lexical matching: the words that a response shares with its sources."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final, Literal, NamedTuple

import polars as pl

from stages.base import Stage
from stages.match_compat import compat_matches
from stages.rows import SentenceMatch
from stages.tables import Samples, SentenceMatches, schema
from stages.text.agreement import Agreement
from stages.text.bleu import character_bleus, word_bleus
from stages.text.chrf import chrfs
from stages.text.comparison import Comparison
from stages.text.overlap import token_overlaps
from stages.text.rouge import rouge_ls
from stages.text.sentences import split_sentences
from stages.text.tokens import Tokens
from stages.text.word_letters import WordLetters
from stages.words import MatchCompat, SampleField

_AT_ONCE: Final = 256
_READ: Final = ("sample_id", "response", "reference", "other_references", "retrieved_contexts")


class _Pair(NamedTuple):
    """A response's parts and one of its sources, as they are and as words and tokens."""

    sample_id: str
    number: int | None
    spans: list[tuple[int | None, int, int]]
    characters: Comparison
    words: Comparison
    tokens: Comparison


class LexicalMatch(Stage):
    """Compare each sentence of a response, or all of it, with its sources word by word.

    `against` retrieved_contexts: one source, the contexts joined by line breaks.
    `against` reference: the reference and every other reference, each on its own.
    `tokens` are what token overlap counts, and BLEU with `bleu_unit` word. ROUGE-L always
    counts words between white space and full stops.
    `compat` adds the rows that this library would make, with sentences and tokens of its own.

    A missing source and a missing or blank response give no row; an empty source gives
    rows of zeros.
    """

    use: ClassVar[str] = "lexical_match"
    version: ClassVar[int] = 3
    by_row: ClassVar[bool] = True
    columns: ClassVar = {"samples": _READ}

    against: Literal["reference", "retrieved_contexts"]
    unit: Literal["sentence", "text"] = "sentence"
    tokens: Tokens = "treebank"
    bleu_unit: Literal["character", "word"] = "character"
    compat: MatchCompat | None = None

    def reads(self) -> frozenset[SampleField]:
        """The response and what it is compared with."""
        return frozenset(("response", self.against))

    def run(self, samples: Samples) -> SentenceMatches:
        """One row per sample, source and part of the response, sample by sample."""
        read = samples.select(_READ)
        letters = WordLetters(self.tokens)
        made = [pl.DataFrame(schema=schema(SentenceMatch))]
        for part in read.iter_slices(_AT_ONCE):
            pairs = [
                p for sample in part.iter_rows(named=True) for p in self._pairs(sample, letters)
            ]
            columns = self._places(pairs) | self._measures(pairs)
            made.append(pl.DataFrame(columns, schema=schema(SentenceMatch)))
            if letters.is_full:
                letters = WordLetters(self.tokens)
        matches = pl.concat(made)
        if self.compat is None:
            return matches
        compat = compat_matches(read, against=self.against, unit=self.unit)
        place = read.select("sample_id").with_row_index("place")
        placed = matches.vstack(compat).join(place, on="sample_id", maintain_order="left")
        return placed.sort("place", maintain_order=True).drop("place")

    def _pairs(self, sample: dict[str, Any], letters: WordLetters) -> Iterator[_Pair]:
        response = sample["response"] or ""
        spans = self._spans(response)
        if not spans:
            return
        texts = [response[start:end] for _, start, end in spans]
        if self.unit == "text":
            words, tokens = ([part] for part in letters.of_text(response))
        else:
            words, tokens = letters.of_sentences(texts)
        for number, source in _sources(sample, self.against):
            source_words, source_tokens = letters.of_text(source)
            yield _Pair(
                sample["sample_id"],
                number,
                spans,
                Comparison(texts, source),
                Comparison(words, source_words),
                Comparison(tokens, source_tokens),
            )

    def _spans(self, response: str) -> list[tuple[int | None, int, int]]:
        """Position, start and end of each part of the response."""
        sentences = split_sentences(response)
        if self.unit == "text" and sentences:
            return [(None, 0, len(response))]
        return [(position, start, end) for position, (start, end) in enumerate(sentences)]

    def _places(self, pairs: Sequence[_Pair]) -> dict[str, Any]:
        """The columns that say what was compared with what."""
        spans = [(pair, *span) for pair in pairs for span in pair.spans]
        return {
            "sample_id": [pair.sample_id for pair, *_ in spans],
            "against": [self.against] * len(spans),
            "source": [pair.number for pair, *_ in spans],
            "position": [position for _, position, _, _ in spans],
            "sentence": [text for pair in pairs for text in pair.characters.texts],
            "start": [start for _, _, start, _ in spans],
            "end": [end for _, _, _, end in spans],
        }

    def _measures(self, pairs: Sequence[_Pair]) -> dict[str, Any]:
        """The columns that say how well they agree."""
        characters = [pair.characters for pair in pairs]
        tokens = [pair.tokens for pair in pairs]
        overlap = token_overlaps(tokens)
        by_character = self.bleu_unit == "character"
        return {
            **_columns("rouge_l", rouge_ls([pair.words for pair in pairs])),
            **_columns("token_overlap", overlap.distinct),
            **_columns("clipped_overlap", overlap.clipped),
            "bleu": character_bleus(characters) if by_character else word_bleus(tokens),
            "chrf": chrfs(characters) if self.unit == "text" else None,
            "compat": None,
        }


def _columns(measure: str, agreement: Agreement) -> dict[str, Any]:
    return {f"{measure}_{name}": column for name, column in agreement._asdict().items()}


def _sources(sample: dict[str, Any], against: str) -> Iterator[tuple[int | None, str]]:
    """The texts to compare with, each with its number."""
    if against == "reference":
        references = [sample["reference"], *(sample["other_references"] or ())]
        yield from ((i, text) for i, text in enumerate(references) if text is not None)
    elif sample["retrieved_contexts"] is not None:
        yield None, "\n".join(text for text in sample["retrieved_contexts"] if text is not None)
