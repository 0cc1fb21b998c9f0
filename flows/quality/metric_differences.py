"""Differences of metrics between two runs on the same samples."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal, NamedTuple

import duckdb
import polars as pl

from claimflow.flows.errors import Fault, InputError, one_of
from claimflow.flows.quality.paired_statistics import (
    ROUNDING,
    PairedDifference,
    holm_correction,
    paired_difference,
)
from claimflow.flows.store.arrow import read_table
from claimflow.stages.registry import LOWER_IS_BETTER
from claimflow.stages.rows import Sample

TEXT_FIELDS: Final = tuple(
    name for name in Sample.model_fields if name not in ("sample_id", "metadata")
)
"""The fields of a sample that a claim, a verdict or a score may depend on."""


def paired_scores(connection: duckdb.DuckDBPyConnection, a: str, b: str) -> pl.DataFrame:
    """One row per metric and sample of either run.

    Columns: name, metric, sample_id, and for `_a` and `_b` each: status, score, reason.
    `name` is the metric, led by its step where several steps of a run make it. The status
    is NULL where a run has no such row.
    """
    sides = [_scores(connection, run) for run in (a, b)]
    several = pl.concat(
        side.unique(["step", "metric"]).group_by("metric").len().filter(pl.col("len") > 1)
        for side in sides
    )["metric"]
    name = (
        pl.when(pl.col("metric").is_in(several.implode()))
        .then(pl.format("{}.{}", "step", "metric"))
        .otherwise("metric")
    )
    of_a, of_b = (side.with_columns(name=name).drop("step") for side in sides)
    keys = ["name", "metric", "sample_id"]
    both = of_a.join(
        of_b, on=keys, how="full", coalesce=True, suffix="_b", maintain_order="left_right"
    )
    return both.rename({name: f"{name}_a" for name in ("status", "score", "reason")})


def _scores(connection: duckdb.DuckDBPyConnection, run: str) -> pl.DataFrame:
    return read_table(
        connection,
        """
        SELECT step, metric, sample_id, status, score, reason
        FROM scores JOIN audit.run_steps USING (run_id, step)
        WHERE run_id = $run ORDER BY position, metric, sample_id
        """,
        run=run,
    )


def changed_scores(pairs: pl.DataFrame) -> pl.DataFrame:
    """The pairs whose score or status differs, the largest differences first.

    Adds `difference`, b less a, NULL where only one side is scored; those come last.
    """
    return (
        pairs.filter(pl.col("status_a").is_not_null() & pl.col("status_b").is_not_null())
        .with_columns(difference=pl.col("score_b") - pl.col("score_a"))
        .filter(
            (pl.col("difference").abs() > ROUNDING) | (pl.col("status_a") != pl.col("status_b"))
        )
        .sort(
            pl.col("difference").abs(),
            "sample_id",
            "name",
            descending=[True, False, False],
            nulls_last=True,
        )
    )


def changed_samples(connection: duckdb.DuckDBPyConnection, a: str, b: str) -> pl.DataFrame:
    """The samples that differ between the runs: sample_id, state, fields.

    The state is new, removed or changed; `fields` names the fields whose content differs, except
    metadata.
    """
    changed = ", ".join(
        f"CASE WHEN a.{f} IS DISTINCT FROM b.{f} THEN '{f}' END" for f in TEXT_FIELDS
    )
    return read_table(
        connection,
        f"""
        SELECT sample_id, state, CASE WHEN state = 'changed' THEN fields ELSE [] END AS fields
        FROM (
            SELECT coalesce(a.sample_id, b.sample_id) AS sample_id,
                   CASE WHEN a.sample_id IS NULL THEN 'new'
                        WHEN b.sample_id IS NULL THEN 'removed' ELSE 'changed' END AS state,
                   list_filter([{changed}], lambda field: field IS NOT NULL)::VARCHAR[] AS fields
            FROM (FROM samples WHERE run_id = $a) a
            FULL JOIN (FROM samples WHERE run_id = $b) b ON a.sample_id = b.sample_id)
        WHERE len(fields) > 0 ORDER BY state, sample_id
        """,
        a=a,
        b=b,
    )


def values_by_sample(
    connection: duckdb.DuckDBPyConnection, run: str, field: str
) -> dict[str, str | None]:
    """The value of a metadata field by sample, None for the samples that lack it."""
    pointer = "/" + field.replace("~", "~0").replace("/", "~1")
    rows = connection.execute(
        "SELECT sample_id, json_extract_string(metadata, $pointer) FROM samples "
        "WHERE run_id = $run",
        {"pointer": pointer, "run": run},
    ).fetchall()
    return dict(rows)


def metadata_values(
    connection: duckdb.DuckDBPyConnection, run: str, field: str
) -> dict[str, str | None]:
    """As `values_by_sample`. Raises `InputError` where no sample has the field."""
    found = values_by_sample(connection, run, field)
    if all(value is None for value in found.values()):
        known = connection.execute(
            "SELECT DISTINCT unnest(json_keys(metadata)) FROM samples WHERE run_id = $run "
            "ORDER BY ALL",
            {"run": run},
        ).fetchall()
        hint = one_of(field, [name for (name,) in known])
        raise InputError([Fault("--by", f"no sample has the field {field!r}", hint)])
    return found


CONVERSATION: Final = "conversation_id"
"""The metadata field whose samples are turns of one conversation."""


def conversation_units(
    connection: duckdb.DuckDBPyConnection, run: str
) -> dict[str, str | None] | None:
    """The conversation of each sample, None for those of none; None for a run without any."""
    found = values_by_sample(connection, run, CONVERSATION)
    return found if any(value is not None for value in found.values()) else None


def cluster_names(
    sample_ids: Iterable[str], units: Mapping[str, str | None] | None
) -> list[str] | None:
    """The cluster of each sample: its unit, or the sample itself where that is None."""
    if units is None:
        return None
    pairs = ((name, units.get(name)) for name in sample_ids)
    return [f"s{name}" if unit is None else f"v{unit}" for name, unit in pairs]


Finding = Literal["better", "worse", "unclear", "same"]

SIGNIFICANT: Final = 0.05
"""Corrected p-value below which a difference is significant."""


class StatusCounts(NamedTuple):
    """Rows of a metric in one run by status; `absent` counts samples only the other run has."""

    scored: int
    undefined: int
    failed: int
    absent: int


class MetricDifference(NamedTuple):
    """A metric in both runs.

    The means and `difference`, b less a, are over the samples scored in both; None where there is
    none. `p_holm` is p corrected for the number of metrics with any changed score.
    """

    metric: str
    lower_is_better: bool
    a: StatusCounts
    b: StatusCounts
    mean_a: float | None
    mean_b: float | None
    difference: PairedDifference | None
    p_holm: float | None

    @property
    def finding(self) -> Finding:
        """The conclusion; unclear where the difference is not significant."""
        if self.difference is None or self.p_holm is None:
            return "unclear"
        if self.difference.unchanged:
            return "same"
        if self.p_holm >= SIGNIFICANT:
            return "unclear"
        return "better" if (self.difference.mean < 0) == self.lower_is_better else "worse"


def metric_differences(
    pairs: pl.DataFrame,
    units: Mapping[str, str | None] | None = None,
    *,
    lower: Collection[str] = LOWER_IS_BETTER,
) -> list[MetricDifference]:
    """Every metric that both runs have, in the order of their steps.

    `pairs` are those of `paired_scores`. Samples with the same value in `units` are one unit,
    those with None a unit each. `lower` are the metrics that are best at 0.
    """
    found = [
        _metric(table, units, lower)
        for table in pairs.partition_by("name", maintain_order=True)
        if table["status_a"].count() and table["status_b"].count()
    ]
    # Tests that cannot be significant do not count as tests (Tarone 1990).
    tested = [
        one.difference.p if one.difference and not one.difference.unchanged else None
        for one in found
    ]
    return [
        one._replace(p_holm=one.difference.p if p is None and one.difference else p)
        for one, p in zip(found, holm_correction(tested), strict=True)
    ]


def unshared_metrics(pairs: pl.DataFrame) -> tuple[list[str], list[str]]:
    """(metrics that only run a has, metrics that only run b has)."""
    has = pairs.group_by("name", maintain_order=True).agg(
        a=pl.col("status_a").count() > 0, b=pl.col("status_b").count() > 0
    )
    only_a, only_b = (has.filter(~pl.col(other))["name"].to_list() for other in ("b", "a"))
    return only_a, only_b


def select_metrics(
    pairs: pl.DataFrame, metrics: Iterable[str], *, place: str = "--metric"
) -> pl.DataFrame:
    """The pairs of `metrics`, by name or by metric; all pairs where none is given.

    Raises `InputError`, whose faults are at `place`, for metrics without a score.
    """
    wanted = set(metrics)
    check_metrics(wanted, {*pairs["name"], *pairs["metric"]}, place=place)
    named = pl.col("name").is_in(wanted) | pl.col("metric").is_in(wanted)
    return pairs.filter(named) if wanted else pairs


def check_metrics(wanted: Collection[str], known: Collection[str], *, place: str) -> None:
    """Raise `InputError`, whose faults are at `place`, for names that are not `known`."""
    faults = [
        Fault(place, f"neither run has scores of {name!r}", one_of(name, known))
        for name in sorted(set(wanted).difference(known))
    ]
    if faults:
        raise InputError(faults)


def _metric(
    table: pl.DataFrame, units: Mapping[str, str | None] | None, best_at_0: Collection[str]
) -> MetricDifference:
    name, metric = table["name"][0], table["metric"][0]
    a, b = (_side(table[f"status_{side}"]) for side in "ab")
    lower = metric in best_at_0
    # Sorted, so that no result depends on the order of the samples.
    both = table.filter((pl.col("status_a") == "scored") & (pl.col("status_b") == "scored")).sort(
        "sample_id"
    )
    if both.is_empty():
        return MetricDifference(name, lower, a, b, None, None, None, None)
    differences = (both["score_b"] - both["score_a"]).to_numpy()
    of_samples = cluster_names(both["sample_id"], units)
    difference = _clipped(paired_difference(differences, of_samples), both)
    means = [float(both[column].to_numpy().mean()) for column in ("score_a", "score_b")]
    return MetricDifference(name, lower, a, b, means[0], means[1], difference, None)


def _clipped(difference: PairedDifference, both: pl.DataFrame) -> PairedDifference:
    """The interval clipped to [-1, 1] where all scores lie in [0, 1]."""
    scores = pl.concat([both["score_a"], both["score_b"]])
    if difference.low is None or difference.high is None or not scores.is_between(0, 1).all():
        return difference
    return difference._replace(low=max(difference.low, -1.0), high=min(difference.high, 1.0))


def _side(status: pl.Series) -> StatusCounts:
    counts = {word: int((status == word).sum()) for word in ("scored", "undefined", "failed")}
    return StatusCounts(**counts, absent=status.null_count())
