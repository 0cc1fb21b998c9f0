"""Lexical matching: ROUGE-L, token overlap, BLEU and chrF of a response with its sources."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final, Literal, NamedTuple

import polars as pl

from claimflow.stages.base import Stage
from claimflow.stages.compat.continuous_eval import compat_matches
from claimflow.stages.rows import MatchCompat, SampleField, SentenceMatch
from claimflow.stages.sources import Against, Numbered, sources_of
from claimflow.stages.tables import Samples, SentenceMatches, schema
from claimflow.stages.text.batches import Comparison
from claimflow.stages.text.bleu import character_bleus, word_bleus
from claimflow.stages.text.chrf import chrfs
from claimflow.stages.text.overlap import Agreement, token_overlaps
from claimflow.stages.text.rouge import rouge_ls
from claimflow.stages.text.sentences import Bounds
from claimflow.stages.text.tokens import Tokens
from claimflow.stages.text.unicode_words import composed
from claimflow.stages.text.word_letters import Parts, Spelled, WordLetters

_AT_ONCE: Final = 512
_READ: Final = ("sample_id", "response", "reference", "other_references", "retrieved_contexts")


class _Pair(NamedTuple):
    """A response's parts as they are, and with one of its sources as characters, words, tokens."""

    sample_id: str
    number: int | None
    bounds: Bounds
    parts: Sequence[str]
    characters: Comparison
    words: Comparison
    tokens: Comparison


class LexicalMatch(Stage):
    """Compare each sentence of a response, or all of it, with its sources word by word.

    `against` retrieved_contexts: one source, the contexts joined by line breaks.
    `against` reference: the reference and every other reference, each on its own.
    `tokens` are what token overlap counts, and BLEU with `bleu_unit` word. ROUGE-L always
    counts words between white space and full stops. A letter with its marks is the same however
    they are written (NFC).
    `compat` adds the rows that this library would make, with sentences and tokens of its own.

    A missing source and a missing or blank response give no row; an empty source gives
    rows of zeros.
    """

    use: ClassVar[str] = "lexical_match"
    version: ClassVar[int] = 4
    by_row: ClassVar[bool] = True
    columns: ClassVar = {"samples": _READ}

    against: Against
    unit: Literal["sentence", "text"] = "sentence"
    tokens: Tokens = "treebank"
    bleu_unit: Literal["character", "word"] = "character"
    compat: MatchCompat | None = None

    def required_fields(self) -> frozenset[SampleField]:
        """The response and what it is compared with."""
        return frozenset(("response", self.against))

    def run(self, samples: Samples) -> SentenceMatches:
        """One row per sample, source and part of the response, sample by sample."""
        read = samples.select(_READ)
        letters = WordLetters(self.tokens)
        made = [pl.DataFrame(schema=schema(SentenceMatch))]
        for part in read.iter_slices(_AT_ONCE):
            pairs = list(self._pairs(part.rows(named=True), letters))
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

    def _pairs(self, samples: Sequence[dict[str, Any]], letters: WordLetters) -> Iterator[_Pair]:
        responses = [sample["response"] or "" for sample in samples]
        sources = [
            [(number, composed(text)) for number, text in sources_of(sample, self.against)]
            if response.strip()
            else []
            for sample, response in zip(samples, responses, strict=True)
        ]
        own, others = self._spelled(responses, sources, letters)
        for sample, response, numbered, parts in zip(samples, responses, sources, own, strict=True):
            texts = [response[start:end] for start, end in zip(*parts.bounds, strict=True)]
            characters = list(map(composed, texts))
            for number, source in numbered:
                other = next(others)
                yield _Pair(
                    sample["sample_id"],
                    number,
                    parts.bounds,
                    texts,
                    Comparison(characters, source),
                    Comparison(parts.words, other.words),
                    Comparison(parts.tokens, other.tokens),
                )

    def _spelled(
        self, responses: Sequence[str], sources: Sequence[Numbered], letters: WordLetters
    ) -> tuple[Sequence[Parts], Iterator[Spelled]]:
        """The parts of each response that are compared, and all sources, found at once."""
        texts = [source for numbered in sources for _, source in numbered]
        if self.unit == "sentence":
            own, others = letters.sentences_and_texts(responses, texts)
            return own, iter(others)
        spelled = letters.texts([*responses, *texts])
        whole = zip(responses, spelled, strict=False)
        own = [
            Parts(Bounds([0], [len(text)]), [words], [tokens]) for text, (words, tokens) in whole
        ]
        return own, iter(spelled[len(own) :])

    def _places(self, pairs: Sequence[_Pair]) -> dict[str, Any]:
        """The columns that say what was compared with what."""
        parts = [len(pair.bounds.starts) for pair in pairs]
        by_sentence = self.unit == "sentence"
        return {
            "sample_id": _repeated([pair.sample_id for pair in pairs], parts),
            "against": [self.against] * sum(parts),
            "source": _repeated([pair.number for pair in pairs], parts),
            "position": [
                place if by_sentence else None for count in parts for place in range(count)
            ],
            "sentence": [text for pair in pairs for text in pair.parts],
            "start": [start for pair in pairs for start in pair.bounds.starts],
            "end": [end for pair in pairs for end in pair.bounds.ends],
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


def _repeated(values: Sequence[object], times: Sequence[int]) -> list[object]:
    return [value for value, count in zip(values, times, strict=True) for _ in range(count)]


def _columns(measure: str, agreement: Agreement) -> dict[str, Any]:
    return {f"{measure}_{name}": column for name, column in agreement._asdict().items()}
