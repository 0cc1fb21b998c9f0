"""The scores and the samples of two runs, side by side."""

from typing import Final, NamedTuple

import duckdb
import polars as pl

from claimflow.flows.engine.compare.numbers import ROUNDING
from claimflow.flows.engine.errors import Fault, InputError, one_of
from claimflow.flows.engine.storage.store import read_table
from claimflow.stages.rows import Sample

TEXTS: Final = tuple(name for name in Sample.model_fields if name not in ("sample_id", "metadata"))
"""The fields of a sample that a claim, a verdict or a score may depend on."""


class Runs(NamedTuple):
    """The ids of the two runs: what changed from `a` to `b`."""

    a: str
    b: str


def paired_scores(connection: duckdb.DuckDBPyConnection, runs: Runs) -> pl.DataFrame:
    """One row per metric and sample of either run.

    Columns: name, metric, sample_id, and for `_a` and `_b` each: status, score, reason.
    `name` is the metric, led by its step where several steps of a run make it. The status
    is NULL where a run has no such row.
    """
    sides = [_scores(connection, run) for run in runs]
    several = pl.concat(
        side.unique(["step", "metric"]).group_by("metric").len().filter(pl.col("len") > 1)
        for side in sides
    )["metric"]
    name = (
        pl.when(pl.col("metric").is_in(several.implode()))
        .then(pl.format("{}.{}", "step", "metric"))
        .otherwise("metric")
    )
    a, b = (side.with_columns(name=name).drop("step") for side in sides)
    keys = ["name", "metric", "sample_id"]
    both = a.join(b, on=keys, how="full", coalesce=True, suffix="_b", maintain_order="left_right")
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


def moved_scores(pairs: pl.DataFrame) -> pl.DataFrame:
    """The pairs whose score or status is another one, the largest differences first.

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


def other_samples(connection: duckdb.DuckDBPyConnection, runs: Runs) -> pl.DataFrame:
    """The samples that are not the same in both runs: sample_id, state, fields.

    The state is new, removed or changed; `fields` names the fields whose content is another
    one. Metadata do not count.
    """
    changed = ", ".join(f"CASE WHEN a.{f} IS DISTINCT FROM b.{f} THEN '{f}' END" for f in TEXTS)
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
        a=runs.a,
        b=runs.b,
    )


def unit_of_samples(connection: duckdb.DuckDBPyConnection, run: str, field: str) -> dict[str, str]:
    """The value of a metadata field by sample; a sample without it is a unit of its own.

    Raises `InputError` where no sample has the field.
    """
    rows = connection.execute(
        """
        SELECT sample_id, json_extract_string(metadata, $pointer) AS value
        FROM samples WHERE run_id = $run
        """,
        {"pointer": "/" + field.replace("~", "~0").replace("/", "~1"), "run": run},
    ).fetchall()
    if all(value is None for _, value in rows):
        known = connection.execute(
            "SELECT DISTINCT unnest(json_keys(metadata)) FROM samples WHERE run_id = $run "
            "ORDER BY ALL",
            {"run": run},
        ).fetchall()
        right = one_of(field, [name for (name,) in known])
        raise InputError([Fault("--by", f"no sample has the field {field!r}", right)])
    return {name: f"s{name}" if value is None else f"v{value}" for name, value in rows}
