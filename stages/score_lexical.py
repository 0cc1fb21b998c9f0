"""Deterministic metrics: scores from the lexical matches of whole responses and sentences."""

from typing import Annotated, ClassVar, Final

import polars as pl
from pydantic import Field

from stages.nothing import Case, ScoreStage, texts_in
from stages.settle import settle
from stages.tables import Samples, Scores, SentenceMatches, TableError

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]

MEASURES: Final = (
    "rouge_l_precision",
    "rouge_l_recall",
    "rouge_l_f1",
    "token_overlap_precision",
    "token_overlap_recall",
    "token_overlap_f1",
    "bleu",
)


class DeterministicFaithfulness(ScoreStage):
    """Lexical support of the response's sentences by all contexts joined, in [0, 1].

    Three metrics per sample. `rouge_faithfulness` and `token_overlap_faithfulness` are the
    shares of sentences whose ROUGE-L and token overlap precision reach the threshold;
    `bleu_faithfulness` is the mean of the sentences' BLEU. Without contexts nothing is
    supported, so that all three are 0.
    """

    use = "deterministic_faithfulness"
    cases: ClassVar[tuple[Case, ...]] = ("response", "refusal", "contexts")
    columns: ClassVar = {"samples": ("sample_id", "response", "retrieved_contexts")}
    expects: ClassVar = {"context_matches": {"against": "retrieved_contexts", "unit": "sentence"}}

    rouge_threshold: Share = 0.5
    token_overlap_threshold: Share = 0.5

    def run(self, samples: Samples, context_matches: SentenceMatches) -> Scores:
        """Three scores per sample."""
        _check(context_matches, against="retrieved_contexts", whole=False)
        by_sample = context_matches.sort("position").group_by("sample_id", maintain_order=True)
        measured = by_sample.agg("rouge_l_precision", "token_overlap_precision", "bleu")
        unsupported = (texts_in("retrieved_contexts") == 0) & (texts_in("response") > 0)
        frame = _with_measures(
            self.situation(samples).with_columns(samples.select(unsupported=unsupported)), measured
        )
        rouge, overlap, bleu = (pl.col(c) for c in measured.columns[1:])
        metrics = {
            "rouge_faithfulness": (rouge, _share_reaching(rouge, self.rouge_threshold)),
            "token_overlap_faithfulness": (
                overlap,
                _share_reaching(overlap, self.token_overlap_threshold),
            ),
            "bleu_faithfulness": (bleu, bleu.list.mean()),
        }
        return pl.concat(
            settle(
                frame,
                metric=metric,
                value=pl.when("unsupported").then(0.0).otherwise(value),
                nothing=pl.lit("no sentences in the response"),
                details={"by_sentence": by_sentence, "sentences": by_sentence.list.len()},
            )
            for metric, (by_sentence, value) in metrics.items()
        )


class DeterministicCorrectness(ScoreStage):
    """Lexical agreement of the whole response with its references, in [0, 1].

    Seven metrics per sample: precision, recall and F1 of ROUGE-L and of token overlap, and
    BLEU. Each is the maximum over the references taken alone, so the three of one measure
    may come from different references; `details` has the values by reference.
    """

    use = "deterministic_correctness"
    cases: ClassVar[tuple[Case, ...]] = ("response", "refusal", "reference")
    columns: ClassVar = {"samples": ("sample_id", "response", "reference", "other_references")}
    expects: ClassVar = {"reference_matches": {"against": "reference", "unit": "text"}}

    def run(self, samples: Samples, reference_matches: SentenceMatches) -> Scores:
        """Seven scores per sample."""
        _check(reference_matches, against="reference", whole=True)
        by_sample = reference_matches.sort("source").group_by("sample_id", maintain_order=True)
        measured = by_sample.agg(references=pl.struct("source", *MEASURES))
        references = texts_in("reference") + texts_in("other_references")
        comparable = (texts_in("response") > 0) & (references > 0)
        frame = _with_measures(
            self.situation(samples).with_columns(samples.select(comparable=comparable)), measured
        )
        return pl.concat(
            settle(
                frame,
                metric="bleu_correctness" if measure == "bleu" else measure,
                value=pl.when("comparable").then(_each_reference(measure).list.max()),
                nothing=pl.lit("no texts to compare"),
                details={"by_reference": _each_reference("source", *shown)},
            )
            for shown in (MEASURES[:3], MEASURES[3:6], MEASURES[6:])
            for measure in shown
        )


def _share_reaching(values: pl.Expr, threshold: float) -> pl.Expr:
    return values.list.eval((pl.element() >= threshold).cast(pl.Float64)).list.mean()


def _each_reference(*columns: str) -> pl.Expr:
    """List of one measure, or of structs of several, over the references of a sample."""
    one = pl.element().struct.field(columns[0])
    several = pl.struct(pl.element().struct.field(*columns))
    return pl.col("references").list.eval(one if len(columns) == 1 else several)


def _with_measures(frame: pl.DataFrame, measured: pl.DataFrame) -> pl.DataFrame:
    return frame.join(measured, on="sample_id", how="left", maintain_order="left").with_columns(
        failure=pl.lit(None, pl.String)
    )


def _check(matches: pl.DataFrame, *, against: str, whole: bool) -> None:
    found = matches.filter(
        (pl.col("against") != against) | (pl.col("position").is_null() != whole)
    ).height
    if found:
        unit = "whole responses" if whole else "sentences"
        raise TableError(f"expected matches of {unit} against {against}, found {found} others")
