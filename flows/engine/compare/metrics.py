"""Metric by metric: how far two runs lie apart on the samples that both have scored."""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple

import polars as pl

from claimflow.flows.engine.compare.numbers import Difference, holm, paired_difference
from claimflow.flows.engine.errors import Fault, InputError, one_of
from claimflow.stages import LOWER_IS_BETTER

Finding = Literal["better", "worse", "unclear", "same"]

SIGNIFICANT: Final = 0.05
"""Corrected p below which a difference is taken for more than chance."""


class Side(NamedTuple):
    """The rows of a metric in one run; `absent` counts samples that only the other run has."""

    scored: int
    undefined: int
    failed: int
    absent: int


class MetricDifference(NamedTuple):
    """A metric in both runs.

    The means are over the samples that both have scored, `difference` is theirs, b less a,
    and None where there is no such sample. `p_holm` is p corrected for the number of metrics of
    which any score moved.
    """

    metric: str
    lower_is_better: bool
    a: Side
    b: Side
    mean_a: float | None
    mean_b: float | None
    difference: Difference | None
    p_holm: float | None

    @property
    def finding(self) -> Finding:
        """What may be said of it: unclear is what chance alone could give."""
        if self.difference is None or self.p_holm is None:
            return "unclear"
        if self.difference.still:
            return "same"
        if self.p_holm >= SIGNIFICANT:
            return "unclear"
        return "better" if (self.difference.mean < 0) == self.lower_is_better else "worse"


def metric_differences(
    pairs: pl.DataFrame, units: Mapping[str, str] | None = None
) -> list[MetricDifference]:
    """Every metric that both runs have, in the order of their steps.

    `pairs` are those of `paired_scores`, `units` names the unit of each sample.
    """
    found = [
        _metric(table, units)
        for table in pairs.partition_by("name", maintain_order=True)
        if table["status_a"].count() and table["status_b"].count()
    ]
    # A test that cannot come out significant takes nothing from the others (Tarone 1990).
    tested = [
        one.difference.p if one.difference and not one.difference.still else None for one in found
    ]
    return [
        one._replace(p_holm=one.difference.p if p is None and one.difference else p)
        for one, p in zip(found, holm(tested), strict=True)
    ]


def in_one_run(pairs: pl.DataFrame) -> tuple[list[str], list[str]]:
    """The metrics that only the first, and only the second run has."""
    has = pairs.group_by("name", maintain_order=True).agg(
        a=pl.col("status_a").count() > 0, b=pl.col("status_b").count() > 0
    )
    only_a, only_b = (has.filter(~pl.col(other))["name"].to_list() for other in ("b", "a"))
    return only_a, only_b


def chosen(pairs: pl.DataFrame, metrics: Iterable[str]) -> pl.DataFrame:
    """The pairs of some metrics, by name or by metric; all of them where none is named.

    Raises `InputError` for names of which there is no score.
    """
    wanted = set(metrics)
    known = {*pairs["name"], *pairs["metric"]}
    faults = [
        Fault("--metric", f"neither run has scores of {name!r}", one_of(name, known))
        for name in sorted(wanted - known)
    ]
    if faults:
        raise InputError(faults)
    named = pl.col("name").is_in(wanted) | pl.col("metric").is_in(wanted)
    return pairs.filter(named) if wanted else pairs


def _metric(table: pl.DataFrame, units: Mapping[str, str] | None) -> MetricDifference:
    name, metric = table["name"][0], table["metric"][0]
    a, b = (_side(table[f"status_{side}"]) for side in "ab")
    lower = metric in LOWER_IS_BETTER
    # Sorted, so that no result depends on the order of the samples.
    both = table.filter((pl.col("status_a") == "scored") & (pl.col("status_b") == "scored")).sort(
        "sample_id"
    )
    if both.is_empty():
        return MetricDifference(name, lower, a, b, None, None, None, None)
    differences = (both["score_b"] - both["score_a"]).to_numpy()
    of_samples = None if units is None else [units[sample] for sample in both["sample_id"]]
    difference = _bounded(paired_difference(differences, of_samples), both)
    means = [float(both[column].to_numpy().mean()) for column in ("score_a", "score_b")]
    return MetricDifference(name, lower, a, b, means[0], means[1], difference, None)


def _bounded(difference: Difference, both: pl.DataFrame) -> Difference:
    """Without what is out of reach of scores in [0, 1], where all of them lie there."""
    scores = pl.concat([both["score_a"], both["score_b"]])
    if difference.low is None or difference.high is None or not scores.is_between(0, 1).all():
        return difference
    return difference._replace(low=max(difference.low, -1.0), high=min(difference.high, 1.0))


def _side(status: pl.Series) -> Side:
    counts = {word: int((status == word).sum()) for word in ("scored", "undefined", "failed")}
    return Side(**counts, absent=status.null_count())
