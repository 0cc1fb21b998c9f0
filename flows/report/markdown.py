"""A run or a comparison as Markdown, for pull requests and Prefect artifacts."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from claimflow.flows.quality.comparison import Comparison, compare
from claimflow.flows.report import comparison_text
from claimflow.flows.report.formatting import escape_controls, format_number
from claimflow.flows.report.run_document import MAX_COMPARED, LowSample, RunDocument
from claimflow.flows.report.run_text import (
    GATE_COLUMNS,
    audit_finding_text,
    audit_step_text,
    audited_samples_text,
    gate_cells,
    untaught_parts,
)

_MAX_SPAN: Final = 300
_CHANGES: Final = 10
_WORST: Final = 20
_CLAIMS: Final = 3

_MEAN_COLUMNS: Final = ("metric", "mean", "95 % interval", "scored", "undefined", "failed", "of")


def run_markdown(run: RunDocument) -> str:
    """Means with intervals, gates, failures, cost, and what changed since the run before."""
    return "\n".join(_run_lines(run)) + "\n"


def worst_samples(run: RunDocument) -> list[dict[str, str]]:
    """The samples with the lowest mean over their scores, with claims that are not entailed.

    Every cell of text is a code span, because Prefect renders cells as Markdown.
    """
    return [
        {
            "sample": code_span(one.sample_id),
            "mean": format_number(one.mean),
            "asked": code_span(one.user_input),
            "response": code_span(one.response),
            "claims": _claims_not_entailed(one),
        }
        for one in run.lowest(_WORST)
    ]


def comparison_markdown(comparison: Comparison, *, limit: int) -> str:
    """Metrics, then scores, then claims, of scores and claims at most `limit`."""
    return "\n".join(_comparison_lines(comparison, limit)) + "\n"


def code_span(text: str | None) -> str:
    """Text under evaluation as a code span of one line, in which nothing is markup.

    A vertical bar would end a table cell even in a code span, so it is replaced.
    """
    flat = " ".join(escape_controls(text or "").split()).replace("|", "\u2502")
    if not flat:
        return "-"
    flat = flat if len(flat) <= _MAX_SPAN else f"{flat[: _MAX_SPAN - 1]}\u2026"
    fence = "`" * (1 + max(map(len, re.findall("`+", flat)), default=0))
    space = " " if "`" in flat else ""
    return f"{fence}{space}{flat}{space}{fence}"


def _table_lines(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table and an empty line."""
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


# A run.


def _run_lines(run: RunDocument) -> Iterator[str]:
    yield f"### Run {code_span(run.run_id)}"
    yield ""
    yield f"{run.counts}; store {code_span(str(run.store.path))}"
    yield ""
    if run.failed:
        yield f"**failed** {code_span(run.head.reason)}"
        yield ""
    if run.partial_line:
        yield f"**warning** {code_span(run.partial_line)}"
        yield ""
    yield from _mean_lines(run)
    if run.untaught:
        # What is wrong names steps, which are the user's words; what to do is ours.
        what, hint = untaught_parts(run.untaught)
        yield f"**warning** {code_span(what)}; {hint}"
        yield ""
    if run.gates:
        cells = map(gate_cells, run.gates)
        rows = ((code_span(gate), *figures, code_span(why)) for gate, *figures, why in cells)
        yield from _table_lines(GATE_COLUMNS, rows)
    for row in run.failures:
        count = f"{row['failed']:,} failed{' ' + row['failure'] if row['failure'] else ''}"
        yield f"- {code_span(row['step'])}: {count}: {code_span(row['reason'])}"
    yield from (f"- {code_span(line)}" for line in (run.vote_line, run.ambiguity_line) if line)
    for lines in run.cascade_lines:
        yield f"- {code_span(' '.join(line.strip() for line in lines))}"
    for line in run.judge_lines:
        mark = "**warning** " if line.warning else ""
        yield f"- {mark}{code_span(line.text.strip().removeprefix('warning: '))}"
    for text in run.call_lines:
        yield f"- {code_span(text)}"
    yield from _audit_lines(run)
    yield ""
    yield from _change_lines(run)


