"""Lexical metrics of whole responses and of their sentences."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

import polars as pl
from pydantic import Field

from claimflow.stages.base import Expected
from claimflow.stages.rows import MatchCompat
from claimflow.stages.sample_texts import count_texts
from claimflow.stages.scores.empty_cases import EmptyCase, ScoreStage
from claimflow.stages.scores.finalize import CompatScore, finalize_scores
from claimflow.stages.tables import Samples, Scores, SentenceMatches, TableError

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]

ROUGE: Final = ("rouge_l_precision", "rouge_l_recall", "rouge_l_f1")
OVERLAP: Final = ("token_overlap_precision", "token_overlap_recall", "token_overlap_f1")
CLIPPED: Final = ("clipped_overlap_precision", "clipped_overlap_recall", "clipped_overlap_f1")
MEASURES: Final = (*ROUGE, *OVERLAP, *CLIPPED, "bleu", "chrf")

_SUPPORT: Final = {
    "rouge_faithfulness": "rouge_l_precision",
    "token_overlap_faithfulness": "token_overlap_precision",
    "bleu_faithfulness": "bleu",
}
"""The measure of a sentence behind each metric of faithfulness."""


class LexicalScore(ScoreStage):
    """A stage that scores lexical matches, and can do so as another library does.

    With `compat` a score is that library's, made of the rows that `lexical_match` with the
    same setting adds, and `corrected` in `details` is our score. For a sample that has
    none of these rows the library raises an error.
    """

    compat: MatchCompat | None = None

    def expected_inputs(self) -> Mapping[str, Expected]:
        """With `compat` the step that makes the matches must have the same."""
        if self.compat is None:
            return self.expects
        return {
            name: {**settings, "compat": self.compat} for name, settings in self.expects.items()
        }

    def with_matches(
        self, samples: pl.DataFrame, matches: pl.DataFrame, columns: Mapping[str, pl.Expr]
    ) -> pl.DataFrame:
        """One row per sample: its empty case, and `columns` of its matches as lists.

        With `compat` also those of the library's matches, with the prefix `compat_`.
        """
        frame = self.empty_cases(samples).with_columns(failure=pl.lit(None, pl.String))
        kinds = {"": None, "compat_": self.compat} if self.compat else {"": None}
        for prefix, compat in kinds.items():
            of_kind = matches.filter(pl.col("compat").eq_missing(pl.lit(compat, pl.String)))
            lists = of_kind.group_by("sample_id", maintain_order=True).agg(**columns)
            named = lists.rename({name: f"{prefix}{name}" for name in columns})
            frame = frame.join(named, on="sample_id", how="left", maintain_order="left")
        return frame

    def compat_score(self, value: pl.Expr, error: pl.Expr) -> CompatScore | None:
        """The library's score: `value`, or where it is NULL the `error` that it raises."""
        if self.compat is None:
            return None
        return CompatScore(self.compat, value, pl.format(f"{self.compat} raises {{}}", error))


class DeterministicFaithfulness(LexicalScore):
    """Lexical support of the response's sentences by all contexts joined, in [0, 1].

    Three metrics per sample. `rouge_faithfulness` and `token_overlap_faithfulness` are the
    shares of sentences whose ROUGE-L and token overlap precision reach the threshold;
    `bleu_faithfulness` is the mean of the sentences' BLEU. Without contexts nothing is
    supported, so that all three are 0.
    """

    use = "deterministic_faithfulness"
    metrics = tuple(_SUPPORT)
    metric_range = (0.0, 1.0)
    version: ClassVar[int] = 3
    cases: ClassVar[tuple[EmptyCase, ...]] = ("response", "refusal", "contexts")
    columns: ClassVar = {"samples": ("sample_id", "response", "retrieved_contexts")}
    expects: ClassVar = {"context_matches": {"against": "retrieved_contexts", "unit": "sentence"}}

    rouge_threshold: Share = 0.5
    token_overlap_threshold: Share = 0.5

    def run(self, samples: Samples, context_matches: SentenceMatches) -> Scores:
        """Three scores per sample."""
        _check_matches(context_matches, against="retrieved_contexts", whole=False)
        lists = {name: pl.col(name) for name in (*_SUPPORT.values(), CLIPPED[0])}
        blank = count_texts("response") == 0
        frame = self.with_matches(samples, context_matches.sort("position"), lists).with_columns(
            samples.select(
                blank=blank, unsupported=(count_texts("retrieved_contexts") == 0) & ~blank
            )
        )
        return pl.concat(self._scores_of(frame, metric) for metric in _SUPPORT)

    def _scores_of(self, frame: pl.DataFrame, metric: str) -> pl.DataFrame:
        column = _SUPPORT[metric]
        threshold = {ROUGE[0]: self.rouge_threshold, OVERLAP[0]: self.token_overlap_threshold}
        own, theirs = (_reaching(c, threshold.get(column)) for c in (column, f"compat_{column}"))
        by_sentence = pl.col(f"compat_{column}" if self.compat else column)
        details = {"by_sentence": by_sentence, "sentences": by_sentence.list.len()}
        if column == OVERLAP[0]:
            details["clipped_by_sentence"] = pl.col(CLIPPED[0])
        error = pl.when("blank").then(pl.lit("ZeroDivisionError: no sentence"))
        return finalize_scores(
            frame,
            metric=metric,
            value=pl.when("unsupported").then(0.0).otherwise(own.list.mean()),
            undefined=pl.lit("no sentences in the response"),
            details=details,
            part=pl.when("unsupported").then(0.0).otherwise(own.list.sum()),
            whole=own.list.len(),
            compat=self.compat_score(
                theirs.list.mean(), error.otherwise(pl.lit("ValueError: Reference is empty"))
            ),
        )


