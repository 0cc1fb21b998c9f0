"""A run or a comparison as Markdown."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import polars as pl

from claimflow.flows.quality.calibration import corrected_steps
from claimflow.flows.quality.cascades import cascade_results
from claimflow.flows.quality.comparison import Comparison, compare
from claimflow.flows.quality.gates import recorded_outcomes
from claimflow.flows.quality.metric_differences import RunPair
from claimflow.flows.report.comparison_text import (
    METRIC_COLUMNS,
    METRIC_NOTE,
    changed_steps,
    claim_change_text,
    metric_cells,
    one_sided_lines,
    run_facts_text,
    sample_counts_text,
    score_text,
)
from claimflow.flows.report.comparison_text import step_change_text as step_words_of_comparison_text
from claimflow.flows.report.formatting import (
    escape_controls,
    format_count,
    format_difference,
    format_number,
)
from claimflow.flows.report.overview import audited_claims
from claimflow.flows.report.run_text import (
    GATE_COLUMNS,
    audit_finding_text,
    audit_step_text,
    audited_samples_text,
    cascade_lines,
    gate_cells,
    judge_lines,
    run_counts_text,
    vote_text,
)
from claimflow.flows.store import results
from claimflow.flows.store import results as accounts
from claimflow.flows.store.runs import PREVIOUS, find_run
from claimflow.flows.store.store import Store

# Markdown in which text under evaluation stays text.


_LONGEST: Final = 300


def code_span(text: str | None) -> str:
    """Text under evaluation as a code span of one line, in which nothing is markup.

    In a table even there a bar would end the cell, so another one stands for it.
    """
    flat = " ".join(escape_controls(text or "").split()).replace("|", "\u2502")
    if not flat:
        return "-"
    flat = flat if len(flat) <= _LONGEST else f"{flat[: _LONGEST - 1]}\u2026"
    fence = "`" * (1 + max(map(len, re.findall("`+", flat)), default=0))
    room = " " if "`" in flat else ""
    return f"{fence}{room}{flat}{room}{fence}"


def table_lines(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table, with an empty one behind it."""
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


# A comparison of two runs as Markdown, fit for a pull request.


def comparison_markdown(comparison: Comparison, *, limit: int) -> str:
    """Metrics, then samples, then claims, of either at most `limit`."""
    return "\n".join(_lines(comparison, limit)) + "\n"


def _lines(comparison: Comparison, limit: int) -> Iterator[str]:
    yield "### What changed from A to B"
    yield ""
    for side, run in (("A", comparison.a), ("B", comparison.b)):
        yield f"- {side}: {code_span(run.run_id)} {code_span(run_facts_text(run))}"
    yield f"- {sample_counts_text(comparison)}"
    yield from (
        f"- made otherwise: {code_span(step_words_of_comparison_text(step))}"
        for step in changed_steps(comparison)
    )
    yield from (f"- {code_span(words)}" for words in one_sided_lines(comparison))
    yield ""
    yield from _metrics(comparison)
    yield from _scores(comparison, limit)
    yield from _claims(comparison, limit)


def _metrics(comparison: Comparison) -> Iterator[str]:
    if not comparison.metrics:
        yield "No metric was scored in both runs."
        return
    cells = [metric_cells(m, units=comparison.by is not None) for m in comparison.metrics]
    yield from table_lines(METRIC_COLUMNS, cells)
    by = f"; one unit for each {code_span(comparison.by)}" if comparison.by else ""
    yield f"<sub>{METRIC_NOTE}{by}</sub>"


def _scores(comparison: Comparison, limit: int) -> Iterator[str]:
    scores = comparison.scores
    yield ""
    yield f"**Scores that changed: {scores.height:,}**{_shown(scores.height, limit)}"
    if scores.is_empty():
        return
    yield ""
    yield from table_lines(
        ("sample", "metric", "A", "B", "B - A"),
        (
            (
                code_span(row["sample_id"]),
                row["name"],
                *(score_text(row, side) for side in "ab"),
                format_difference(row["difference"]),
            )
            for row in scores.head(limit).iter_rows(named=True)
        ),
    )


def _claims(comparison: Comparison, limit: int) -> Iterator[str]:
    claims = comparison.claims
    yield ""
    yield f"**Claims that changed: {claims.height:,}**{_shown(claims.height, limit)}"
    if claims.is_empty():
        return
    yield ""
    counts = ((*row[:2], f"{row[2]:,}") for row in comparison.causes.iter_rows())
    yield from table_lines(("change", "cause", "claims"), counts)
    yield from table_lines(
        ("sample", "claim", "change", "", "cause", "step"),
        (
            (
                code_span(row["sample_id"]),
                code_span(row["claim"]),
                row["change"],
                claim_change_text(row),
                row["cause"],
                row["step"],
            )
            for row in claims.head(limit).iter_rows(named=True)
        ),
    )


def _shown(count: int, limit: int) -> str:
    return f", {limit:,} of them below" if count > limit else ""


# What a run found, as a page of Markdown and as a table of its worst samples.


COMPARED_UP_TO: Final = 100_000
"""Samples up to which a page has the difference to the run before: all of it is in memory."""

_CHANGES: Final = 10
_WORST: Final = 20
_CLAIMS: Final = 3

_METRICS: Final = ("metric", "mean", "95 % interval", "scored", "undefined", "failed", "of")


def run_markdown(store: Store, run_id: str) -> str:
    """Means with their intervals and counts, gates, failures, cost, and what has changed since."""
    return "\n".join(_run_lines(store, run_id)) + "\n"


