"""Judgements of a step paired with the labels of the same texts."""

from collections.abc import Container, Iterator, Mapping
from typing import Any, NamedTuple

import duckdb
import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimflow.flows.quality.agreement import word_of
from claimflow.flows.quality.corrected_rates import Judged
from claimflow.flows.quality.label_sheets import places, read_draw
from claimflow.flows.quality.labels import (
    Kind,
    Part,
    draws,
    frame_key,
    in_force,
    parts,
    units,
    with_texts,
)

Place = tuple[object, object, object]


class Drawing(NamedTuple):
    """The draw that a correction rests on: in words, and the rows with a label of how many."""

    draw: str
    labelled: int
    drawn: int


class Held(NamedTuple):
    """A part of a run, its `rows`, and the `labels` of people that are about some of them.

    `words` is what people say together by row, None where they are divided; `at_random` are
    the rows that were drawn at random by some draw. `chances` are the probabilities by row of
    the draw that `drawing` names, which must be of all rows of the part; None where none is.
    """

    part: Part
    rows: pl.DataFrame
    labels: pl.DataFrame
    words: dict[int, str | float | None]
    at_random: frozenset[int]
    chances: dict[int, float]
    drawing: Drawing | None

    @property
    def usable(self) -> list[int]:
        """The rows to measure agreement on: those drawn at random, or all where none is."""
        settled = [row for row, word in self.words.items() if word is not None]
        return [row for row in settled if row in self.at_random] or settled

    @property
    def samples(self) -> NDArray[np.intp]:
        """The number of each row's sample, shape (rows,)."""
        return self.rows["sample_id"].rank("dense").to_numpy().astype(np.intp)


def held(connection: duckdb.DuckDBPyConnection, part: Part, labels: pl.DataFrame) -> Held:
    """A part of a run beside those of the `labels` that are about it, by the texts read."""
    rows = units(connection, part)
    about = _labelled_rows(connection, part, rows, labels)
    labels = labels.filter(pl.col("subject").is_in(list(set(about.values()))))
    words = word_of(labels)
    random = labels.filter(pl.col("draw").str.starts_with("random"))
    random_subjects = set(random["subject"])
    chances, drawing = _chances(connection, part, rows, words, about)
    return Held(
        part,
        rows,
        labels,
        {row: words[subject] for row, subject in about.items() if subject in words},
        frozenset(row for row, subject in about.items() if subject in random_subjects),
        chances,
        drawing,
    )


def held_parts(
    connection: duckdb.DuckDBPyConnection,
    run_id: str,
    kind: Kind,
    *,
    without: Container[str] = (),
) -> Iterator[tuple[Part, Held | None]]:
    """The parts of a run of that kind beside the labels that may be about them.

    None for those of the steps in `without`, which are not looked at.
    """
    labels = in_force(connection, kind)
    if labels.is_empty():
        return
    for part in parts(connection, run_id, kind):
        about = labels.filter(pl.col("metric").eq_missing(pl.lit(part.metric)))
        if about.height:
            yield part, None if part.step in without else held(connection, part, about)


def judged(held: Held, said: NDArray[np.float64], values: dict[int, float]) -> Judged:
    """The rows as a correction takes them; a row without `said` is left out.

    `said` and `values` are what the judge and people say as numbers, NaN where nothing is said.
    """
    n = held.rows.height
    label, probability = np.full(n, np.nan), np.full(n, np.nan)
    for row, chance in held.chances.items():
        label[row], probability[row] = values[row], chance
    known = np.isfinite(said)
    return Judged(said[known], held.samples[known], label[known], probability[known])


def slices(held: Held, values: Mapping[str, str | None]) -> dict[str | None, list[int]]:
    """The usable rows by the value of their sample in `values`, those without any last."""
    ids = held.rows["sample_id"]
    parted: dict[str | None, list[int]] = {}
    for row in held.usable:
        parted.setdefault(values[ids[row]], []).append(row)
    return dict(sorted(parted.items(), key=lambda one: (one[0] is None, one[0] or "")))


def _labelled_rows(
    connection: duckdb.DuckDBPyConnection, part: Part, rows: pl.DataFrame, labels: pl.DataFrame
) -> dict[int, str]:
    """The subject of each row that could be one of `labels`, by its place."""
    numbered = rows.with_row_index("row")
    if part.kind != "samples":
        numbered = numbered.filter(pl.col("claim").is_in(labels["claim"].unique().to_list()))
    known = set(labels["subject"])
    found = with_texts(connection, part, numbered)
    return {row["row"]: row["subject"] for row in found if row["subject"] in known}


def _chances(
    connection: duckdb.DuckDBPyConnection,
    part: Part,
    rows: pl.DataFrame,
    words: dict[str, Any],
    about: dict[int, str],
) -> tuple[dict[int, float], Drawing | None]:
    """The probabilities by row of the draw of which most rows have a label that stands.

    Where some of the draw have none, as if those that have were drawn from it at random.
    """
    by_draw: dict[str, dict[int, float]] = {}
    found = draws(connection, part.kind, frame_key(connection, part))
    row_at = dict(zip(places(rows.rows(named=True)), range(rows.height), strict=True))
    for one in found.iter_rows(named=True):
        row = row_at.get((one["sample_id"], one["claim_id"], one["passage"]))
        if row is not None and words.get(about.get(row, "")) is not None:
            by_draw.setdefault(one["draw"], {})[row] = one["probability"]
    if not by_draw:
        return {}, None
    draw, chances = max(by_draw.items(), key=lambda one: (len(one[1]), one[0]))
    words_of = read_draw(draw)
    drawn = words_of.size if words_of else len(chances)
    share = len(chances) / drawn
    return {row: p * share for row, p in chances.items()}, Drawing(draw, len(chances), drawn)