class DeterministicCorrectness(LexicalScore):
    """Lexical agreement of the whole response with its references, in [0, 1].

    Eleven metrics per sample: precision, recall and F1 of ROUGE-L, of token overlap and of
    clipped overlap, BLEU, and chrF. Each is the maximum over the references taken alone, so
    the three of one measure may come from different references; `details` has the values by
    reference. With `compat` those that the library has: clipped overlap and chrF are ours.
    """

    use = "deterministic_correctness"
    metrics = (*ROUGE, *OVERLAP, *CLIPPED, "bleu_correctness", "chrf")
    metric_range = (0.0, 1.0)
    version: ClassVar[int] = 3
    cases: ClassVar[tuple[EmptyCase, ...]] = ("response", "refusal", "reference")
    columns: ClassVar = {"samples": ("sample_id", "response", "reference", "other_references")}
    expects: ClassVar = {"reference_matches": {"against": "reference", "unit": "text"}}

    def run(self, samples: Samples, reference_matches: SentenceMatches) -> Scores:
        """Eleven scores per sample, with `compat` seven."""
        _check_matches(reference_matches, against="reference", whole=True)
        groups = [ROUGE, OVERLAP, ("bleu",), *([] if self.compat else [CLIPPED, ("chrf",)])]
        values = pl.struct("source", *(measure for group in groups for measure in group))
        references = count_texts("reference") + count_texts("other_references")
        frame = self.with_matches(
            samples, reference_matches.sort("source"), {"references": values}
        ).with_columns(samples.select(comparable=(count_texts("response") > 0) & (references > 0)))
        return pl.concat(
            self._scores_of(frame, measure, shown=group) for group in groups for measure in group
        )

    def _scores_of(
        self, frame: pl.DataFrame, measure: str, *, shown: tuple[str, ...]
    ) -> pl.DataFrame:
        prefix = "compat_" if self.compat else ""
        by_reference = _each(
            f"{prefix}references", pl.struct(_field("source"), *map(_field, shown))
        )
        own, theirs = (_each(f"{p}references", _field(measure)) for p in ("", "compat_"))
        return finalize_scores(
            frame,
            metric="bleu_correctness" if measure == "bleu" else measure,
            value=pl.when("comparable").then(own.list.max()),
            undefined=pl.lit("no texts to compare"),
            details={"by_reference": by_reference},
            compat=self.compat_score(theirs.list.max(), pl.lit("ValueError: Reference is empty")),
        )


def _reaching(column: str, threshold: float | None) -> pl.Expr:
    """1.0 where the value of a sentence reaches the threshold, else 0.0.

    Without a threshold the value itself.
    """
    if threshold is None:
        return pl.col(column)
    return pl.col(column).list.eval((pl.element() >= threshold).cast(pl.Float64))


def _field(name: str) -> pl.Expr:
    return pl.element().struct.field(name)


def _each(column: str, value: pl.Expr) -> pl.Expr:
    return pl.col(column).list.eval(value)


def _check_matches(matches: pl.DataFrame, *, against: str, whole: bool) -> None:
    found = matches.filter(
        (pl.col("against") != against) | (pl.col("position").is_null() != whole)
    ).height
    if found:
        unit = "whole responses" if whole else "sentences"
        raise TableError(f"expected matches of {unit} against {against}, found {found} others")
