"""Rows of lexical matches as another library would make them."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import polars as pl

from claimflow.stages.rows import SentenceMatch
from claimflow.stages.sources import Against, sources_of
from claimflow.stages.tables import SentenceMatches, schema
from claimflow.stages.text.bleu import character_bleus
from claimflow.stages.text.comparison import Comparison
from claimflow.stages.text.continuous_eval import Measures, continuous_eval_measures
from claimflow.stages.words import MatchCompat

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
    full stops. An empty response has one as a whole, of zeros.
    """
    rows: list[dict[str, Any]] = []
    comparisons: list[Comparison] = []
    for sample in samples.iter_rows(named=True):
        sources = sources_of(sample, against) if sample["response"] is not None else []
        made = continuous_eval_measures(
            sample["response"] or "",
            [source for _, source in sources],
            by_sentence=unit == "sentence",
        )
        # Where the library raises an error there are sources, but nothing is made of them.
        for (number, source), parts in zip(sources, made, strict=False):
            rows += _rows(parts, sample_id=sample["sample_id"], against=against, source=number)
            comparisons.append(Comparison([part.text for part in parts], source))
    return pl.DataFrame(rows, schema=schema(SentenceMatch), orient="row").with_columns(
        bleu=pl.Series(character_bleus(comparisons), dtype=pl.Float64)
    )


def _rows(
    parts: Sequence[Measures], *, sample_id: str, against: str, source: int | None
) -> Iterator[dict[str, Any]]:
    for position, text, span, rouge, overlap in parts:
        yield {
            "sample_id": sample_id,
            "against": against,
            "source": source,
            "position": position,
            "sentence": text,
            "start": span.start,
            "end": span.end,
            "rouge_l_precision": rouge.precision,
            "rouge_l_recall": rouge.recall,
            "rouge_l_f1": rouge.f1,
            "token_overlap_precision": overlap.precision,
            "token_overlap_recall": overlap.recall,
            "token_overlap_f1": overlap.f1,
            "compat": CONTINUOUS_EVAL,
        }
