"""One step of a run compared with labels: agreement, reliability and corrected rates."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimflow.flows.quality.agreement import (
    Agreement,
    AnnotatorAgreement,
    IntervalEstimate,
    RankCorrelations,
    agreement,
    annotator_agreement,
    proportion,
    rank_correlations,
)
from claimflow.flows.quality.corrected_rates import (
    Reliability,
    effective_sample_size,
    prediction_powered,
    reliability_diagram,
    rogan_gladen,
)
from claimflow.flows.quality.labels import VALUES
from claimflow.flows.quality.paired_labels import Drawing, PairedLabels

# The fields of these classes are the keys of `claimflow calibrate --format json`.

PREDICTION_POWERED: Final = "prediction-powered"
ROGAN_GLADEN: Final = "Rogan-Gladen"


class Slice(NamedTuple):
    """The labelled rows of samples with one value of a metadata field."""

    value: str | None
    agreement: Agreement | None
    ranks: RankCorrelations | None
    good: IntervalEstimate | None


class CorrectedRate(NamedTuple):
    """A rate or mean by the judge, and corrected for the judge's errors.

    `what` is a label, whose share it is, or a metric, whose mean it is; over all rows (`by`
    None), or over the shares of the samples (`by` sample).
    """

    what: str
    by: str | None
    method: str
    judged: float
    corrected: IntervalEstimate


class StepCalibration(NamedTuple):
    """One step of a run, or one of its metrics, compared with labels.

    Of its `rows`, `labelled` have labels; on `divided` of those the annotators disagree without a
    majority, and on `failed` the judge gave no result. `at_random` says whether the rows that the
    agreement is measured on were drawn at random.
    """

    kind: str
    step: str
    metric: str | None
    rows: int
    labelled: int
    divided: int
    failed: int
    at_random: bool
    annotators: AnnotatorAgreement
    agreement: Agreement | None
    ranks: RankCorrelations | None
    good: IntervalEstimate | None
    reliability: Reliability | None
    slices: list[Slice]
    drawing: Drawing | None
    corrected: list[CorrectedRate]


def calibrate_step(
    pairs: PairedLabels, *, slice_of: Mapping[str, str | None] | None = None
) -> StepCalibration:
    """Everything that labels tell about one step; `slice_of` maps samples to slices."""
    kind, usable = pairs.target.kind, pairs.usable
    failed = sum(pairs.judge_result(row) is None for row in usable)
    rows_by_slice = pairs.slices(slice_of) if slice_of is not None else {}
    return StepCalibration(
        kind=kind,
        step=pairs.target.step,
        metric=pairs.target.metric,
        rows=pairs.rows.height,
        labelled=len(pairs.consensus),
        divided=sum(label is None for label in pairs.consensus.values()),
        failed=failed if kind != "claims" else 0,
        at_random=bool(usable) and all(row in pairs.at_random for row in usable),
        annotators=annotator_agreement(pairs.labels, VALUES.get(kind)),
        agreement=_agreement(pairs, usable),
        ranks=_ranks(pairs, usable),
        good=_good_claims(pairs, usable),
        reliability=step_reliability(pairs),
        slices=[
            Slice(value, _agreement(pairs, rows), _ranks(pairs, rows), _good_claims(pairs, rows))
            for value, rows in rows_by_slice.items()
        ],
        drawing=pairs.drawing,
        corrected=corrected_rates(pairs),
    )


def step_reliability(pairs: PairedLabels) -> Reliability | None:
    """How reliable the probabilities of entailment of a step are; None where it gave none."""
    if pairs.target.kind != "verdicts":
        return None
    probabilities = pairs.rows["p_entailed"]
    rows = [row for row in pairs.usable if probabilities[row] is not None]
    return reliability_diagram(
        np.array([probabilities[row] for row in rows], dtype=np.float64),
        np.array([pairs.consensus[row] == "entailed" for row in rows], dtype=np.bool_),
    )


def corrected_rates(pairs: PairedLabels) -> list[CorrectedRate]:
    """The share of each verdict, or the mean score, corrected for the judge's errors."""
    if pairs.target.kind == "samples":
        return _corrected_mean(pairs)
    if pairs.target.kind == "claims":
        return []
    return [rate for label in VALUES["verdicts"] for rate in _corrected_shares(pairs, label)]


