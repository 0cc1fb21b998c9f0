"""One step of a run paired with labels: agreement, reliability and corrected rates."""

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import duckdb
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
    consensus,
    proportion,
    rank_correlations,
)
from claimflow.flows.quality.corrected_rates import (
    JudgedRows,
    Reliability,
    effective_sample_size,
    prediction_powered,
    reliability_diagram,
    rogan_gladen,
)
from claimflow.flows.quality.label_sampling import parse_draw
from claimflow.flows.quality.labels import (
    Kind,
    LabelTarget,
    current_labels,
    drawn_rows,
    frame_key,
    label_targets,
    row_keys,
    target_rows,
    with_texts,
)

# The fields of these classes are the keys of `claimflow calibrate --format json`.

PREDICTION_POWERED: Final = "prediction-powered"
ROGAN_GLADEN: Final = "Rogan-Gladen"


class Drawing(NamedTuple):
    """The draw that a corrected rate rests on, and how many of its `drawn` rows are labelled."""

    draw: str
    labelled: int
    drawn: int


class Slice(NamedTuple):
    """Agreement on the labelled rows of samples with one value of a metadata field.

    Of verdicts it is `agreement`, of samples `ranks`, and of claims the share that is `good`. Of
    checks it is `agreement`, and `ranks` where they are graded; without a field the slices are the
    checks of the rubric by name.
    """

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
    majority, and on `failed` the judge gave no result. Rows with the same texts share a label:
    `texts` are those that were labelled, `adjudicated` those decided between annotators, and `seen`
    those labelled after the judge's result was shown. `at_random` says whether the rows that the
    agreement is measured on were drawn at random.
    """

    kind: str
    step: str
    metric: str | None
    rows: int
    labelled: int
    divided: int
    failed: int
    texts: int
    adjudicated: int
    seen: int
    at_random: bool
    annotators: AnnotatorAgreement
    agreement: Agreement | None
    ranks: RankCorrelations | None
    good: IntervalEstimate | None
    reliability: Reliability | None
    slices: list[Slice]
    drawing: Drawing | None
    corrected: list[CorrectedRate]


class PairedLabels(NamedTuple):
    """The `rows` of a target and the `labels` that are about some of them.

    `subjects` are the texts and `consensus` the label or mean rating by row, None where annotators
    are divided; `at_random` are the rows whose texts some draw chose at random. `probabilities`
    are the inclusion probabilities by row of the draw that `drawing` names; both are empty where no
    draw was from all rows.
    """

    target: LabelTarget
    rows: pl.DataFrame
    labels: pl.DataFrame
    subjects: dict[int, str]
    consensus: dict[int, str | float | None]
    at_random: frozenset[int]
    probabilities: dict[int, float]
    drawing: Drawing | None

    @property
    def usable(self) -> list[int]:
        """The rows to measure agreement on: those drawn at random, or all where none is.

        A row with the texts of one that was drawn has its label, and is no further evidence.
        """
        return self._independent(self._decided)

    @property
    def _decided(self) -> list[int]:
        decided = [row for row, label in self.consensus.items() if label is not None]
        return [row for row in decided if row in self.at_random] or decided

    def _independent(self, rows: Iterable[int]) -> list[int]:
        """The rows that were drawn, and of the others one for each further text."""
        rows = list(rows)
        found = [row for row in rows if row in self.probabilities]
        texts = {self.subjects[row] for row in found}
        for row in rows:
            if self.subjects[row] not in texts:
                texts.add(self.subjects[row])
                found.append(row)
        return sorted(found)

    @property
    def samples(self) -> NDArray[np.intp]:
        """The number of each row's sample, shape (rows,)."""
        return self.rows["sample_id"].rank("dense").to_numpy().astype(np.intp)

    def judge_result(self, row: int) -> str | float | None:
        """The judge's verdict or score of a row; None where it gave none."""
        column = "score" if self.target.kind == "samples" else "verdict"
        found: str | float | None = self.rows[column][row]
        return found

    def rating(self, row: int) -> float:
        """The rating of a row that has a consensus, from 0 to 1: of a grade its place."""
        found = self.consensus[row] or 0.0
        grades = self.target.values
        if grades is None:
            return float(found)
        return grades.index(str(found)) / (len(grades) - 1)

    def judged_rows(self, values: NDArray[np.float64], labels: Mapping[int, float]) -> JudgedRows:
        """The judge's `values` (NaN for none) of all rows beside the `labels` of those drawn.

        Rows without a value are left out.
        """
        label, probability = np.full((2, self.rows.height), np.nan)
        for row, chance in self.probabilities.items():
            label[row], probability[row] = labels[row], chance
        known = np.isfinite(values)
        return JudgedRows(values[known], self.samples[known], label[known], probability[known])

    def slices(self, values: Mapping[str, str | None]) -> dict[str | None, list[int]]:
        """The usable rows by the value of their sample in `values`, those without any last."""
        ids = self.rows["sample_id"]
        found: dict[str | None, list[int]] = {}
        for row in self._decided:
            found.setdefault(values[ids[row]], []).append(row)
        by_value = sorted(found.items(), key=lambda one: (one[0] is None, one[0] or ""))
        return {value: self._independent(rows) for value, rows in by_value}

    def named_checks(self) -> dict[str | None, list[int]]:
        """The usable rows by the name of their check; none unless a rubric has several names."""
        found: dict[str | None, list[int]] = {}
        if isinstance(self.target.provenance.settings.get("checks"), dict):
            for row in self.usable:
                found.setdefault(self.rows["against"][row], []).append(row)
        return dict(sorted(found.items(), key=str)) if len(found) > 1 else {}


