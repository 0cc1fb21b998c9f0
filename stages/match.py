"""Lexical matching: the words that a response shares with its sources."""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Literal, NamedTuple

import polars as pl

from stages.base import Stage
from stages.rows import SentenceMatch
from stages.tables import Samples, SentenceMatches, schema
from stages.text.bleu import character_bleu_with, word_bleu_with
from stages.text.overlap import token_overlap_with
from stages.text.rouge import rouge_l_with
from stages.text.sentences import split_sentences
from stages.text.tokens import Tokens, tokenize, tokenize_sentence
from stages.words import SampleField


class _Part(NamedTuple):
    """A sentence of a response, or all of it, with its tokens."""

    position: int | None
    start: int
    end: int
    text: str
    tokens: list[str]


class LexicalMatch(Stage):
    """Compare each sentence of a response, or all of it, with its sources word by word.

    `against` retrieved_contexts: one source, the contexts joined by line breaks.
    `against` reference: the reference and every other reference, each on its own.
    `tokens` are what token overlap counts, and BLEU with `bleu_unit` word. ROUGE-L always
    counts words between white space and full stops.

    A missing source and a missing or blank response give no row; an empty source gives
    rows of zeros.
    """

    use: ClassVar[str] = "lexical_match"

    against: Literal["reference", "retrieved_contexts"]
    unit: Literal["sentence", "text"] = "sentence"
    tokens: Tokens = "treebank"
    bleu_unit: Literal["character", "word"] = "character"

    def reads(self) -> frozenset[SampleField]:
        """The response and what it is compared with."""
        return frozenset(("response", self.against))

    def run(self, samples: Samples) -> SentenceMatches:
        """One row per sample, source and part of the response."""
        read = samples.select(
            "sample_id", "response", "reference", "other_references", "retrieved_contexts"
        )
        rows = [row for sample in read.iter_rows(named=True) for row in self._rows(sample)]
        return pl.DataFrame(rows, schema=schema(SentenceMatch), orient="row")

    def _rows(self, sample: dict[str, Any]) -> Iterator[dict[str, Any]]:
        parts = self._parts(sample["response"] or "")
        if not parts:
            return
        for number, source in _sources(sample, self.against):
            measure = self._measures_with(source)
            for part in parts:
                yield {
                    "sample_id": sample["sample_id"],
                    "against": self.against,
                    "source": number,
                    "position": part.position,
                    "sentence": part.text,
                    "start": part.start,
                    "end": part.end,
                    **measure(part),
                }

    def _parts(self, response: str) -> list[_Part]:
        spans = split_sentences(response)
        if self.unit == "text" and spans:
            tokens = tokenize(response, tokens=self.tokens)
            return [_Part(None, 0, len(response), response, tokens)]
        parts = []
        for position, (start, end) in enumerate(spans):
            sentence = response[start:end]
            tokens = tokenize_sentence(sentence, tokens=self.tokens)
            parts.append(_Part(position, start, end, sentence, tokens))
        return parts

    def _measures_with(self, source: str) -> Callable[[_Part], dict[str, float]]:
        """The measures against one source, prepared once for all parts of a response."""
        source_tokens = tokenize(source, tokens=self.tokens)
        rouge_l = rouge_l_with(source)
        token_overlap = token_overlap_with(source_tokens)
        bleu = self._bleu_with(source, source_tokens)

        def measures(part: _Part) -> dict[str, float]:
            rouge = rouge_l(part.text)
            overlap = token_overlap(part.tokens)
            return {
                "rouge_l_precision": rouge.precision,
                "rouge_l_recall": rouge.recall,
                "rouge_l_f1": rouge.f1,
                "token_overlap_precision": overlap.precision,
                "token_overlap_recall": overlap.recall,
                "token_overlap_f1": overlap.f1,
                "bleu": bleu(part),
            }

        return measures

    def _bleu_with(self, source: str, source_tokens: list[str]) -> Callable[[_Part], float]:
        if self.bleu_unit == "word":
            by_word = word_bleu_with(source_tokens)
            return lambda part: by_word(part.tokens)
        by_character = character_bleu_with(source)
        return lambda part: by_character(part.text)


def _sources(sample: dict[str, Any], against: str) -> Iterator[tuple[int | None, str]]:
    """The texts to compare with, each with its number."""
    if against == "reference":
        references = [sample["reference"], *(sample["other_references"] or ())]
        yield from ((i, text) for i, text in enumerate(references) if text is not None)
    elif sample["retrieved_contexts"] is not None:
        yield None, "\n".join(text for text in sample["retrieved_contexts"] if text is not None)
