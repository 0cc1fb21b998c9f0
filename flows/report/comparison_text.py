"""What a comparison says, on a terminal and in a pull request alike."""

from collections.abc import Iterator
from typing import Any

from claimflow.flows.quality.claim_changes import StepChange
from claimflow.flows.quality.comparison import Comparison, RunFacts
from claimflow.flows.quality.metric_differences import MetricDifference, StatusCounts
from claimflow.flows.report.formatting import format_count, format_difference, format_number

METRIC_COLUMNS = (
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
"""The columns of the table of metrics."""

METRIC_NOTE = (
    "n samples scored in both; intervals hold for one metric each; p by flipping signs, Holm for "
    "all metrics that moved; ↓ lower is better"
)


def metric_cells(metric: MetricDifference, *, units: bool) -> tuple[str, ...]:
    """A row of the table of metrics; with `units` n says how many units the samples are of."""
    found = metric.difference
    name = f"{metric.metric} ↓" if metric.lower_is_better else metric.metric
    left = _left_out(metric)
    if found is None:
        return (name, "0", *["-"] * 6, metric.finding, left)
    n = f"{found.samples:,}" + (f" in {found.units:,}" if units else "")
    interval = (
        "-"
        if found.low is None
        else f"{format_difference(found.low)} to {format_difference(found.high)}"
    )
    means = (
        format_number(metric.mean_a),
        format_number(metric.mean_b),
        format_difference(found.mean),
    )
    return name, n, *means, interval, _p(found.p), _p(metric.p_holm), metric.finding, left


def sample_counts_text(comparison: Comparison) -> str:
    """How many samples are the same, changed, new and removed."""
    states = comparison.samples["state"]
    changed, new, removed = (int((states == s).sum()) for s in ("changed", "new", "removed"))
    same = comparison.b.samples - new - changed
    others = f"{changed:,} changed, {new:,} new, {removed:,} removed"
    return f"{format_count(same, 'sample')} the same, {others}"


def step_change_text(step: StepChange) -> str:
    """A step with what was done otherwise in it, as in `verdicts: prompt and settings (votes)`."""
    others = [name for name in step.settings if name != "prompt"]
    names = f" ({', '.join(others)})" if "settings" in step.causes else ""
    causes = [*(f"{c}{names if c == 'settings' else ''}" for c in step.causes)]
    return f"{step.step}: {' and '.join([*causes, *(['edited by hand'] if step.edits else [])])}"


def changed_steps(comparison: Comparison) -> list[StepChange]:
    """The steps in which something was done otherwise."""
    return [step for step in comparison.steps if step.causes or step.edits]


def one_sided_lines(comparison: Comparison) -> Iterator[str]:
    """A line for the steps and for the metrics that one of the runs lacks."""
    for kind, sides in comparison.only.items():
        for side, names in zip("AB", sides, strict=True):
            if names:
                yield f"{kind} only in {side}: {', '.join(names)}"


def run_facts_text(run: RunFacts) -> str:
    """A run in one line, but for its id: pipeline, tags, samples, and how it ended if not well."""
    tags = f" ({', '.join(run.tags)})" if run.tags else ""
    ended = "" if run.status == "done" else f", {run.status}"
    return f"{run.pipeline}{tags}, {format_count(run.samples, 'sample')}{ended}"


def score_text(row: dict[str, Any], side: str) -> str:
    """The score of one side, or why there is none."""
    score = row[f"score_{side}"]
    return row[f"status_{side}"] if score is None else format_number(score)


def claim_change_text(row: dict[str, Any]) -> str:
    """What became of a claim: the two verdicts, or on which side it is."""
    if row["change"] == "claim text changed":
        return "only in A" if row["b"] is None else "only in B"
    return f"{row['a']} to {row['b']}"


def _p(value: float | None) -> str:
    if value is None:
        return "-"
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _left_out(metric: MetricDifference) -> str:
    """The samples of either side that are not in the comparison, by why."""
    sides = {"A": metric.a, "B": metric.b}
    words = {side: _why(counts) for side, counts in sides.items()}
    if words["A"] == words["B"]:
        return f"{words['A']} in both" if words["A"] else ""
    return "; ".join(f"{why} in {side}" for side, why in words.items() if why)


def _why(side: StatusCounts) -> str:
    counts = side._asdict()
    return ", ".join(
        f"{counts[name]:,} {name}" for name in ("undefined", "failed", "absent") if counts[name]
    )
