"""Rows of a step paired with the labels that people gave to the same texts."""

from collections.abc import Container, Iterator, Mapping
from typing import NamedTuple

import duckdb
import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimflow.flows.quality.agreement import consensus
from claimflow.flows.quality.corrected_rates import JudgedRows
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


class Drawing(NamedTuple):
    """The draw that a corrected rate rests on, and how many of its `drawn` rows are labelled."""

    draw: str
    labelled: int
    drawn: int


class PairedLabels(NamedTuple):
    """The `rows` of a target and the `labels` that are about some of them.

    `consensus` is the label or mean rating by row, None where annotators are divided; `at_random`
    are the rows that some draw chose at random. `probabilities` are the inclusion probabilities
    by row of the draw that `drawing` names; both are empty where no draw was from all rows.
    """

    target: LabelTarget
    rows: pl.DataFrame
    labels: pl.DataFrame
    consensus: dict[int, str | float | None]
    at_random: frozenset[int]
    probabilities: dict[int, float]
    drawing: Drawing | None

    @property
    def usable(self) -> list[int]:
        """The rows to measure agreement on: those drawn at random, or all where none is."""
        decided = [row for row, label in self.consensus.items() if label is not None]
        return [row for row in decided if row in self.at_random] or decided

    @property
    def samples(self) -> NDArray[np.intp]:
        """The number of each row's sample, shape (rows,)."""
        return self.rows["sample_id"].rank("dense").to_numpy().astype(np.intp)

    def judge_result(self, row: int) -> str | float | None:
        """The judge's verdict or score of a row; None where it gave none."""
        column = "score" if self.target.kind == "samples" else "verdict"
        found: str | float | None = self.rows[column][row]
        return found

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
        for row in self.usable:
            found.setdefault(values[ids[row]], []).append(row)
        return dict(sorted(found.items(), key=lambda one: (one[0] is None, one[0] or "")))


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
        of_metric = labels.filter(pl.col("metric").eq_missing(pl.lit(target.metric)))
        if of_metric.height:
            skipped = target.step in without_steps
            yield target, None if skipped else _pair(connection, target, of_metric)


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
    return PairedLabels(target, rows, labels, by_row, at_random, probabilities, drawing)


def _labelled_subjects(
    connection: duckdb.DuckDBPyConnection,
    target: LabelTarget,
    rows: pl.DataFrame,
    labels: pl.DataFrame,
) -> dict[int, str]:
    """The subject of each row that has labels, by its index."""
    numbered = rows.with_row_index("row")
    if target.kind != "samples":
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
