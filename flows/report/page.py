"""The page of a run: what was found, plots, and every sample that there is room for."""

from collections.abc import Iterator
from typing import Any, Final

from markupsafe import Markup

from claimflow.flows.engine.audit_claims.run import ClaimAudit
from claimflow.flows.engine.calibration.corrections import Correction, corrections
from claimflow.flows.engine.compare.comparison import Comparison, compare
from claimflow.flows.engine.compare.pairs import Runs
from claimflow.flows.engine.findings.results import sample_count
from claimflow.flows.engine.report.metrics import StepMetric, scored_values
from claimflow.flows.engine.report.overview import SAMPLES, Overview, overview
from claimflow.flows.engine.report.ranking import changed_samples, worst_first
from claimflow.flows.engine.storage.store import Store
from claimflow.flows.engine.version import VERSION
from claimflow.flows.pages import claim_audit, comparison_words
from claimflow.flows.pages.cascade import cascade_words
from claimflow.flows.pages.gates import GATES, gate_cells
from claimflow.flows.pages.judges import Said, judge_lines
from claimflow.flows.pages.run import call_words, metric_name
from claimflow.flows.pages.steps import run_counts
from claimflow.flows.pages.votes import vote_words
from claimflow.flows.pages.words import counted
from claimflow.flows.rendering import hashed, policy, rendered, source
from claimflow.flows.report.entries import entries
from claimflow.flows.report.payload import Payload, packed
from claimflow.flows.report.plots import (
    comparison_svg,
    distribution_svg,
    reliability_svgs,
    trend_svg,
)
from claimflow.stages import LOWER_IS_BETTER

_SCRIPTS: Final = ("texts.js", "sample.js", "list.js")

_MOST: Final = 4_000_000
"""Letters for the samples; with the rest of the page below 5 MB."""


def html_report(
    store: Store, run_id: str, *, against: str | None = None, samples: int = SAMPLES
) -> str:
    """The report of a run on record as one HTML page, which opens from a file or a server.

    `against` is the run before, to show what changed since; both are ids. At most `samples`
    samples are shown, and less where they would take more than 4 MB: those that changed
    first, then those with the lowest scores.
    """
    found = overview(store, run_id)
    comparison = compare(store, Runs(against, run_id)) if against else None
    first = changed_samples(comparison) if comparison else []
    ranked = worst_first(store, run_id, samples, before=first)
    labelled = corrections(store, run_id)
    payload = packed(entries(store, run_id, ranked.rows(), comparison), most=_MOST)
    return _rendered(
        head=found.head,
        version=VERSION,
        counts=run_counts(found.steps),
        metrics=list(_metrics(store, found)),
        slices=_slices(found),
        gates=[(one.outcome, gate_cells(one)) for one in found.gates],
        judges=list(_judges(store, found, labelled)),
        reliability=[_svg(one) for one in reliability_svgs(labelled)],
        steps=found.steps.rows(named=True),
        failures=found.failures.rows(named=True),
        audit=_audit(found.claims),
        calls=[call_words(row) for row in found.calls.iter_rows(named=True)],
        payload=payload,
        shown=_shown(payload, sample_count(found.steps), compared=comparison is not None),
        comparison=_compared(comparison) if comparison else None,
    )


def _shown(payload: Payload, every: int, *, compared: bool) -> str:
    """How many samples are in the page, and how to have others."""
    if payload.held == every:
        first = "those that changed" if compared else "those with the lowest scores"
        return f"All {counted(every, 'sample')}, {first} first."
    which = "those that changed, then those" if compared else "those"
    return (
        f"{payload.held:,} of {counted(every, 'sample')}: {which} with the lowest scores. "
        f"{every - payload.held:,} are left out; the figures above are over all. "
        "--samples N says how many to show, within 4 MB."
    )


def _metrics(store: Store, found: Overview) -> Iterator[dict[str, Any]]:
    """Every mean over all samples with its plots."""
    whole = [row for row in found.summaries.rows(named=True) if row["slice_field"] is None]
    for row in whole:
        metric = row["metric"]
        of = StepMetric(row["scores"], metric)
        values = scored_values(store, found.head.run_id, of)
        yield row | {
            "name": metric_name(row, found.summaries),
            "lower": metric in LOWER_IS_BETTER,
            "distribution": _svg(distribution_svg(values, metric)),
            "trend": _svg(trend_svg(found.past.get(of, []), metric)),
        }


def _slices(found: Overview) -> dict[str, list[dict[str, Any]]]:
    """By metadata field: a row for each value and metric."""
    by_field: dict[str, list[dict[str, Any]]] = {}
    for row in found.summaries.rows(named=True):
        if row["slice_field"] is not None:
            whole = row | {"slice_field": None}
            name = metric_name(whole, found.summaries)
            by_field.setdefault(row["slice_field"], []).append(row | {"name": name})
    return by_field


def _judges(store: Store, found: Overview, labelled: list[Correction]) -> Iterator[Said]:
    """What is known of the judges: cascades, votes, canaries, labels, calibrations."""
    for cascade in found.cascades:
        yield from map(Said, cascade_words(cascade))
    votes = vote_words(*found.votes)
    if votes:
        yield Said(votes)
    yield from judge_lines(store, found.head.run_id, labelled)


def _audit(found: ClaimAudit) -> dict[str, Any]:
    return {
        "samples": claim_audit.sample_words(found),
        "steps": [(claim_audit.step_words(step), step.checks) for step in found.steps],
        "found": claim_audit.found_words,
        "example": claim_audit.example_words,
    }


def _compared(found: Comparison) -> dict[str, Any]:
    return {
        "a": found.a,
        "a_words": comparison_words.run_words(found.a),
        "b_words": comparison_words.run_words(found.b),
        "samples": comparison_words.sample_counts(found),
        "steps": [comparison_words.step_words(s) for s in comparison_words.other_steps(found)],
        "only": list(comparison_words.only_words(found)),
        "columns": comparison_words.METRICS,
        "metrics": [
            (one.finding, comparison_words.metric_cells(one, units=False)) for one in found.metrics
        ],
        "reading": comparison_words.READING,
        "causes": found.causes.rows(),
        "plot": _svg(comparison_svg(found)),
    }


def _svg(drawn: str | None) -> Markup | None:
    """A plot as markup: the one thing in the page that was not escaped here, but by Vega."""
    return None if drawn is None else Markup(drawn)  # noqa: S704


def _rendered(**facts: Any) -> str:
    style = source("claimflow.flows.report", "style.css")
    script = Markup("").join(source("claimflow.flows.report", name) for name in _SCRIPTS)
    allowed = policy(
        f"script-src {hashed(script)}",
        f"style-src {hashed(style)}",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    facts |= {"style": style, "script": script, "policy": allowed, "gate_columns": GATES}
    return rendered("claimflow.flows.report", "page.html.j2", facts)
