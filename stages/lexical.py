"""Lexical matching: ROUGE-L, token overlap, BLEU and chrF of a response with its sources."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Final, Literal, NamedTuple

import polars as pl

from claimflow.stages.base import Stage
from claimflow.stages.compat.continuous_eval import compat_matches
from claimflow.stages.rows import MatchCompat, SampleField, SentenceMatch
from claimflow.stages.sample_texts import Against, sources_of
from claimflow.stages.tables import Samples, SentenceMatches, schema
from claimflow.stages.text.bleu import character_bleus, word_bleus
from claimflow.stages.text.chrf import chrfs
from claimflow.stages.text.comparison import Agreement, Comparison, Letters
from claimflow.stages.text.overlap import rouge_ls, rouge_words, token_overlaps
from claimflow.stages.text.sentences import Span, WordCache, split_sentences
from claimflow.stages.text.tokens import (
    Tokens,
    Treebank,
    lacks_spaces,
    tokenize,
    unspaced_words,
)
from claimflow.stages.text.unicode_words import to_nfc, unicode_words

_SAMPLES_AT_ONCE: Final = 512
"""Samples whose comparisons are measured together."""

_MOST_LETTERS: Final = 500_000
"""Distinct words and tokens after which the letters for them are assigned anew."""

_READ: Final = ("sample_id", "response", "reference", "other_references", "retrieved_contexts")


class _Pair(NamedTuple):
    """The parts of a response, and their comparison with one of its sources.

    `words` are those that ROUGE-L counts, `bleu_words` those that word BLEU does.
    """

    sample_id: str
    number: int | None
    spans: Sequence[Span]
    parts: Sequence[str]
    characters: Comparison
    words: Comparison
    tokens: Comparison
    bleu_words: Comparison


class LexicalMatch(Stage):
    """Compare each sentence of a response, or all of it, with its sources word by word.

    `against` retrieved_contexts: one source, the contexts joined by line breaks.
    `against` reference: the reference and every other reference, each on its own.
    `tokens` are what token overlap counts, and BLEU with `bleu_unit` word. ROUGE-L counts words
    between white space and full stops. With `tokens` auto a response and a source that are mostly
    of scripts without spaces are compared by characters instead: token overlap and ROUGE-L count
    n-grams of them (see `unspaced_words`), word BLEU, which makes n-grams itself, single ones. A
    letter with its marks is the same however they are written (NFC).
    `compat` adds the rows that this library would make, with sentences and tokens of its own.

    A missing source and a missing or blank response give no row; an empty source gives
    rows of zeros.
    """

    use: ClassVar[str] = "lexical_match"
    version: ClassVar[int] = 5
    by_row: ClassVar[bool] = True
    columns: ClassVar = {"samples": _READ}

    against: Against
    unit: Literal["sentence", "text"] = "sentence"
    tokens: Tokens = "auto"
    bleu_unit: Literal["character", "word"] = "character"
    compat: MatchCompat | None = None

    def required_fields(self) -> frozenset[SampleField]:
        """The response and what it is compared with."""
        return frozenset(("response", self.against))

    def run(self, samples: Samples) -> SentenceMatches:
        """One row per sample, source and part of the response, sample by sample."""
        read = samples.select(_READ)
        made = [pl.DataFrame(schema=schema(SentenceMatch))]
        spelling = _Spelling(self.tokens)
        for some in read.iter_slices(_SAMPLES_AT_ONCE):
            pairs: list[_Pair] = []
            for sample in some.iter_rows(named=True):
                if spelling.is_full():
                    spelling = _Spelling(self.tokens)
                pairs += self._pairs(sample, spelling)
            columns = self._places(pairs) | self._measures(pairs)
            made.append(pl.DataFrame(columns, schema=schema(SentenceMatch)))
        matches = pl.concat(made)
        if self.compat is None:
            return matches
        compat = compat_matches(read, against=self.against, unit=self.unit)
        place = read.select("sample_id").with_row_index("place")
        placed = matches.vstack(compat).join(place, on="sample_id", maintain_order="left")
        return placed.sort("place", maintain_order=True).drop("place")

    def _pairs(self, sample: dict[str, Any], spelling: "_Spelling") -> Iterator[_Pair]:
        """The response of a sample with each of its sources."""
        response = sample["response"] or ""
        sources = sources_of(sample, self.against) if response.strip() else []
        if not sources:
            return
        by_sentence = self.unit == "sentence"
        spans = split_sentences(response) if by_sentence else [Span(0, len(response))]
        parts = [response[start:end] for start, end in spans]
        texts = list(map(to_nfc, parts))
        words = list(map(spelling.words, texts))
        tokens = [spelling.tokens(text, is_sentence=by_sentence) for text in texts]
        for number, written in sources:
            source = to_nfc(written)
            characters = Comparison(texts, source)
            if self.tokens == "auto" and lacks_spaces(*texts, source):
                compared = spelling.compared(unspaced_words, characters)
                single = spelling.compared(unicode_words, characters)
                measured = (characters, compared, compared, single)
            else:
                compared = Comparison(tokens, spelling.tokens(source))
                of_words = Comparison(words, spelling.words(source))
                measured = (characters, of_words, compared, compared)
            yield _Pair(sample["sample_id"], number, spans, parts, *measured)

    def _places(self, pairs: Sequence[_Pair]) -> dict[str, Any]:
        """The columns that name the parts and sources that were compared."""
        counts = [len(pair.parts) for pair in pairs]
        by_sentence = self.unit == "sentence"
        return {
            "sample_id": _repeated([pair.sample_id for pair in pairs], counts),
            "against": [self.against] * sum(counts),
            "source": _repeated([pair.number for pair in pairs], counts),
            "position": [
                place if by_sentence else None for count in counts for place in range(count)
            ],
            "sentence": [text for pair in pairs for text in pair.parts],
            "start": [span.start for pair in pairs for span in pair.spans],
            "end": [span.end for pair in pairs for span in pair.spans],
        }

    def _measures(self, pairs: Sequence[_Pair]) -> dict[str, Any]:
        """The columns of the measures of agreement."""
        characters = [pair.characters for pair in pairs]
        tokens = [pair.tokens for pair in pairs]
        overlap = token_overlaps(tokens)
        by_character = self.bleu_unit == "character"
        return {
            **_columns("rouge_l", rouge_ls([pair.words for pair in pairs])),
            **_columns("token_overlap", overlap.distinct),
            **_columns("clipped_overlap", overlap.clipped),
            "bleu": character_bleus(characters)
            if by_character
            else word_bleus([pair.bleu_words for pair in pairs]),
            "chrf": chrfs(characters) if self.unit == "text" else None,
            "compat": None,
        }


class _Spelling:
    """Texts as letters, one for each distinct word or token (see `Letters`)."""

    def __init__(self, tokens: Tokens) -> None:
        self._kind = tokens
        self._letters = letters = Letters()
        self._treebank = Treebank(letters.spell)
        self._words = WordCache(lambda piece: letters.spell(rouge_words(piece)))

    def is_full(self) -> bool:
        """Whether there are so many letters that they should be assigned anew."""
        return len(self._letters) > _MOST_LETTERS

    def words(self, text: str) -> str:
        """The words that ROUGE-L counts. No word goes beyond a blank: see `Treebank`."""
        return "".join(map(self._words.__getitem__, text.split(" ")))

    def tokens(self, text: str, *, is_sentence: bool = False) -> str:
        """The tokens of a text; `is_sentence` says that it is not to be split into sentences."""
        if self._kind not in ("auto", "treebank"):
            return self._letters.spell(tokenize(text, tokens=self._kind))
        of = self._treebank.of_sentence if is_sentence else self._treebank.of_text
        return "".join(of(text))

    def compared(self, words: Callable[[str], list[str]], texts: Comparison) -> Comparison:
        """A comparison of texts by their `words`."""
        parts = [self._letters.spell(words(text)) for text in texts.texts]
        return Comparison(parts, self._letters.spell(words(texts.source)))


def _repeated(values: Sequence[object], times: Sequence[int]) -> list[object]:
    return [value for value, count in zip(values, times, strict=True) for _ in range(count)]


def _columns(measure: str, agreement: Agreement) -> dict[str, Any]:
    return {f"{measure}_{name}": column for name, column in agreement._asdict().items()}
