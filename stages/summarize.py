"""Summaries: means, 95 % intervals and counts of scores, over all samples and by slice."""

import json
from collections.abc import Mapping
from typing import ClassVar

import polars as pl

from stages.base import Stage
from stages.intervals import mean_interval
from stages.keys import canonical
from stages.rows import Summary
from stages.tables import Samples, Scores, Summaries, schema

CELL = ("scores", "metric", "slice_field", "slice_value")


class SummarizeScores(Stage):
    """One row per metric of every scores table, over all samples and by metadata field.

    `slices` names metadata fields. Samples that lack the field form a slice of their own,
    whose `slice_value` is NULL, so that the counts of a field's slices add up to all.
    Statistics are over the scored samples alone; n counts the others too.
    """

    use = "summarize_scores"
    per_sample = False
    columns: ClassVar = {"samples": ("sample_id", "metadata")}

    slices: tuple[str, ...] = ()

    def run(self, samples: Samples, scores: Mapping[str, Scores]) -> Summaries:
        """One row per (scores, metric), then one per value of each slice field."""
        columns = ("sample_id", "metric", "score", "status")
        every = [
            table.select(pl.lit(step).alias("scores"), *columns) for step, table in scores.items()
        ]
        if not every:
            return pl.DataFrame(schema=schema(Summary))
        rows = pl.concat(every)
        null = pl.lit(None, pl.String)
        parts = [rows.with_columns(slice_field=null, slice_value=null)]
        parts += [
            rows.join(_values(samples, field), on="sample_id", how="left").with_columns(
                slice_field=pl.lit(field)
            )
            for field in dict.fromkeys(self.slices)
        ]
        in_order = pl.col("scores").cast(pl.Enum(list(scores)))
        return pl.concat(
            _summarize(part.select(*CELL, "score", "status")).sort(in_order, *CELL[1:])
            for part in parts
        )


def _summarize(rows: pl.DataFrame) -> pl.DataFrame:
    score, status = pl.col("score").drop_nulls(), pl.col("status")
    cells = rows.group_by(CELL).agg(
        n=pl.len(),
        n_scored=(status == "scored").sum(),
        n_undefined=(status == "undefined").sum(),
        n_failed=(status == "failed").sum(),
        # Sorted, so that sums do not depend on the order of the samples.
        values=score.sort(),
        mean=score.sort().mean(),
        minimum=score.min(),
        median=score.median(),
        maximum=score.max(),
    )
    intervals = [mean_interval(values) for values in cells["values"]]
    return cells.drop("values").with_columns(
        low=pl.Series([low for low, _ in intervals], dtype=pl.Float64),
        high=pl.Series([high for _, high in intervals], dtype=pl.Float64),
    )


def _values(samples: pl.DataFrame, field: str) -> pl.DataFrame:
    """`slice_value` of each sample: text as it is, other JSON values as JSON."""
    found = [json.loads(metadata).get(field) for metadata in samples["metadata"]]
    texts = [v if v is None or isinstance(v, str) else canonical(v).decode() for v in found]
    return samples.select("sample_id", slice_value=pl.Series(texts, dtype=pl.String))