def _agreement(pairs: PairedLabels, rows: list[int]) -> Agreement | None:
    both = [(pairs.consensus[row], pairs.judge_result(row)) for row in rows]
    both = [(label, verdict) for label, verdict in both if verdict is not None]
    if pairs.target.kind != "verdicts" or not both:
        return None
    labels, verdicts = zip(*both, strict=True)
    return agreement([*map(str, labels)], [*map(str, verdicts)], VALUES["verdicts"])


def _ranks(pairs: PairedLabels, rows: list[int]) -> RankCorrelations | None:
    if pairs.target.kind != "samples":
        return None
    both = [
        (float(rating), float(score))
        for row in rows
        if (rating := pairs.consensus[row]) is not None
        and (score := pairs.judge_result(row)) is not None
    ]
    if not both:
        return None
    return rank_correlations([rating for rating, _ in both], [score for _, score in both])


def _good_claims(pairs: PairedLabels, rows: list[int]) -> IntervalEstimate | None:
    if pairs.target.kind != "claims":
        return None
    return proportion(sum(pairs.consensus[row] == "good" for row in rows), len(rows))


def _corrected_mean(pairs: PairedLabels) -> list[CorrectedRate]:
    scores = pairs.rows["score"].cast(pl.Float64).fill_null(float("nan")).to_numpy()
    ratings = {row: float(pairs.consensus[row] or 0.0) for row in pairs.probabilities}
    rows = pairs.judged_rows(scores, ratings)
    if not rows.labelled.any():
        return []
    mean = float(rows.judged.mean())
    metric = pairs.target.metric or ""
    return [CorrectedRate(metric, None, PREDICTION_POWERED, mean, prediction_powered(rows))]


def _corrected_shares(pairs: PairedLabels, label: str) -> list[CorrectedRate]:
    """The share of a verdict; rows without a verdict count as another one."""
    if pairs.rows.is_empty():
        return []
    judged = (pairs.rows["verdict"] == label).fill_null(False).to_numpy().astype(np.float64)
    rate = float(judged.mean())
    found: list[CorrectedRate] = []
    if pairs.probabilities:
        labels = {row: float(pairs.consensus[row] == label) for row in pairs.probabilities}
        rows = pairs.judged_rows(judged, labels)
        mean_of_samples = _mean_of_samples(judged, rows.sample)
        by_sample = prediction_powered(rows, by_sample=True)
        found += [
            CorrectedRate(label, None, PREDICTION_POWERED, rate, prediction_powered(rows)),
            CorrectedRate(label, "sample", PREDICTION_POWERED, mean_of_samples, by_sample),
        ]
    both = [(pairs.consensus[row], pairs.judge_result(row)) for row in pairs.at_random]
    both = [one for one in both if None not in one]
    if not both:
        return found
    positive = [verdict == label for truth, verdict in both if truth == label]
    negative = [verdict != label for truth, verdict in both if truth != label]
    adjusted = rogan_gladen(
        rate,
        effective_sample_size(judged, pairs.samples),
        sensitivity=(sum(positive), len(positive)),
        specificity=(sum(negative), len(negative)),
    )
    return [*found, CorrectedRate(label, None, ROGAN_GLADEN, rate, adjusted)]


def _mean_of_samples(values: NDArray[np.float64], sample: NDArray[np.intp]) -> float:
    number = np.unique(sample, return_inverse=True)[1]
    return float((np.bincount(number, values) / np.bincount(number)).mean())