def worst_samples(store: Store, run_id: str) -> list[dict[str, Any]]:
    """The samples with the lowest mean over their scores, with the claims that were not entailed.

    Every cell of text is a code span, for Prefect renders cells as Markdown.
    """
    return [
        {
            "sample": code_span(row["sample_id"]),
            "mean": format_number(row["mean"]),
            "asked": code_span(row["user_input"]),
            "response": code_span(row["response"]),
            "claims": _not_entailed(store, run_id, row["sample_id"]),
        }
        for row in results.lowest_samples(store, run_id, _WORST).iter_rows(named=True)
    ]


def metric_name(row: dict[str, str], summaries: pl.DataFrame) -> str:
    """The metric of a row of `summaries`, led by its step where several make it, and the slice."""
    makers = summaries.filter(pl.col("metric") == row["metric"])["scores"].n_unique()
    name = row["metric"] if makers == 1 else f"{row['scores']}.{row['metric']}"
    if row["slice_field"] is None:
        return name
    return f"{name} [{row['slice_field']}={row['slice_value']}]"


def calls_text(row: dict[str, Any]) -> str:
    """What a judge was asked and what it cost; `row` is one of `accounts.calls_made`."""
    tokens = "tokens not told" if row["tokens"] is None else format_count(row["tokens"], "token")
    unpriced = row["calls"] - row["priced"]
    cost = "" if row["cost"] is None else f", {row['cost']:.4f} USD"
    unknown = f", {format_count(unpriced, 'call')} of unknown price" if unpriced else ""
    repaired = f", {row['repaired']:,} repaired" if row["repaired"] else ""
    who = f"{row['judge']} {row['model']}"
    return f"{who}: {format_count(row['calls'], 'call')}{repaired}, {tokens}{cost}{unknown}"


def _run_lines(store: Store, run_id: str) -> Iterator[str]:
    steps = results.run_steps(store, run_id)
    yield f"### Run {code_span(run_id)}"
    yield ""
    yield f"{run_counts_text(steps)}; store {code_span(str(store.path))}"
    yield ""
    yield from _run_metrics(results.summaries(store, run_id))
    outcomes = recorded_outcomes(store, run_id)
    if outcomes:
        cells = map(gate_cells, outcomes)
        yield from table_lines(
            GATE_COLUMNS, ((code_span(g), v, i, o, code_span(why)) for g, v, i, o, why in cells)
        )
    for row in accounts.failures(store, run_id).iter_rows(named=True):
        kind = f" {row['failure']}" if row["failure"] else ""
        count = f"{row['failed']:,} failed{kind}"
        yield f"- {code_span(row['step'])}: {count}: {code_span(row['reason'])}"
    votes = vote_text(*accounts.votes(store, run_id))
    if votes:
        yield f"- {code_span(votes)}"
    for cascade in cascade_results(store, run_id):
        yield f"- {code_span(' '.join(line.strip() for line in cascade_lines(cascade)))}"
    for line in judge_lines(store, run_id, corrected_steps(store, run_id)):
        mark = "**warning** " if line.warning else ""
        yield f"- {mark}{code_span(line.words.strip().removeprefix('warning: '))}"
    for row in accounts.calls_made(store, run_id).iter_rows(named=True):
        yield f"- {code_span(calls_text(row))}"
    yield from _run_claims(store, run_id)
    yield ""
    yield from _difference(store, run_id, results.sample_count(steps))


def _run_metrics(summaries: pl.DataFrame) -> Iterator[str]:
    whole = summaries.filter(pl.col("slice_field").is_null())
    if whole.is_empty():
        yield "No means: add a step that uses `summarize_scores`."
        yield ""
        return
    yield from table_lines(
        _METRICS,
        (
            (
                code_span(metric_name(row, whole)),
                format_number(row["mean"]),
                f"{format_number(row['low'])} to {format_number(row['high'])}",
                *(f"{row[name]:,}" for name in ("n_scored", "n_undefined", "n_failed", "n")),
            )
            for row in whole.iter_rows(named=True)
        ),
    )


def _run_claims(store: Store, run_id: str) -> Iterator[str]:
    """What is wrong with the claims of each step, whatever the judges say of them."""
    audit = audited_claims(store, run_id)
    for step in audit.steps:
        found = [one for one in step.checks if one.found]
        if found:
            yield f"- {code_span(f'{audit_step_text(step)} ({audited_samples_text(audit)})')}"
            yield from (f"  - {code_span(audit_finding_text(one))}" for one in found)


def _difference(store: Store, run_id: str, samples: int) -> Iterator[str]:
    before = find_run(store, PREVIOUS, before=run_id)
    if before is None:
        yield "The first run of its pipeline: there is none to compare it with."
    elif samples > COMPARED_UP_TO:
        yield f"What changed: `claimflow diff {before} {run_id}`"
    else:
        yield comparison_markdown(compare(store, RunPair(before, run_id)), limit=_CHANGES)


def _not_entailed(store: Store, run_id: str, sample_id: str) -> str:
    verdicts = results.verdicts_of(store, run_id, sample_id)
    those = verdicts.filter(pl.col("verdict").is_in(["contradicted", "neutral"]))
    worst = those.sort(pl.col("verdict") != "contradicted", maintain_order=True)
    told = [
        f"{row['verdict']}: {code_span(row['claim'])}"
        for row in worst.head(_CLAIMS).rows(named=True)
    ]
    more = [f"and {those.height - _CLAIMS:,} more"] if those.height > _CLAIMS else []
    return "; ".join([*told, *more]) or "-"
