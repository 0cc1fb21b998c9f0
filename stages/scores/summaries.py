"""Summaries: means, 95 % intervals and counts of scores, over all samples and by slice."""

import json
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

import polars as pl

from claimflow.stages.base import Stage
from claimflow.stages.rows import Summary, canonical
from claimflow.stages.scores.formulas import clustered_mean_interval, mean_interval
from claimflow.stages.tables import Samples, Scores, Summaries, schema

_READ: Final = ("sample_id", "metric", "score", "status", "part", "whole")


class SummarizeScores(Stage):
    """One row per metric of every scores table, over all samples and by metadata field.

    `slices` names metadata fields. Samples that lack the field form a slice of their own,
    whose `slice_value` is NULL, so that the counts of a field's slices add up to all.
    Statistics are over the scored samples alone; n counts the others too. In `mean` every sample
    has the same weight (macro); in `micro_mean` every unit has, such as a claim, of which scores
    are shares. Samples with the same `conversation_id` in their metadata are one cluster: the
    intervals of means allow for turns of a conversation being alike.
    """

    use = "summarize_scores"
    version = 3
    per_sample = False
    columns: ClassVar = {"samples": ("sample_id", "metadata"), "scores": _READ}

    slices: tuple[str, ...] = ()

    def run(self, samples: Samples, scores: Mapping[str, Scores]) -> Summaries:
        """One row per (scores, metric), then one per value of each slice field."""
        if not scores:
            return pl.DataFrame(schema=schema(Summary))
        step = pl.Enum(list(scores))
        rows = pl.concat(
            table.select(pl.lit(name, step).alias("scores"), *_READ)
            for name, table in scores.items()
        )
        rows = rows.with_columns(pl.lit(None, pl.String).alias("cluster"))
        if (clusters := conversations(samples)) is not None:
            rows = rows.drop("cluster").join(clusters, on="sample_id", how="left")
        parts = [_summarize(rows.with_columns(slice_value=pl.lit(None, pl.String)), None)]
        fields = tuple(dict.fromkeys(self.slices))
        for field, values in zip(fields, _values(samples["metadata"], fields), strict=True):
            by_sample = samples.select("sample_id", slice_value=values)
            parts.append(_summarize(rows.join(by_sample, on="sample_id", how="left"), field))
        return pl.concat(parts)


def _summarize(rows: pl.DataFrame, field: str | None) -> pl.DataFrame:
    """One row per step, metric and `slice_value`, which is that of `field`."""
    by = ("scores", "metric", "slice_value")
    score, status = pl.col("score").drop_nulls(), pl.col("status")
    counted = pl.all_horizontal(pl.col("part", "whole").is_not_null()) & (status == "scored")
    # Sorted, so that sums do not depend on the order of the samples.
    part, whole = (pl.col(c).filter(counted).sort().sum() for c in ("part", "whole"))
    cells = rows.group_by(by).agg(
        n=pl.len(),
        n_scored=(status == "scored").sum(),
        n_undefined=(status == "undefined").sum(),
        n_failed=(status == "failed").sum(),
        values=score.sort(),
        clusters=pl.col("cluster").filter(pl.col("score").is_not_null()).sort_by(score),
        mean=score.sort().mean(),
        micro_mean=pl.when(whole != 0).then(part / whole),
        minimum=score.min(),
        median=score.median(),
        maximum=score.max(),
    )
    intervals = [
        clustered_mean_interval(values.to_numpy(), clusters.to_numpy())
        if clusters.count()
        else mean_interval(values.to_numpy())
        for values, clusters in zip(cells["values"], cells["clusters"], strict=True)
    ]
    return (
        cells.with_columns(
            slice_field=pl.lit(field, pl.String),
            low=pl.Series([low for low, _ in intervals], dtype=pl.Float64),
            high=pl.Series([high for _, high in intervals], dtype=pl.Float64),
        )
        .sort(by)
        .with_columns(pl.col("scores").cast(pl.String))
        .select(schema(Summary).names())
    )


def conversations(samples: pl.DataFrame) -> pl.DataFrame | None:
    """The cluster of each sample: its conversation, else the sample; None without conversations.

    `samples` has `sample_id` and `metadata`; the columns are `sample_id` and `cluster`.
    """
    mentioned = samples["metadata"].str.contains('"conversation_id"', literal=True)
    if not mentioned.any():
        return None
    (found,) = _values(samples["metadata"].set(~mentioned, "{}"), ("conversation_id",))
    if not found.count():
        return None
    cluster = pl.when(found.is_null()).then("s" + pl.col("sample_id")).otherwise("c" + found)
    return samples.select("sample_id", cluster.alias("cluster"))


def _values(metadata: pl.Series, fields: Sequence[str]) -> list[pl.Series]:
    """Each field's value in every sample: text as it is, other JSON values as JSON."""
    found: list[list[str | None]] = [[] for _ in fields]
    if fields:
        for text in metadata:
            values = json.loads(text)
            for field, column in zip(fields, found, strict=True):
                column.append(_as_text(values.get(field)))
    return [pl.Series(column, dtype=pl.String) for column in found]


def _as_text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else canonical(value).decode()