def paired_targets(
    connection: duckdb.DuckDBPyConnection,
    run_id: str,
    kind: Kind,
    *,
    without_steps: Container[str] = (),
) -> Iterator[tuple[LabelTarget, PairedLabels | None]]:
    """The targets of a run that may have labels, each with its rows paired with labels.

    None instead for the steps in `without_steps`, whose rows are not read.
    """
    labels = current_labels(connection, kind)
    if labels.is_empty():
        return
    for target in label_targets(connection, run_id, kind):
        of_metric = _of_metric(labels, target)
        if of_metric.height:
            skipped = target.step in without_steps
            yield target, None if skipped else _pair(connection, target, of_metric)


def paired_target(
    connection: duckdb.DuckDBPyConnection, target: LabelTarget
) -> PairedLabels | None:
    """One target with its rows paired with labels; None where no row has one."""
    pairs = _pair(connection, target, _of_metric(current_labels(connection, target.kind), target))
    return pairs if pairs.consensus else None


def _of_metric(labels: pl.DataFrame, target: LabelTarget) -> pl.DataFrame:
    return labels.filter(pl.col("metric").eq_missing(pl.lit(target.metric, pl.String)))


def _pair(
    connection: duckdb.DuckDBPyConnection, target: LabelTarget, labels: pl.DataFrame
) -> PairedLabels:
    """The rows of a target paired with the labels whose annotator read the same texts."""
    rows = target_rows(connection, target)
    subjects = _labelled_subjects(connection, target, rows, labels)
    labels = labels.filter(pl.col("subject").is_in(list(set(subjects.values()))))
    decided = consensus(labels)
    random = set(labels.filter(pl.col("draw").str.starts_with("random"))["subject"])
    by_row = {row: decided[subject] for row, subject in subjects.items() if subject in decided}
    probabilities, drawing = _probabilities(connection, target, rows, by_row)
    at_random = frozenset(row for row, subject in subjects.items() if subject in random)
    return PairedLabels(target, rows, labels, subjects, by_row, at_random, probabilities, drawing)


def _labelled_subjects(
    connection: duckdb.DuckDBPyConnection,
    target: LabelTarget,
    rows: pl.DataFrame,
    labels: pl.DataFrame,
) -> dict[int, str]:
    """The subject of each row that has labels, by its index."""
    numbered = rows.with_row_index("row")
    if target.kind not in ("samples", "checks"):
        numbered = numbered.filter(pl.col("claim").is_in(labels["claim"].unique().to_list()))
    labelled = set(labels["subject"])
    found = with_texts(connection, target, numbered)
    return {row["row"]: row["subject"] for row in found if row["subject"] in labelled}


def _probabilities(
    connection: duckdb.DuckDBPyConnection,
    target: LabelTarget,
    rows: pl.DataFrame,
    consensus: Mapping[int, str | float | None],
) -> tuple[dict[int, float], Drawing | None]:
    """The inclusion probabilities of the draw that has the most rows with a consensus.

    Where some rows of the draw have none, those that have one count as drawn from it at random.
    """
    by_draw: dict[str, dict[int, float]] = {}
    found = drawn_rows(connection, target.kind, frame_key(connection, target))
    index = dict(zip(row_keys(rows.rows(named=True)), range(rows.height), strict=True))
    for one in found.iter_rows(named=True):
        row = index.get((one["sample_id"], one["claim_id"], one["passage"]))
        if row is not None and consensus.get(row) is not None:
            by_draw.setdefault(one["draw"], {})[row] = one["probability"]
    if not by_draw:
        return {}, None
    text, probabilities = max(by_draw.items(), key=lambda one: (len(one[1]), one[0]))
    draw = parse_draw(text)
    drawn = draw.size if draw else len(probabilities)
    share = len(probabilities) / drawn
    scaled = {row: probability * share for row, probability in probabilities.items()}
    return scaled, Drawing(text, len(probabilities), drawn)