def _mean_lines(run: RunDocument) -> Iterator[str]:
    if not run.means:
        yield code_span(run.no_means)
        yield ""
        return
    rows = (
        (
            code_span(row["name"]),
            format_number(row["mean"]),
            f"{format_number(row['low'])} to {format_number(row['high'])}",
            *(f"{row[name]:,}" for name in ("n_scored", "n_undefined", "n_failed", "n")),
        )
        for row in run.means
    )
    yield from _table_lines(_MEAN_COLUMNS, rows)


def _audit_lines(run: RunDocument) -> Iterator[str]:
    audit = run.claim_audit
    for step in audit.steps:
        found = [check for check in step.checks if check.found]
        if found:
            yield f"- {code_span(f'{audit_step_text(step)} ({audited_samples_text(audit)})')}"
            yield from (f"  - {code_span(audit_finding_text(check))}" for check in found)


def _change_lines(run: RunDocument) -> Iterator[str]:
    before = run.run_before
    if before is None:
        yield "No whole run of its pipeline is older: there is none to compare it with."
    elif run.samples > MAX_COMPARED:
        yield f"What changed: `claimflow diff {before} {run.run_id}`"
    else:
        found = compare(run.store, before, run.run_id)
        yield comparison_markdown(found, limit=_CHANGES)


def _claims_not_entailed(sample: LowSample) -> str:
    claims = [f"{row['verdict']}: {code_span(row['claim'])}" for row in sample.claims[:_CLAIMS]]
    rest = len(sample.claims) - _CLAIMS
    return "; ".join([*claims, *([f"and {rest:,} more"] if rest > 0 else [])]) or "-"


# A comparison.


def _comparison_lines(comparison: Comparison, limit: int) -> Iterator[str]:
    yield "### What changed from A to B"
    yield ""
    for side, run in (("A", comparison.a), ("B", comparison.b)):
        facts = code_span(comparison_text.run_facts_text(run))
        yield f"- {side}: {code_span(run.run_id)} {facts}"
    yield f"- {comparison_text.sample_counts_text(comparison)}"
    for line in comparison_text.step_change_lines(comparison):
        yield f"- made differently: {code_span(line)}"
    for line in comparison_text.one_sided_lines(comparison):
        yield f"- {code_span(line)}"
    yield ""
    yield from _metric_difference_lines(comparison)
    yield from _score_lines(comparison, limit)
    yield from _claim_lines(comparison, limit)


def _metric_difference_lines(comparison: Comparison) -> Iterator[str]:
    if not comparison.metrics:
        yield "No metric was scored in both runs."
        return
    yield from _table_lines(comparison_text.METRIC_COLUMNS, comparison_text.metric_rows(comparison))
    by = f"; one unit for each {code_span(comparison.by)}" if comparison.by else ""
    yield f"<sub>{comparison_text.METRIC_NOTE}{by}</sub>"


def _score_lines(comparison: Comparison, limit: int) -> Iterator[str]:
    yield ""
    count = comparison.scores.height
    yield f"**Scores that changed: {count:,}**{_limit_note(count, limit)}"
    if count:
        yield ""
        rows = comparison_text.score_rows(comparison, limit)
        cells = ((code_span(sample), *rest) for sample, *rest in rows)
        yield from _table_lines(comparison_text.SCORE_COLUMNS, cells)


def _claim_lines(comparison: Comparison, limit: int) -> Iterator[str]:
    claims = comparison.claims
    yield ""
    yield f"**Claims that changed: {claims.height:,}**{_limit_note(claims.height, limit)}"
    if claims.is_empty():
        return
    yield ""
    yield from _table_lines(comparison_text.CAUSE_COLUMNS, comparison_text.cause_rows(comparison))
    rows = (
        (
            code_span(row["sample_id"]),
            code_span(row["claim"]),
            row["change"],
            comparison_text.claim_change_text(row),
            row["cause"],
            row["step"],
        )
        for row in claims.head(limit).iter_rows(named=True)
    )
    yield from _table_lines(("sample", "claim", "change", "", "cause", "step"), rows)


def _limit_note(count: int, limit: int) -> str:
    return f", {limit:,} of them below" if count > limit else ""
