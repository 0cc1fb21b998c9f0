"""Sentences and table rows about two compared runs, for every format."""

from collections.abc import Iterator
from typing import Any, Final

from claimflow.flows.quality.claim_changes import StepChange
from claimflow.flows.quality.comparison import Comparison, RunFacts
from claimflow.flows.quality.metric_differences import MetricDifference, StatusCounts
from claimflow.flows.report.formatting import (
    format_count,
    format_difference,
    format_interval,
    format_number,
)

METRIC_COLUMNS: Final = (
    "metric",
    "n",
    "A",
    "B",
    "B - A",
    "95 % interval",
    "p",
    "p (Holm)",
    "finding",
    "left out",
)
METRIC_NOTE: Final = (
    "n samples scored in both; intervals hold for one metric each; p by flipping signs, Holm for "
    "all metrics that moved; ↓ lower is better"
)
SCORE_COLUMNS: Final = ("sample", "metric", "A", "B", "B - A")
CAUSE_COLUMNS: Final = ("change", "cause", "claims")


def run_facts_text(run: RunFacts) -> str:
    """Pipeline, tags and samples of a run, and its status if it is not done."""
    tags = f" ({', '.join(run.tags)})" if run.tags else ""
    status = "" if run.status == "done" else f", {run.status}"
    count = f"partial, {run.partial}" if run.partial else format_count(run.samples, "sample")
    return f"{run.pipeline}{tags}, {count}{status}"


def sample_counts_text(comparison: Comparison) -> str:
    """How many samples are the same, changed, new and removed."""
    states = comparison.samples["state"]
    changed, new, removed = (int((states == s).sum()) for s in ("changed", "new", "removed"))
    same = comparison.b.samples - new - changed
    others = f"{changed:,} changed, {new:,} new, {removed:,} removed"
    return f"{format_count(same, 'sample')} the same, {others}"


def step_change_lines(comparison: Comparison) -> list[str]:
    """The steps that were made differently, each as `step_change_text` says it."""
    return [step_change_text(step) for step in comparison.steps if step.causes or step.edits]


def step_change_text(step: StepChange) -> str:
    """How a step was made differently, as in `verdicts: prompt and settings (votes)`."""
    settings = ", ".join(name for name in step.settings if name != "prompt")
    causes = [f"{cause} ({settings})" if cause == "settings" else cause for cause in step.causes]
    return f"{step.step}: {' and '.join([*causes, *(['edited by hand'] if step.edits else [])])}"


def one_sided_lines(comparison: Comparison) -> Iterator[str]:
    """A line for the steps, and one for the metrics, that only one of the runs has."""
    for kind, sides in comparison.only.items():
        for side, names in zip("AB", sides, strict=True):
            if names:
                yield f"{kind} only in {side}: {', '.join(names)}"


def metric_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """The rows of the table of metrics, by `METRIC_COLUMNS`."""
    return [_metric_row(one, units=comparison.by is not None) for one in comparison.metrics]


def _metric_row(metric: MetricDifference, *, units: bool) -> tuple[str, ...]:
    """One row; with `units`, n has the number of units that the samples form."""
    found = metric.difference
    name = f"{metric.metric} ↓" if metric.lower_is_better else metric.metric
    left_out = _left_out(metric)
    if found is None:
        return (name, "0", *["-"] * 6, metric.finding, left_out)
    return (
        name,
        f"{found.samples:,}" + (f" in {found.units:,}" if units else ""),
        format_number(metric.mean_a),
        format_number(metric.mean_b),
        format_difference(found.mean),
        format_interval(found.low, found.high, format_difference),
        _format_p(found.p),
        _format_p(metric.p_holm),
        metric.finding,
        left_out,
    )


def _format_p(value: float | None) -> str:
    if value is None:
        return "-"
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _left_out(metric: MetricDifference) -> str:
    """How many samples of each run are not compared, by reason."""
    a, b = _not_scored(metric.a), _not_scored(metric.b)
    if a == b:
        parts = [f"{a} in both"] if a else []
    else:
        parts = [f"{counts} in {side}" for side, counts in (("A", a), ("B", b)) if counts]
    # A sample that one run lacks is in the other one.
    lacking = (("A", metric.b.absent), ("B", metric.a.absent))
    only = [f"{count:,} only in {side}" for side, count in lacking if count]
    return "; ".join([*parts, *([", ".join(only)] if only else [])])


def _not_scored(side: StatusCounts) -> str:
    counts = side._asdict()
    return ", ".join(f"{counts[name]:,} {name}" for name in ("undefined", "failed") if counts[name])


def score_rows(comparison: Comparison, limit: int) -> list[tuple[str, ...]]:
    """The scores that changed most, by `SCORE_COLUMNS`; a missing score is shown as its status."""
    return [
        (
            row["sample_id"],
            row["name"],
            *(
                row[f"status_{side}"]
                if row[f"score_{side}"] is None
                else format_number(row[f"score_{side}"])
                for side in "ab"
            ),
            format_difference(row["difference"]),
        )
        for row in comparison.scores.head(limit).iter_rows(named=True)
    ]


def cause_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """How many claims changed in which way and why, by `CAUSE_COLUMNS`."""
    return [(change, cause, f"{count:,}") for change, cause, count in comparison.causes.iter_rows()]


def claim_change_text(row: dict[str, Any]) -> str:
    """How a claim changed: the two verdicts, or the run that has it."""
    if row["change"] == "claim text changed":
        return "only in A" if row["b"] is None else "only in B"
    return f"{row['a']} to {row['b']}"