def calibrate_step(
    pairs: PairedLabels, *, slice_of: Mapping[str, str | None] | None = None
) -> StepCalibration:
    """Everything that labels tell about one step; `slice_of` maps samples to slices."""
    kind, usable = pairs.target.kind, pairs.usable
    whole = _agreement_on(pairs, usable)
    failed = sum(pairs.judge_result(row) is None for row in usable)
    rows_by_slice = pairs.slices(slice_of) if slice_of is not None else pairs.named_checks()
    return StepCalibration(
        kind=kind,
        step=pairs.target.step,
        metric=pairs.target.metric,
        rows=pairs.rows.height,
        labelled=len(pairs.consensus),
        divided=sum(label is None for label in pairs.consensus.values()),
        failed=failed if kind != "claims" else 0,
        texts=len({pairs.subjects[row] for row in pairs.consensus}),
        adjudicated=pairs.labels.filter("adjudicates").height,
        seen=pairs.labels.filter("seen")["subject"].n_unique(),
        at_random=bool(usable) and all(row in pairs.at_random for row in usable),
        annotators=annotator_agreement(pairs.labels, pairs.target.values),
        agreement=whole.agreement,
        ranks=whole.ranks,
        good=whole.good,
        reliability=step_reliability(pairs, usable),
        slices=[_agreement_on(pairs, rows, value) for value, rows in rows_by_slice.items()],
        drawing=pairs.drawing,
        corrected=corrected_rates(pairs),
    )


def step_reliability(pairs: PairedLabels, usable: Iterable[int]) -> Reliability | None:
    """How reliable the probabilities of entailment in `usable` rows are; None if there is none."""
    if pairs.target.kind != "verdicts":
        return None
    probabilities = pairs.rows["p_entailed"]
    rows = [row for row in usable if probabilities[row] is not None]
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
    if pairs.target.scale:
        return _corrected_mean(pairs)
    labels = ("pass",) if pairs.target.kind == "checks" else pairs.target.values or ()
    return [rate for label in labels for rate in _corrected_shares(pairs, label)]


def _agreement_on(pairs: PairedLabels, rows: list[int], value: str | None = None) -> Slice:
    """The agreement on usable rows; None where the judge gave no result on any."""
    labels = [pairs.consensus[row] for row in rows]
    if pairs.target.kind == "claims":
        return Slice(value, None, None, proportion(labels.count("good"), len(rows)))
    judged: list[Any] = [pairs.judge_result(row) for row in rows]
    both = [pair for pair in zip(labels, judged, strict=True) if pair[1] is not None]
    if not both:
        return Slice(value, None, None, None)
    truth, results = zip(*both, strict=True)
    if pairs.target.kind == "samples":
        return Slice(value, None, rank_correlations(truth, results), None)
    values = pairs.target.values or ()
    if not pairs.target.scale:
        return Slice(value, agreement(truth, results, values), None, None)
    used = [label for label in values if label in {*truth, *results}]
    ranks = rank_correlations([float(one) for one in truth], [float(one) for one in results])
    return Slice(value, agreement(truth, results, used), ranks, None)


def _corrected_mean(pairs: PairedLabels) -> list[CorrectedRate]:
    scores = pairs.rows["score"].cast(pl.Float64).fill_null(float("nan")).to_numpy()
    ratings = {row: pairs.rating(row) for row in pairs.probabilities}
    rows = pairs.judged_rows(scores, ratings)
    if not rows.labelled.any():
        return []
    mean = float(rows.judged.mean())
    metric = pairs.target.metric or "score"
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
        number = np.unique(rows.sample, return_inverse=True)[1]
        mean_of_samples = float((np.bincount(number, judged) / np.bincount(number)).mean())
        by_sample = prediction_powered(rows, by_sample=True)
        found += [
            CorrectedRate(label, None, PREDICTION_POWERED, rate, prediction_powered(rows)),
            CorrectedRate(label, "sample", PREDICTION_POWERED, mean_of_samples, by_sample),
        ]
    both = [
        (pairs.consensus[row], pairs.judge_result(row))
        for row in pairs.usable
        if row in pairs.at_random
    ]
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
